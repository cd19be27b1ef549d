//! Findings about all hosts together: mesh, ring, backend, and which cable would help.

use super::{Check, Level, Subject, listed};
use crate::{Backend, End, Host};
use std::collections::HashSet;

pub(super) fn checks(subject: &Subject<'_>) -> Vec<Check> {
    let hosts = &subject.survey.hosts;
    let mut checks = several(subject);
    if !subject.survey.unread.is_empty() {
        let unread = subject.survey.unread.iter().map(|unread| &unread.name);
        let text = "whether the hosts are a mesh or a ring is not judged before all of them answer";
        checks.push(Check::new(Level::Note, "unjudged", unread, text));
        return checks;
    }
    if hosts.len() > 1 && subject.choice.is_some() {
        checks.push(mesh(subject));
        // Two hosts are a mesh and a ring by the same cable; a ring through unknown cables cannot be found.
        checks.extend((hosts.len() > 2 && hosts.iter().all(Host::is_mac)).then(|| ring(subject)));
    }
    checks.push(backend(subject));
    checks
}

/// Pairs with more than one cable.
fn several(subject: &Subject<'_>) -> Vec<Check> {
    let hosts = &subject.survey.hosts;
    let pairs = (0..hosts.len()).flat_map(|a| (a + 1..hosts.len()).map(move |b| (a, b)));
    let check = |(a, b): (usize, usize)| {
        let cables = subject.reach.any.wires(a, b);
        let text = format!(
            "{} - {}: {cables} cables, used together where the backend can",
            hosts[a].name, hosts[b].name
        );
        (cables > 1)
            .then(|| Check::new(Level::Note, "several-cables", [&hosts[a].name, &hosts[b].name], text))
    };
    pairs.filter_map(check).collect()
}

fn mesh(subject: &Subject<'_>) -> Check {
    let hosts = &subject.survey.hosts;
    let missing = subject.missing();
    let macs = hosts.iter().filter(|host| host.is_mac()).count();
    let names = hosts.iter().map(|host| &host.name);
    if missing.is_empty() {
        let kind = if macs < hosts.len() { "Macs" } else { "hosts" };
        let text = format!("full mesh: a cable between every two of the {macs} {kind}");
        return Check::new(Level::Ok, "mesh", names, text);
    }
    let level = if subject.reach.any.ring().is_some() { Level::Note } else { Level::Warning };
    let text = format!("no full mesh: there is no cable {}", pairs(hosts, &missing));
    let concerned = missing.iter().flat_map(|&(a, b)| [a, b]).collect::<HashSet<_>>();
    let names =
        hosts.iter().enumerate().filter(|(index, _)| concerned.contains(index)).map(|(_, host)| &host.name);
    Check::new(level, "mesh", names, text).hint(plug(hosts, &missing))
}

fn ring(subject: &Subject<'_>) -> Check {
    let hosts = &subject.survey.hosts;
    let names = |order: &[usize]| order.iter().map(|&host| hosts[host].name.clone()).collect::<Vec<_>>();
    if let Some(ring) = subject.reach.any.ring() {
        let names = names(&ring.order);
        return Check::new(
            Level::Ok,
            "ring",
            &names,
            format!("ring: {}, and back to {}", names.join(", "), names[0]),
        );
    }
    let (order, missing) = subject.reach.any.nearest_ring();
    let names = names(&order);
    let text = format!(
        "no ring: {} would be one, but there is no cable {}",
        names.join(", "),
        pairs(hosts, &missing)
    );
    Check::new(Level::Warning, "ring", &names, text).hint(plug(hosts, &missing))
}

fn backend(subject: &Subject<'_>) -> Check {
    let hosts = &subject.survey.hosts;
    let names = hosts.iter().map(|host| &host.name);
    match subject.choice {
        None => Check::new(Level::Ok, "backend", names, "backend ring over the ordinary network (TCP)"),
        Some(Err(why)) => {
            let check = Check::new(Level::Error, "backend", names, why.clone());
            let on_lan = hosts.len() > 1 && hosts.iter().all(|host| host.lan.is_some());
            if on_lan { check.hint("--lan makes a TCP ring over the ordinary network") } else { check }
        }
        Some(Ok(choice)) => {
            let what = match choice.backend {
                Backend::Jaccl => "RDMA between every two hosts",
                Backend::JacclRing => "RDMA round the ring",
                Backend::Ring => "TCP round the ring",
            };
            let cables =
                if choice.wires == 1 { "1 cable".into() } else { format!("{} cables", choice.wires) };
            Check::new(
                Level::Ok,
                "backend",
                names,
                format!("backend {}: {what}, {cables} each", choice.backend),
            )
        }
    }
}

fn pairs(hosts: &[Host], pairs: &[(usize, usize)]) -> String {
    let pair = |&(a, b): &(usize, usize)| format!("{} - {}", hosts[a].name, hosts[b].name);
    listed(&pairs.iter().map(pair).collect::<Vec<_>>())
}

/// Idle ports for the cables that are missing.
fn plug(hosts: &[Host], missing: &[(usize, usize)]) -> String {
    let mut taken = HashSet::new();
    let mut free = |host: usize| {
        let end = idle_ports(hosts, host).into_iter().find(|end| !taken.contains(end));
        taken.extend(end);
        match end {
            Some(end) => end.place(hosts),
            None if hosts[host].is_mac() => format!("{} (no port is free)", hosts[host].name),
            None => hosts[host].name.clone(),
        }
    };
    let cables: Vec<_> = missing.iter().map(|&(a, b)| format!("{} - {}", free(a), free(b))).collect();
    format!("plug {}", listed(&cables))
}

/// Ports with nothing plugged in, the fastest first.
fn idle_ports(hosts: &[Host], host: usize) -> Vec<End> {
    let ports = &hosts[host].ports;
    let mut idle: Vec<_> = (0..ports.len()).filter(|&port| !ports[port].connected).collect();
    idle.sort_by_key(|&port| std::cmp::Reverse(ports[port].speed.map(|speed| speed.gbps)));
    idle.into_iter().map(|port| End { host, port }).collect()
}
