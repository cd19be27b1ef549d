//! Findings about single cables.

use super::{Check, Level, Subject};
use crate::{
    Cable, CableAddresses, End, Host,
    cabling::places,
    rdma::{CableObstacle, HostObstacle, RDMA_GBPS, fastest_port},
};

/// Where an address is missing or unsuitable, the commands set one.
const HINT_COMMANDS: &str = "the commands for that host change it";

/// JACCL and pomar look for the row of an IPv4 address.
const WHY_ADDRESS: &str = "without which there is no GID row for RDMA";

pub(super) fn checks(subject: &Subject<'_>) -> Vec<Check> {
    let hosts = &subject.survey.hosts;
    let mut checks = Vec::new();
    for (cable, addresses) in subject.cabling.cables.iter().zip(subject.addresses) {
        checks.extend(one_sided(hosts, cable));
        checks.extend(obstacles(subject, cable));
        checks.extend(cable.ends.iter().filter_map(|&end| in_bridge(hosts, end)));
        checks.extend(addresses.iter().filter_map(|addresses| address(hosts, cable, addresses)));
    }
    checks.extend(subject.cabling.strangers.iter().map(|(end, peer)| {
        let which = if subject.survey.unread.is_empty() { "the hosts" } else { "the hosts that answered" };
        let text = format!("{} leads to '{peer}', which is not among {which}", end.place(hosts));
        Check::new(Level::Note, "stranger", [&hosts[end.host].name], text)
    }));
    checks.extend(subject.cabling.loops.iter().map(|&ends| {
        let text = format!("{} is a cable from a host to itself", places(hosts, ends));
        Check::new(Level::Note, "loop", [&hosts[ends[0].host].name], text)
    }));
    checks
}

fn about(level: Level, code: &'static str, hosts: &[Host], cable: &Cable, text: String) -> Check {
    Check::new(level, code, cable.ends.iter().map(|end| &hosts[end.host].name), text)
}

fn one_sided(hosts: &[Host], cable: &Cable) -> Option<Check> {
    let text = || format!("{}: only one end sees the other", cable.places(hosts));
    let check = || about(Level::Warning, "one-sided", hosts, cable, text());
    (!cable.seen_by_both).then(|| check().hint("wait a moment and ask again; then plug the cable in anew"))
}

fn obstacles(subject: &Subject<'_>, cable: &Cable) -> Vec<Check> {
    let hosts = &subject.survey.hosts;
    let check = |obstacle: CableObstacle| {
        let (code, hint) = finding(hosts, cable, &obstacle)?;
        let text = format!("{}: {}", cable.places(hosts), obstacle.text(hosts));
        Some(about(subject.rdma_level(), code, hosts, cable, text).hint(hint))
    };
    CableObstacle::of(hosts, cable).into_iter().filter_map(check).collect()
}

/// Code and hint for what is the cable's own fault; what a host lacks is said once, about the host.
fn finding(hosts: &[Host], cable: &Cable, obstacle: &CableObstacle) -> Option<(&'static str, String)> {
    match obstacle {
        // A dock explains the speed.
        CableObstacle::Slow { .. } if cable.through.is_some() => None,
        CableObstacle::Slow { .. } => Some(("slow-cable", slow_hint(hosts, cable))),
        CableObstacle::Through(_) => Some(("dock", "plug the two machines together directly".into())),
        CableObstacle::NoInterface(_) => None,
        CableObstacle::NoDevice(end) if HostObstacle::of(&hosts[end.host]).is_some() => None,
        CableObstacle::NoDevice(_) => Some((
            "no-rdma-device",
            "plug the cable in anew, or restart that Mac; ibv_devices must list it".into(),
        )),
    }
}

/// Which of the two ends and the cable makes a link slow, as far as idle ports tell.
fn slow_hint(hosts: &[Host], cable: &Cable) -> String {
    let fastest = cable.ends.map(|end| fastest_port(&hosts[end.host]));
    let slow = cable.ends.iter().zip(fastest).find(|(_, gbps)| gbps.is_some_and(|gbps| gbps < RDMA_GBPS));
    match (slow, fastest) {
        (Some((end, _)), _) => format!("the ports of {} cannot do more", hosts[end.host].name),
        (None, [Some(_), Some(_)]) => {
            "both hosts have Thunderbolt 5 ports: use those at both ends, and a Thunderbolt 5 cable".into()
        }
        (None, _) => "a port or the cable is of Thunderbolt 4 or older".into(),
    }
}

fn in_bridge(hosts: &[Host], end: End) -> Option<Check> {
    let bridge = end.port(hosts).bridge.as_ref()?;
    let text = format!("{} is in the Thunderbolt bridge ({bridge})", end.place(hosts));
    Some(Check::new(Level::Warning, "in-bridge", [&hosts[end.host].name], text).hint(HINT_COMMANDS))
}

fn address(hosts: &[Host], cable: &Cable, addresses: &CableAddresses) -> Option<Check> {
    if addresses.kept {
        return None;
    }
    let own = |end: &&End| end.port(hosts).address.is_some_and(|address| address.is_self_assigned());
    let without: Vec<_> = cable.ends.iter().filter(|end| end.port(hosts).address.is_none()).collect();
    let (code, text) = match (without.as_slice(), cable.ends.iter().find(own)) {
        ([end], _) => ("no-address", format!("{} has no IPv4 address, {WHY_ADDRESS}", end.place(hosts))),
        ([_, _], _) => {
            ("no-address", format!("{}: neither end has an IPv4 address, {WHY_ADDRESS}", cable.places(hosts)))
        }
        (_, Some(end)) => {
            let text = "its address is self-assigned: it comes late after a restart and changes";
            ("self-assigned", format!("{}: {text}", end.place(hosts)))
        }
        (_, None) => {
            let text = "the addresses of its ends are not in a network of their own";
            ("wrong-network", format!("{}: {text}", cable.places(hosts)))
        }
    };
    Some(about(Level::Warning, code, hosts, cable, text).hint(HINT_COMMANDS))
}
