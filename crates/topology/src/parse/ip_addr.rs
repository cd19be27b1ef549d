//! `ip -j addr` on Linux: a list of interfaces with `ifname` and `addr_info` (`family`, `local`,
//! `prefixlen`).

use super::{MAX_ITEMS, ParseError, ifconfig::Interface, name};
use crate::Network;
use serde_json::Value;

/// Reads the interfaces in the order of the list.
///
/// # Errors
///
/// The text is no JSON list.
pub fn parse(text: &str) -> Result<Vec<Interface>, ParseError> {
    let document: Value =
        serde_json::from_str(text).map_err(|error| ParseError::new("JSON", error.to_string()))?;
    let list = document.as_array().ok_or_else(|| ParseError::new("JSON", "is no list of interfaces"))?;
    Ok(list.iter().filter_map(interface).take(MAX_ITEMS).collect())
}

fn interface(value: &Value) -> Option<Interface> {
    let addresses = value.get("addr_info").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    Some(Interface {
        name: name(value.get("ifname")?.as_str()?)?,
        addresses: addresses.iter().filter_map(address).take(MAX_ITEMS).collect(),
        members: Vec::new(),
    })
}

fn address(value: &Value) -> Option<Network> {
    if value.get("family")?.as_str()? != "inet" {
        return None;
    }
    let prefix = u8::try_from(value.get("prefixlen")?.as_u64()?).ok()?;
    Network::new(value.get("local")?.as_str()?.parse().ok()?, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ipv4_counts() {
        let text = r#"[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
            {"ifname":"enp1s0","addr_info":[{"family":"inet6","local":"fe80::1","prefixlen":64},
            {"family":"inet","local":"10.0.0.7","prefixlen":24},
            {"family":"inet","local":"x","prefixlen":24}]}, 7]"#;
        let interfaces = parse(text).unwrap();
        assert_eq!(interfaces.len(), 2);
        assert_eq!(interfaces[1].addresses, [Network::new([10, 0, 0, 7].into(), 24).unwrap()]);
        assert!(parse("{}").is_err() && parse("[").is_err());
    }
}
