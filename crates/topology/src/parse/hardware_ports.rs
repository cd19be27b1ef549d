//! `networksetup -listallhardwareports`: the name that a port has on the case and in the settings, and the
//! interface that it is today.
//!
//! ```text
//! Hardware Port: Thunderbolt 2
//! Device: en3
//! Ethernet Address: 36:00:00:00:00:04
//! ```
//!
//! The interface's name can change at a restart; the port's does not.

use super::{MAX_ITEMS, ParseError, clean, name};

/// A port and its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwarePort {
    /// The port's name, such as `Thunderbolt 2` or `Wi-Fi`.
    pub port: String,
    /// The interface's name, such as `en3`.
    pub interface: String,
}

/// Reads the ports in the order of the list.
///
/// # Errors
///
/// There is no port at all: every Mac has one.
pub fn parse(text: &str) -> Result<Vec<HardwarePort>, ParseError> {
    let mut ports = Vec::new();
    let mut current = None;
    for line in text.lines().map(str::trim) {
        if let Some(port) = line.strip_prefix("Hardware Port:") {
            current = Some(clean(port));
        } else if let Some(device) = line.strip_prefix("Device:")
            && let Some(port) = current.take()
            && let Some(interface) = name(device.trim())
            && ports.len() < MAX_ITEMS
        {
            ports.push(HardwarePort { port, interface });
        }
    }
    if ports.is_empty() {
        return Err(ParseError::new("Hardware Port", "there is no such line followed by 'Device:'"));
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_a_usable_interface_is_left_out() {
        let text = "\
            \n\
            Hardware Port: Wi-Fi\n\
            Device: en0\n\
            \n\
            Hardware Port: Modem\n\
            \n\
            Hardware Port: Thunderbolt 1\n\
            Device: en5; rm\n\
            \n\
            Hardware Port: Thunderbolt 2\n\
            Device: en7\n\
            \n\
            VLAN Configurations\n\
            ====\n\
            ";
        let ports = parse(text).unwrap();
        let pairs: Vec<_> = ports.iter().map(|port| (port.port.as_str(), port.interface.as_str())).collect();
        assert_eq!(pairs, [("Wi-Fi", "en0"), ("Thunderbolt 2", "en7")]);
        assert!(parse("VLAN Configurations\n").is_err());
    }
}
