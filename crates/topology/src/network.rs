//! An IPv4 address with the network around it.

use serde::{Serialize, Serializer};
use std::{fmt, net::Ipv4Addr};

/// An address and its prefix length, such as `10.73.0.1/30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: Ipv4Addr,
    prefix: u8,
}

impl Network {
    /// An address in a network of `prefix` fixed bits; nothing for more than 32 bits.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        (prefix <= 32).then_some(Self { address, prefix })
    }

    /// The same from a mask such as 255.255.255.252; nothing when its ones are not at the front.
    pub fn with_mask(address: Ipv4Addr, mask: Ipv4Addr) -> Option<Self> {
        let (bits, prefix) = (mask.to_bits(), mask.to_bits().leading_ones());
        (bits.count_ones() == prefix).then_some(Self { address, prefix: prefix as u8 })
    }

    /// The address.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The mask, such as 255.255.255.252.
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }

    /// True when some address is in both networks.
    pub fn overlaps(self, other: Self) -> bool {
        let common = self.mask().to_bits() & other.mask().to_bits();
        self.address.to_bits() & common == other.address.to_bits() & common
    }

    /// True when the two are different addresses of one network.
    pub fn reaches(self, other: Self) -> bool {
        self.prefix == other.prefix && self.address != other.address && self.overlaps(other)
    }

    /// True for 169.254.0.0/16, which a machine gives itself when nobody else does (RFC 3927).
    pub fn is_self_assigned(self) -> bool {
        self.address.is_link_local()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.address, self.prefix))
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: [u8; 4], prefix: u8) -> Network {
        Network::new(address.into(), prefix).unwrap()
    }

    #[test]
    fn masks_and_prefixes_are_the_same_thing() {
        assert_eq!(network([10, 73, 0, 1], 30).mask(), Ipv4Addr::new(255, 255, 255, 252));
        assert_eq!(network([10, 73, 0, 1], 0).mask(), Ipv4Addr::UNSPECIFIED);
        let mask = Ipv4Addr::new(255, 255, 254, 0);
        assert_eq!(Network::with_mask([10, 0, 0, 1].into(), mask), Network::new([10, 0, 0, 1].into(), 23));
        assert_eq!(Network::with_mask([10, 0, 0, 1].into(), Ipv4Addr::new(255, 0, 255, 0)), None);
        assert_eq!(Network::new([10, 0, 0, 1].into(), 33), None);
    }

    #[test]
    fn networks_overlap_when_the_wider_one_holds_the_other() {
        let (a, b) = (network([10, 73, 0, 1], 30), network([10, 73, 0, 2], 30));
        assert!(a.reaches(b) && !a.reaches(a));
        assert!(!a.overlaps(network([10, 73, 0, 5], 30)));
        assert!(a.overlaps(network([10, 0, 0, 1], 8)) && network([0, 0, 0, 0], 0).overlaps(a));
    }
}
