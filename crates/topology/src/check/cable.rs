//! Findings about single cables.

use super::{Check, Level, Subject};
use crate::{
    Cable, CableAddresses, End, Host,
    cabling::places,
    rdma::{CableObstacle, HostObstacle, RDMA_GBPS, fastest_port},
};

/// Where an address is missing or unsuitable, the commands set one.
const HINT_COMMANDS: &str = "the commands for that host change it";

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

/// Only what is the cable's own fault: what a host lacks is said once, about the host.
fn obstacles(subject: &Subject<'_>, cable: &Cable) -> Vec<Check> {
    let hosts = &subject.survey.hosts;
    let is_own = |obstacle: &CableObstacle| match obstacle {
        // A dock explains the speed.
        CableObstacle::Slow { .. } => cable.through.is_none(),
        CableObstacle::Through(_) => true,
        CableObstacle::NoInterface(_) => false,
        CableObstacle::NoDevice(end) => HostObstacle::of(&hosts[end.host]).is_none(),
    };
    let found = CableObstacle::of(hosts, cable).into_iter().filter(is_own);
    let check = |obstacle: CableObstacle| {
        let text = format!("{}: {}", cable.places(hosts), obstacle.text(hosts));
        let (code, hint) = match &obstacle {
            CableObstacle::Slow { .. } => ("slow-cable", slow_hint(hosts, cable)),
            CableObstacle::Through(_) => ("dock", "plug the two machines together directly".into()),
            CableObstacle::NoInterface(_) => ("no-interface", String::new()),
            CableObstacle::NoDevice(_) => (
                "no-rdma-device",
                "plug the cable in anew, or restart that Mac; ibv_devices must list it".into(),
            ),
        };
        about(subject.rdma_level(), code, hosts, cable, text).hint(hint)
    };
    found.map(check).collect()
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
    let without: Vec<_> = cable.ends.iter().filter(|end| end.port(hosts).address.is_none()).collect();
    let own = |end: &&End| end.port(hosts).address.is_some_and(|address| address.is_self_assigned());
    let (code, text) = if let [first, ..] = without.as_slice() {
        let both = if without.len() == 2 { "neither end has" } else { "one end has no" };
        let place = if without.len() == 2 { cable.places(hosts) } else { first.place(hosts) };
        let what = if without.len() == 2 {
            format!("{both} an IPv4 address")
        } else {
            "it has no IPv4 address".into()
        };
        ("no-address", format!("{place}: {what}, without which there is no GID row for RDMA"))
    } else if let Some(end) = cable.ends.iter().find(own) {
        let text = "its address is self-assigned: it comes late after a restart and changes";
        ("self-assigned", format!("{}: {text}", end.place(hosts)))
    } else {
        let text = "the addresses of its ends are not in a network of their own";
        ("wrong-network", format!("{}: {text}", cable.places(hosts)))
    };
    Some(about(Level::Warning, code, hosts, cable, text).hint(HINT_COMMANDS))
}
