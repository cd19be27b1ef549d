//! `ifconfig -a` on a Mac: addresses, and who is a member of which bridge.
//!
//! ```text
//! en3: flags=8963<UP,BROADCAST,...> mtu 1500
//!         inet 10.73.0.1 netmask 0xfffffffc broadcast 10.73.0.3
//! bridge0: flags=8863<UP,...> mtu 1500
//!         member: en2 flags=3<LEARNING,DISCOVER>
//! ```

use super::{MAX_ITEMS, name};
use crate::Network;
use std::net::Ipv4Addr;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its IPv4 addresses, the primary one first.
    pub addresses: Vec<Network>,
    /// The interfaces that it joins, when it is a bridge.
    pub members: Vec<String>,
}

/// Reads the interfaces in the order of the list; text without any has none.
pub fn parse(text: &str) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for line in text.lines() {
        if !line.starts_with([' ', '\t']) {
            if let Some(interface) = line.split_once(": flags=").and_then(|(before, _)| name(before)) {
                if interfaces.len() == MAX_ITEMS {
                    break;
                }
                interfaces.push(Interface { name: interface, addresses: Vec::new(), members: Vec::new() });
            }
        } else if let Some(interface) = interfaces.last_mut() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("inet") if interface.addresses.len() < MAX_ITEMS => {
                    interface.addresses.extend(address(words));
                }
                Some("member:") if interface.members.len() < MAX_ITEMS => {
                    interface.members.extend(words.next().and_then(name));
                }
                _ => {}
            }
        }
    }
    interfaces
}

/// `10.73.0.1 netmask 0xfffffffc ...`; an address without a mask stands alone (/32).
fn address<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Network> {
    let address: Ipv4Addr = words.next()?.parse().ok()?;
    let mut words = words.skip_while(|&word| word != "netmask").skip(1);
    let Some(mask) = words.next() else { return Network::new(address, 32) };
    let mask = u32::from_str_radix(mask.strip_prefix("0x")?, 16).ok()?;
    Network::with_mask(address, Ipv4Addr::from_bits(mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_members_are_found() {
        let text = "\
            lo0: flags=8049<UP> mtu 16384\n\
            \tinet 127.0.0.1 netmask 0xff000000\n\
            en3: flags=8863<UP> mtu 1500\n\
            \tinet6 fe80::1%en3 prefixlen 64\n\
            \tinet 10.73.0.1 netmask 0xfffffffc broadcast 10.73.0.3\n\
            \tinet 10.1.1.1 netmask nonsense\n\
            bridge0: flags=8863<UP> mtu 1500\n\
            \tConfiguration:\n\
            \t\tid 0:0:0:0:0:0\n\
            \tmember: en2 flags=3<LEARNING,DISCOVER>\n\
            \t\t\tifmaxaddr 0 port 5\n\
            \tmember: en4 flags=3<LEARNING,DISCOVER>\n\
            utun0: flags=8051<UP> mtu 2000\n\
            \tinet 100.64.0.1 --> 100.64.0.1\n\
            ";
        let interfaces = parse(text);
        let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        assert_eq!(names, ["lo0", "en3", "bridge0", "utun0"]);
        assert_eq!(interfaces[1].addresses, [Network::new([10, 73, 0, 1].into(), 30).unwrap()]);
        assert_eq!(interfaces[2].members, ["en2", "en4"]);
        assert_eq!(interfaces[3].addresses[0].to_string(), "100.64.0.1/32");
    }
}
