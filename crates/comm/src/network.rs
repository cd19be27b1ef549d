//! Ranges of addresses: the networks that a caller trusts.

use crate::address::{AddressError, interface_name, split_interface};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// A range of IP addresses, written `10.7.0.0/24`, `fd00:7::/64` or, for what one interface leads to,
/// `fe80::%en5/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    prefix: u8,
    /// Number of the only interface that counts; 0 for any.
    scope: u32,
}

/// Text that is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// No range at all.
    #[error(
        "\"{0}\" is not a range of addresses; write an address and the number of its bits that count, \
         such as 10.7.0.0/24, fd00:7::/64 or fe80::%en5/64"
    )]
    Syntax(String),
    /// The range names an interface that does not exist.
    #[error(transparent)]
    Interface(AddressError),
}

impl IpNetwork {
    /// The addresses whose first `prefix` bits are those of `address`; `None` when it does not have so many.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        (u32::from(prefix) <= bits).then_some(Self { address, prefix, scope: 0 })
    }

    /// Whether `address` lies in the range.
    #[must_use]
    pub fn contains(&self, address: &SocketAddr) -> bool {
        let scope = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
        if self.scope != 0 && self.scope != scope {
            return false;
        }
        match (self.address, address.ip().to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = u32::from(own) ^ u32::from(other);
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = u128::from(own) ^ u128::from(other);
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for IpNetwork {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let syntax = || NetworkError::Syntax(text.to_owned());
        let (host, prefix) = text.split_once('/').ok_or_else(syntax)?;
        let (ip, scope) = split_interface(text, host).map_err(NetworkError::Interface)?;
        let ip: IpAddr = ip.parse().map_err(|_| syntax())?;
        if ip.is_ipv4() && scope.is_some() {
            return Err(syntax());
        }
        let network = Self::new(ip, prefix.parse().map_err(|_| syntax())?).ok_or_else(syntax)?;
        Ok(Self { scope: scope.unwrap_or(0), ..network })
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.scope != 0 {
            match interface_name(self.scope) {
                Some(name) => write!(f, "%{name}")?,
                None => write!(f, "%{}", self.scope)?,
            }
        }
        write!(f, "/{}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddrV6;

    fn holds(network: &str, address: &str) -> bool {
        let address = SocketAddr::new(address.parse().unwrap(), 7);
        network.parse::<IpNetwork>().unwrap().contains(&address)
    }

    #[test]
    fn the_first_bits_decide() {
        assert!(holds("10.7.0.0/24", "10.7.0.255"));
        assert!(!holds("10.7.0.0/24", "10.7.1.0"));
        assert!(holds("10.7.0.5/32", "10.7.0.5") && !holds("10.7.0.5/32", "10.7.0.4"));
        assert!(holds("0.0.0.0/0", "192.0.2.1") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("fd00:7::/64", "fd00:7::1:2:3:4") && !holds("fd00:7::/64", "fd00:7:0:1::"));
        assert!(holds("10.7.0.0/24", "::ffff:10.7.0.1"), "as a socket for both families says it");
    }

    #[test]
    fn a_link_local_range_may_be_that_of_one_interface() {
        let network: IpNetwork = "fe80::%7/64".parse().unwrap();
        let at = |scope| SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, scope).into();
        assert!(network.contains(&at(7)) && !network.contains(&at(8)));
        let anywhere: IpNetwork = "fe80::/64".parse().unwrap();
        assert!(anywhere.contains(&at(7)) && anywhere.contains(&at(8)));
    }

    #[test]
    fn what_is_no_range_is_an_error() {
        for text in ["10.7.0.0", "10.7.0.0/33", "fd00::/129", "10.7/16", "/8", "10.7.0.0/x", "10.7.0.0%1/8"] {
            assert_eq!(text.parse::<IpNetwork>(), Err(NetworkError::Syntax(text.into())), "{text}");
        }
        assert!(matches!("fe80::%nosuch0/64".parse::<IpNetwork>(), Err(NetworkError::Interface(_))));
    }

    #[test]
    fn a_range_is_written_as_it_is_read() {
        for text in ["10.7.0.0/24", "fd00:7::/64"] {
            assert_eq!(text.parse::<IpNetwork>().unwrap().to_string(), text);
        }
    }
}
