//! `networksetup -listnetworkserviceorder`: the services, which keep an interface's settings across restarts.
//!
//! ```text
//! (1) Thunderbolt Bridge
//! (Hardware Port: Thunderbolt Bridge, Device: bridge0)
//!
//! (*) Thunderbolt 2
//! (Hardware Port: Thunderbolt 2, Device: en3)
//! ```

use super::{MAX_ITEMS, clean};

/// A network service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name, chosen by the user.
    pub name: String,
    /// The port that it belongs to, such as `Thunderbolt 2`.
    pub port: String,
    /// False for `(*)`.
    pub enabled: bool,
}

/// Reads the services; text without any has none.
pub fn parse(text: &str) -> Vec<Service> {
    let mut services = Vec::new();
    let mut heading = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("(Hardware Port:") {
            if let Some((name, enabled)) = heading.take()
                && let Some((port, _)) = rest.rsplit_once(", Device:")
            {
                services.push(Service { name, port: clean(port), enabled });
            }
        } else {
            heading = numbered(line);
        }
        if services.len() == MAX_ITEMS {
            break;
        }
    }
    services
}

/// `(1) Name`, or `(*) Name` for a service that is turned off.
fn numbered(line: &str) -> Option<(String, bool)> {
    let (number, name) = line.strip_prefix('(')?.split_once(')')?;
    let enabled = number != "*";
    let is_number = !enabled || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    is_number.then(|| (clean(name), enabled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_are_off_are_known_as_such() {
        let text = "\
            An asterisk (*) denotes that a network service is disabled.\n\
            (1) Wi-Fi\n\
            (Hardware Port: Wi-Fi, Device: en0)\n\
            \n\
            (*) My (fast) link\n\
            (Hardware Port: Thunderbolt Ethernet Slot 1, Port 1, Device: en10)\n\
            ";
        let services = parse(text);
        assert_eq!(services[0], Service { name: "Wi-Fi".into(), port: "Wi-Fi".into(), enabled: true });
        assert_eq!((services[1].name.as_str(), services[1].enabled), ("My (fast) link", false));
        assert_eq!(services[1].port, "Thunderbolt Ethernet Slot 1, Port 1");
    }
}
