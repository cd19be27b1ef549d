//! Addresses of RDMA ports.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

/// A port's global identifier: 16 bytes in network order, the form of an IPv6 address. On Ethernet and Thunderbolt a
/// port has one for each IP address of its interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IPv4 address of an IPv4-mapped one (`::ffff:a.b.c.d`).
    #[must_use]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// True for the empty one.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_address_shows_its_four_numbers() {
        let gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1]);
        assert_eq!(gid.to_string(), "::ffff:10.77.0.1");
        assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(10, 77, 0, 1)));
    }

    #[test]
    fn a_link_local_address_has_no_ipv4() {
        let mut bytes = [0; 16];
        (bytes[0], bytes[1], bytes[15]) = (0xfe, 0x80, 1);
        assert_eq!(Gid(bytes).ipv4(), None);
        assert_eq!(Gid(bytes).to_string(), "fe80::1");
        assert!(!Gid(bytes).is_zero() && Gid::default().is_zero());
    }
}
