//! Addresses as people write them: with or without a port, and with the interface's name where one is needed.

use std::{
    ffi::{CStr, CString},
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
};

/// Text that is not an address to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No address at all.
    #[error(
        "\"{0}\" is not an IP address; write 10.0.0.2, 10.0.0.2:7000, fe80::1%eth0 or [fe80::1%eth0]:7000"
    )]
    Syntax(String),
    /// A link-local address means nothing without the link.
    #[error("{0} exists once per interface; say which interface of this machine leads to it, as in {0}%eth0")]
    NoInterface(Ipv6Addr),
    /// This machine has no such interface.
    #[error("\"{text}\": this machine has no interface {name}; `ip link` or `ifconfig` lists them")]
    UnknownInterface {
        /// The whole address.
        text: String,
        /// The interface's name in it.
        name: String,
    },
}

/// Reads an address with or without a port; `port` is taken where the text has none. A link-local IPv6 address names the
/// interface that leads to it (RFC 4007): `fe80::1%eth0`, `[fe80::1%eth0]:7000`. An interface's number does, too.
///
/// # Errors
/// [`AddressError`], saying what to write instead.
pub fn parse_address(text: &str, port: u16) -> Result<SocketAddr, AddressError> {
    let syntax = || AddressError::Syntax(text.to_owned());
    let (host, stated) = split_port(text).ok_or_else(syntax)?;
    let port = stated.map_or(Ok(port), |port| port.parse().map_err(|_| syntax()))?;
    let (ip, scope) = split_interface(text, host)?;
    match ip.parse().map_err(|_| syntax())? {
        IpAddr::V4(_) if scope.is_some() => Err(syntax()),
        IpAddr::V4(ip) => Ok(SocketAddr::from((ip, port))),
        IpAddr::V6(ip) if scope.is_none() && ip.is_unicast_link_local() => Err(AddressError::NoInterface(ip)),
        IpAddr::V6(ip) => Ok(SocketAddrV6::new(ip, port, 0, scope.unwrap_or(0)).into()),
    }
}

/// Host and port, if there is one. An address with several colons has a port only after brackets.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Some((host, Some(port))),
        _ => Some((text, None)),
    }
}

/// The address without its interface, and that interface's number on this machine, which is never 0. `text` is the
/// whole, for the error.
pub(crate) fn split_interface<'t>(text: &str, host: &'t str) -> Result<(&'t str, Option<u32>), AddressError> {
    let Some((ip, name)) = host.split_once('%') else { return Ok((host, None)) };
    let number = interface_number(name).or_else(|| name.parse().ok()).filter(|number| *number != 0);
    let unknown = || AddressError::UnknownInterface { text: text.to_owned(), name: name.to_owned() };
    Ok((ip, Some(number.ok_or_else(unknown)?)))
}

fn interface_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a string that ends with 0 and outlives the call.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (number != 0).then_some(number)
}

/// The name of the interface with this number, while it exists.
pub(crate) fn interface_name(number: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the call writes a string that ends with 0 into the IF_NAMESIZE bytes that it demands, or returns null.
    let found = unsafe { libc::if_indextoname(number, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: as just said, `name` holds a string that ends with 0, and outlives this borrow.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// An address as [`parse_address`] reads it, with the interface's name.
#[must_use]
pub fn address_text(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => match interface_name(v6.scope_id()) {
            Some(name) => format!("[{}%{name}]:{}", v6.ip(), v6.port()),
            None => address.to_string(),
        },
        _ => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback interface: "lo" on Linux, "lo0" on macOS.
    const LOOPBACK: &str = if cfg!(target_os = "linux") { "lo" } else { "lo0" };

    fn parsed(text: &str) -> String {
        parse_address(text, 9).unwrap().to_string()
    }

    #[test]
    fn ports_are_optional() {
        assert_eq!(parsed("10.0.0.2"), "10.0.0.2:9");
        assert_eq!(parsed("10.0.0.2:7000"), "10.0.0.2:7000");
        assert_eq!(parsed("2001:db8::5"), "[2001:db8::5]:9");
        assert_eq!(parsed("[2001:db8::5]"), "[2001:db8::5]:9");
        assert_eq!(parsed("[2001:db8::5]:7000"), "[2001:db8::5]:7000");
        assert_eq!(parsed("::1"), "[::1]:9");
    }

    #[test]
    fn an_interface_has_a_name_or_a_number() {
        let number = interface_number(LOOPBACK).unwrap();
        for zone in [LOOPBACK.to_owned(), number.to_string()] {
            let address = parse_address(&format!("[fe80::1%{zone}]:7000"), 9).unwrap();
            assert_eq!(address, SocketAddrV6::new("fe80::1".parse().unwrap(), 7000, 0, number).into());
            assert_eq!(address_text(&address), format!("[fe80::1%{LOOPBACK}]:7000"));
            assert_eq!(parse_address(&address_text(&address), 9), Ok(address));
            assert_eq!(parse_address(&format!("fe80::1%{zone}"), 7000), Ok(address));
        }
        // Nobody has four billion interfaces.
        let gone = SocketAddrV6::new("fe80::1".parse().unwrap(), 7000, 0, u32::MAX).into();
        assert_eq!(address_text(&gone), "[fe80::1%4294967295]:7000");
    }

    #[test]
    fn each_mistake_has_its_error() {
        for text in [
            "",
            "node1",
            "10.0.0",
            "10.0.0.2:",
            "10.0.0.2:70000",
            "[::1",
            "[::1]7",
            "[::1]:x",
            ":::",
            "1:2:3",
        ] {
            assert_eq!(parse_address(text, 9), Err(AddressError::Syntax(text.into())), "{text}");
        }
        assert_eq!(
            parse_address(&format!("10.0.0.2%{LOOPBACK}"), 9),
            Err(AddressError::Syntax(format!("10.0.0.2%{LOOPBACK}")))
        );
        assert_eq!(
            parse_address("fe80::1", 9).unwrap_err().to_string(),
            "fe80::1 exists once per interface; say which interface of this machine leads to it, as in fe80::1%eth0"
        );
        for name in ["nosuch0", "0", ""] {
            let error = parse_address(&format!("[fe80::1%{name}]:7"), 9).unwrap_err();
            assert!(
                matches!(&error, AddressError::UnknownInterface { name: n, .. } if n == name),
                "{name}: {error}"
            );
        }
    }
}
