//! An address that ranks listen on.

use serde::Serialize;
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

/// Longest host name that DNS allows, in bytes (RFC 1035, 2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// An IPv4 address, an IPv6 address with or without a zone (`fe80::1%en5`), or a host name; never with a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// True for IPv6 addresses.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.0.contains(':')
    }

    /// True for addresses, and for the name, that no other machine can reach.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.0 == "localhost" || self.0.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// True for an address in digits that has one spelling only, so that it can be looked for in a list.
    pub(crate) fn is_plain_ip(&self) -> bool {
        self.0.parse::<IpAddr>().is_ok()
    }

    /// The address as text, IPv6 without brackets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `address:port`, with brackets around IPv6.
    #[must_use]
    pub fn with_port(&self, port: u16) -> String {
        if self.is_ipv6() { format!("[{}]:{port}", self.0) } else { format!("{}:{port}", self.0) }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self(ip.to_string())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Address {
    type Err = String;

    /// # Errors
    /// What is wrong with the text, as the end of a sentence that begins with it.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(ip.into());
        }
        if let Some((ip, zone)) = text.split_once('%') {
            let ip: Ipv6Addr = ip.parse().map_err(|_| "is no IPv6 address before its %")?;
            let good = (1..=32).contains(&zone.len()) && zone.bytes().all(is_name_byte);
            return if good {
                Ok(Self(format!("{ip}%{zone}")))
            } else {
                Err("has a bad zone after its %".into())
            };
        }
        if text.contains(':') || text.contains('[') {
            return Err("is no address (give it without port and brackets; ports are counted up from \
                        --starting-port)"
                .into());
        }
        let last_label = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
        let named = (1..=MAX_NAME_BYTES).contains(&text.len())
            && text.bytes().all(is_name_byte)
            && !text.starts_with(['-', '.'])
            && !last_label.bytes().all(|byte| byte.is_ascii_digit());
        if named { Ok(Self(text.into())) } else { Err("is neither an IP address nor a host name".into()) }
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_take_ports() {
        let cases = [
            ("10.0.0.1", "10.0.0.1:5"),
            ("FE80:0::1%en5", "[fe80::1%en5]:5"),
            ("::1", "[::1]:5"),
            ("studio.local", "studio.local:5"),
        ];
        for (text, with_port) in cases {
            assert_eq!(text.parse::<Address>().unwrap().with_port(5), with_port);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["", "10.0.0.256", "10.0.0.1:5000", "[::1]", "a b", "-a", "fe80::1%", "fe80::1%a/b", "x;y"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
