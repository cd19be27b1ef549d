//! What is different from an earlier recording.
//!
//! Hosts are compared by name, ports by the number on the case, and cables by the domains of their ends, all
//! of which last. Interfaces are what may have changed: they are the thing to look for after a restart.

use crate::{Cable, Cabling, Host, Port};
use std::collections::BTreeMap;

/// The differences, a sentence each.
pub(crate) fn changes(before: &[Host], now: &[Host]) -> Vec<String> {
    let mut changes = Vec::new();
    for host in now {
        match before.iter().find(|other| other.name == host.name) {
            Some(other) => host_changes(other, host, &mut changes),
            None => changes.push(format!("{} is not in the earlier recording", host.name)),
        }
    }
    cable_changes(before, now, &mut changes);
    changes
}

fn host_changes(before: &Host, now: &Host, changes: &mut Vec<String>) {
    if before.system != now.system {
        changes.push(format!("{}: {} became {}", now.name, before.system, now.system));
    }
    for port in now.ports.iter().filter(|port| port.receptacle.is_some()) {
        let other = before.ports.iter().find(|other| other.receptacle == port.receptacle);
        if let Some(other) = other.filter(|other| other.interface != port.interface) {
            let name = |port: &Port| port.interface.clone().unwrap_or_else(|| "no interface".into());
            let number = port.receptacle.as_deref().unwrap_or("?");
            changes.push(format!(
                "{} port {number}: {} became {}; hostfiles from before name the wrong device",
                now.name,
                name(other),
                name(port)
            ));
        }
    }
}

fn cable_changes(before: &[Host], now: &[Host], changes: &mut Vec<String>) {
    let (cabling_before, cabling_now) = (Cabling::of(before), Cabling::of(now));
    let (old, new) = (by_domains(before, &cabling_before), by_domains(now, &cabling_now));
    for (domains, cable) in &new {
        let place = cable.places(now);
        match old.get(domains) {
            None => changes.push(format!("new cable: {place}")),
            Some(other) => {
                let [was, is] = [other.speed(before), cable.speed(now)];
                if was != is {
                    changes.push(format!("{place}: {was} became {is}"));
                }
            }
        }
    }
    for (_, cable) in old.iter().filter(|(domains, _)| !new.contains_key(*domains)) {
        changes.push(format!("cable gone: {}", cable.places(before)));
    }
}

fn by_domains<'a>(hosts: &'a [Host], cabling: &'a Cabling) -> BTreeMap<[Option<&'a str>; 2], &'a Cable> {
    let domains = |cable: &Cable| {
        let mut domains = cable.ends.map(|end| end.port(hosts).domain.as_deref());
        domains.sort_unstable();
        domains
    };
    cabling.cables.iter().map(|cable| (domains(cable), cable)).collect()
}
