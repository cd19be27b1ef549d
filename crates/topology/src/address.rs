//! An IPv4 address for each end of each cable.
//!
//! RDMA needs one too: macOS puts the row into the device's GID table that JACCL and pomar look for (`::ffff:a.b.c.d`)
//! when the interface has an IPv4 address. The address that macOS gives itself (169.254.x.y) makes that row as well, but
//! comes minutes after a restart and differs each time.

use crate::{Cabling, Host, Network};
use std::net::Ipv4Addr;

/// Where new addresses are taken from, a /30 for each cable: a part of 10.0.0.0/8 that home routers do not use.
const POOL: Ipv4Addr = Ipv4Addr::new(10, 73, 0, 0);
/// Networks of four addresses in the pool, a /16.
const POOL_CABLES: u32 = 1 << 14;
/// Two hosts, the network's own address and its broadcast address.
const PREFIX: u8 = 30;

/// The addresses of a cable's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableAddresses {
    /// In the order of the cable's ends.
    pub ends: [Network; 2],
    /// True when the ends have these addresses already.
    pub kept: bool,
}

/// Addresses for every cable, in the order of the cables; nothing for a cable whose port is no interface.
///
/// A cable keeps its addresses when both ends are in one network that no other cable has. Others get the first networks
/// of the pool in which no host is yet.
pub(crate) fn plan(hosts: &[Host], cabling: &Cabling) -> Vec<Option<CableAddresses>> {
    let mut used: Vec<Network> = hosts.iter().flat_map(|host| host.networks.iter().copied()).collect();
    let mut kept: Vec<Network> = Vec::new();
    let mut planned = Vec::new();
    for cable in &cabling.cables {
        let addresses = cable.ends.map(|end| end.port(hosts).address);
        planned.push(match addresses {
            [Some(a), Some(b)] if lasts(a, b) && !kept.iter().any(|other| other.overlaps(a)) => {
                kept.push(a);
                Some(CableAddresses { ends: [a, b], kept: true })
            }
            _ => None,
        });
    }
    for (cable, planned) in cabling.cables.iter().zip(&mut planned) {
        let is_interface = cable.ends.iter().all(|&end| end.port(hosts).interface.is_some());
        if planned.is_none() && is_interface {
            *planned = new_addresses(&used);
            used.extend(planned.iter().map(|new| new.ends[0]));
        }
    }
    planned
}

fn lasts(a: Network, b: Network) -> bool {
    a.reaches(b) && !a.is_self_assigned()
}

fn new_addresses(used: &[Network]) -> Option<CableAddresses> {
    (0..POOL_CABLES).find_map(|index| {
        let first = POOL.to_bits() + 4 * index;
        let ends = [first + 1, first + 2].map(|bits| Network::new(Ipv4Addr::from_bits(bits), PREFIX));
        let [Some(a), Some(b)] = ends else { return None };
        (!used.iter().any(|other| other.overlaps(a))).then_some(CableAddresses { ends: [a, b], kept: false })
    })
}
