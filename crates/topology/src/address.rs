//! An IPv4 address for each end of each cable.
//!
//! RDMA needs one too: macOS puts the row into the device's GID table that JACCL and pomar look for
//! (`::ffff:a.b.c.d`) when the interface has an IPv4 address. The address that macOS gives itself
//! (169.254.x.y) makes that row as well, but comes minutes after a restart and differs each time.

use crate::{Cable, Cabling, Host, Network};
use std::net::Ipv4Addr;

/// Where new addresses are taken from, a /30 for each cable: parts of the private ranges (RFC 1918),
/// beginning with one that home routers do not use.
const POOLS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 73, 0, 0), Ipv4Addr::new(172, 29, 0, 0), Ipv4Addr::new(192, 168, 0, 0)];
/// Cables for which a pool, a /16, has addresses.
const POOL_CABLES: u32 = 1 << 14;
/// Two hosts, the network's own address and its broadcast address.
const PREFIX: u8 = 30;

/// The addresses that a cable's ends should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableAddresses {
    /// In the order of the cable's ends.
    pub ends: [Network; 2],
    /// True when the ends have these addresses already.
    pub kept: bool,
}

/// Addresses for every cable, in the order of the cables; nothing for a cable whose port is no interface, or
/// when all pools are in use.
///
/// A cable keeps its addresses when both ends are in one network that no other cable has. If one end has an
/// address out of a /30, the other end gets the second one. Others get the first networks of the pools in
/// which no host is yet.
pub(crate) fn plan(hosts: &[Host], cabling: &Cabling) -> Vec<Option<CableAddresses>> {
    let mut used: Vec<Network> = hosts.iter().flat_map(|host| host.networks.iter().copied()).collect();
    let mut taken: Vec<Network> = Vec::new();
    let mut planned: Vec<Option<CableAddresses>> = Vec::new();
    for cable in &cabling.cables {
        let own = existing(hosts, cable).filter(|own| !taken.iter().any(|other| other.overlaps(own.ends[0])));
        taken.extend(own.iter().map(|own| own.ends[0]));
        planned.push(own);
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

/// The addresses that a cable has, completed when one end has none that lasts.
fn existing(hosts: &[Host], cable: &Cable) -> Option<CableAddresses> {
    let lasting = |address: &Network| !address.is_self_assigned();
    let [a, b] = cable.ends.map(|end| end.port(hosts).address.filter(lasting));
    let ends = match (a, b) {
        (Some(a), Some(b)) => [a, b],
        (Some(a), None) => [a, partner(a)?],
        (None, Some(b)) => [partner(b)?, b],
        (None, None) => return None,
    };
    let is_interface = cable.ends.iter().all(|&end| end.port(hosts).interface.is_some());
    (is_interface && ends[0].reaches(ends[1]))
        .then_some(CableAddresses { ends, kept: a.is_some() && b.is_some() })
}

/// The other host's address in a /30.
fn partner(address: Network) -> Option<Network> {
    let bits = address.address().to_bits();
    let other = Network::new(Ipv4Addr::from_bits(bits ^ 3), PREFIX)?;
    (matches!(bits & 3, 1 | 2) && address.reaches(other)).then_some(other)
}

fn new_addresses(used: &[Network]) -> Option<CableAddresses> {
    let starts = POOLS.iter().flat_map(|pool| (0..POOL_CABLES).map(|index| pool.to_bits() + 4 * index));
    let network = |bits: u32| Network::new(Ipv4Addr::from_bits(bits), PREFIX);
    let pairs = starts.filter_map(|start| Some([network(start + 1)?, network(start + 2)?]));
    let free = |ends: &[Network; 2]| !used.iter().any(|other| other.overlaps(ends[0]));
    pairs.into_iter().find(free).map(|ends| CableAddresses { ends, kept: false })
}
