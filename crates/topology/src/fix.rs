//! The commands that set the cables up, for the user to run. Nothing here runs anything.
//!
//! Each command has the one that undoes it. There are two forms: `ifconfig` changes the running system and is
//! forgotten at the next restart; `networksetup` changes the settings and lasts. No comments stand on the
//! lines, since zsh, the shell of macOS, takes them for arguments when a line is pasted.

use crate::{CableAddresses, Cabling, End, Host, Network, parse::services::Service};
use serde::Serialize;

/// What to run on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// The host.
    pub host: String,
    /// In order; forgotten at the next restart.
    pub until_restart: Vec<Step>,
    /// In order; these last.
    pub lasting: Vec<Step>,
}

/// A command and the one that undoes it. Steps are undone in the opposite order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The command line.
    pub run: String,
    /// The command line that takes it back.
    pub undo: String,
}

/// Commands for every host that needs some.
pub(crate) fn fixes(hosts: &[Host], cabling: &Cabling, addresses: &[Option<CableAddresses>]) -> Vec<Fix> {
    let fixes = (0..hosts.len()).map(|host| fix(hosts, host, cabling, addresses));
    fixes.filter(|fix| !fix.until_restart.is_empty()).collect()
}

fn fix(hosts: &[Host], host: usize, cabling: &Cabling, addresses: &[Option<CableAddresses>]) -> Fix {
    let mut fix = Fix { host: hosts[host].name.clone(), until_restart: Vec::new(), lasting: Vec::new() };
    let mut bridge_service = hosts[host].bridge_service.as_deref();
    for (cable, addresses) in cabling.cables.iter().zip(addresses) {
        let (Some(end), Some(addresses)) = (cable.end_at(host), addresses) else { continue };
        leave_bridge(hosts, end, bridge_service, &mut fix);
        if end.port(hosts).bridge.is_some() {
            // The service is turned off once for all ports.
            bridge_service = None;
        }
        let address = addresses.ends[usize::from(cable.ends[1] == end)];
        if end.port(hosts).address != Some(address) {
            set_address(hosts, end, address, &mut fix);
        }
    }
    fix
}

fn leave_bridge(hosts: &[Host], end: End, bridge_service: Option<&str>, fix: &mut Fix) {
    let port = end.port(hosts);
    let (Some(bridge), Some(interface)) = (&port.bridge, &port.interface) else { return };
    fix.until_restart.push(Step {
        run: format!("sudo ifconfig {bridge} deletem {interface}"),
        undo: format!("sudo ifconfig {bridge} addm {interface}"),
    });
    if let Some(service) = bridge_service {
        fix.lasting.push(enabled(service, false));
    }
}

fn set_address(hosts: &[Host], end: End, address: Network, fix: &mut Fix) {
    let port = end.port(hosts);
    let (Some(interface), Some(hardware)) = (&port.interface, port.hardware_name()) else { return };
    let inet = |network: Network| format!("inet {} netmask {}", network.address(), network.mask());
    fix.until_restart.push(Step {
        run: format!("sudo ifconfig {interface} {} up", inet(address)),
        undo: match port.address {
            Some(before) => format!("sudo ifconfig {interface} {}", inet(before)),
            None => format!("sudo ifconfig {interface} inet {} delete", address.address()),
        },
    });
    let service = match &port.service {
        Some(Service { name, enabled: true, .. }) => name.clone(),
        Some(Service { name, enabled: false, .. }) => {
            fix.lasting.push(enabled(name, true));
            name.clone()
        }
        None => {
            let name = quoted(&hardware);
            fix.lasting.push(Step {
                run: format!("sudo networksetup -createnetworkservice {name} {name}"),
                undo: format!("sudo networksetup -removenetworkservice {name}"),
            });
            hardware
        }
    };
    let manual = |network: Network| {
        format!("sudo networksetup -setmanual {} {} {}", quoted(&service), network.address(), network.mask())
    };
    fix.lasting.push(Step {
        run: manual(address),
        undo: match port.address.filter(|before| !before.is_self_assigned()) {
            Some(before) => manual(before),
            None => format!("sudo networksetup -setdhcp {}", quoted(&service)),
        },
    });
}

fn enabled(service: &str, on: bool) -> Step {
    let line = |on: bool| {
        format!(
            "sudo networksetup -setnetworkserviceenabled {} {}",
            quoted(service),
            if on { "on" } else { "off" }
        )
    };
    Step { run: line(on), undo: line(!on) }
}

/// A name as one word for every shell. Names come from another machine, so nothing in them may end the
/// quotes.
fn quoted(name: &str) -> String {
    format!("'{}'", name.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_name_leaves_its_quotes() {
        assert_eq!(super::quoted("Thunderbolt 1"), "'Thunderbolt 1'");
        assert_eq!(super::quoted("x'; rm -rf ~; '"), r"'x'\''; rm -rf ~; '\'''");
    }
}
