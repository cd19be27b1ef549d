//! This machine, or several ranks on it, as the planner's machines.

use pomar_engine::Split;
use pomar_limits::Limits;
use pomar_plan::{Cluster, Format, Link, Machine, Maker, Node};

/// The name of the machine that nobody has to name.
pub(crate) const ID: &str = "this-machine";

/// Weights with at least so many bits are multiplied as floats.
const FLOAT_BITS: f64 = 16.0;

/// This machine with all its threads. `None` when nothing was measured.
pub(crate) fn whole(limits: &Limits, format: &Format) -> Option<Machine> {
    share(limits, format, limits.host.cores, 1)
}

/// The ranks of a split on this machine, `busy` of which work at the same time with `threads` threads each.
pub(crate) fn ranks(
    limits: &Limits,
    format: &Format,
    split: Split,
    threads: usize,
    busy: usize,
    link: Link,
) -> Option<Cluster> {
    let machine = share(limits, format, threads, busy)?;
    let node = |rank: usize| Node { name: format!("rank {rank}"), machine: machine.clone() };
    Some(Cluster::uniform((0..split.ranks()).map(node).collect(), Some(link)))
}

/// What one of `busy` ranks with `threads` threads has of the machine.
fn share(limits: &Limits, format: &Format, threads: usize, busy: usize) -> Option<Machine> {
    let at = limits.at(threads * busy)?;
    let among = busy as f64;
    let memory = limits.host.memory as f64;
    let rate = if format.others < FLOAT_BITS { at.int8 } else { at.f32 };
    Some(Machine {
        id: ID.into(),
        name: limits.host.processor.clone(),
        maker: Maker::Other,
        memory,
        usable: Machine::usable(Maker::Other, memory, true, false) / among,
        unified: true,
        bandwidth: at.read / among,
        two_dies: false,
        rate: rate / among,
        idle_power: None,
        full_power: None,
        price: None,
        year: None,
        rdma: false,
        ports: 0,
    })
}
