//! Ports to cables: two ends belong together when one sees the other's domain.
//!
//! Domains last over restarts and port numbers are printed on the case, so nothing here depends on the names
//! of interfaces, which change.

use crate::{Host, Port};
use std::collections::{BTreeMap, HashMap};

/// A port of a host, by their places in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// Place of the host.
    pub host: usize,
    /// Place of the port among the host's.
    pub port: usize,
}

impl End {
    /// The port.
    pub fn port(self, hosts: &[Host]) -> &Port {
        &hosts[self.host].ports[self.port]
    }

    /// Host and port, such as `studio-1 port 2 (en3)`.
    pub fn place(self, hosts: &[Host]) -> String {
        format!("{} {}", hosts[self.host].name, self.port(hosts))
    }
}

/// Two ends for people, such as `a port 1 (en2) - b port 2 (en3)`.
pub(crate) fn places(hosts: &[Host], ends: [End; 2]) -> String {
    format!("{} - {}", ends[0].place(hosts), ends[1].place(hosts))
}

/// A cable between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Its ends; the first belongs to the host that comes first.
    pub ends: [End; 2],
    /// False when only one end sees the other: it was just plugged in, or one answer is old.
    pub seen_by_both: bool,
    /// The dock in between.
    pub through: Option<String>,
}

impl Cable {
    /// The hosts that it joins, in order.
    pub fn hosts(&self) -> (usize, usize) {
        (self.ends[0].host, self.ends[1].host)
    }

    /// Both ends for people.
    pub fn places(&self, hosts: &[Host]) -> String {
        places(hosts, self.ends)
    }

    /// Gb/s of the link, by the slower end.
    pub fn gbps(&self, hosts: &[Host]) -> Option<u32> {
        self.ends.iter().filter_map(|end| end.port(hosts).link_gbps()).min()
    }

    /// The speed of the link for people, twice when its ends do not agree.
    pub fn speed(&self, hosts: &[Host]) -> String {
        match self.ends.map(|end| end.port(hosts).link_gbps()) {
            [Some(a), Some(b)] if a != b => format!("{a}/{b} Gb/s"),
            [a, b] => a.or(b).map_or_else(|| "?".into(), |gbps| format!("{gbps} Gb/s")),
        }
    }

    /// The end at `host`, if the cable has one there.
    pub fn end_at(&self, host: usize) -> Option<End> {
        self.ends.into_iter().find(|end| end.host == host)
    }
}

/// All that is plugged in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cabling {
    /// Cables between different hosts, ordered by their ends.
    pub cables: Vec<Cable>,
    /// Ends of cables to machines that are not among the hosts, with what those call themselves.
    pub strangers: Vec<(End, String)>,
    /// Cables from a host to itself.
    pub loops: Vec<[End; 2]>,
    /// Pairs of hosts that have a domain in common, so are one machine under two names.
    pub twins: Vec<(usize, usize)>,
}

impl Cabling {
    /// Matches the ends.
    pub fn of(hosts: &[Host]) -> Self {
        let (owners, twins) = owners(hosts);
        let mut cabling = Self { twins, ..Self::default() };
        let mut found: BTreeMap<[End; 2], (End, Cable)> = BTreeMap::new();
        for (end, peer) in ends(hosts).flat_map(|(end, port)| port.peers.iter().map(move |peer| (end, peer)))
        {
            let Some(&other) = owners.get(peer.domain.as_str()) else {
                cabling.strangers.push((end, peer.name.clone()));
                continue;
            };
            let mut ends = [end, other];
            ends.sort();
            let new = || (end, Cable { ends, seen_by_both: false, through: None });
            let (first, cable) = found.entry(ends).or_insert_with(new);
            cable.seen_by_both |= *first != end;
            cable.through = cable.through.take().or_else(|| peer.through.clone());
        }
        for (ends, (_, cable)) in found {
            if ends[0].host == ends[1].host { cabling.loops.push(ends) } else { cabling.cables.push(cable) }
        }
        cabling
    }

    /// The cables between two hosts, in an order that both ends share.
    pub fn between(&self, a: usize, b: usize) -> impl Iterator<Item = &Cable> {
        let pair = (a.min(b), a.max(b));
        self.cables.iter().filter(move |cable| cable.hosts() == pair)
    }
}

fn ends(hosts: &[Host]) -> impl Iterator<Item = (End, &Port)> {
    hosts.iter().enumerate().flat_map(|(host, facts)| {
        facts.ports.iter().enumerate().map(move |(port, facts)| (End { host, port }, facts))
    })
}

/// Whose each domain is, and which hosts claim the same one.
fn owners(hosts: &[Host]) -> (HashMap<&str, End>, Vec<(usize, usize)>) {
    let mut owners = HashMap::new();
    let mut twins = Vec::new();
    for (end, port) in ends(hosts) {
        let Some(domain) = port.domain.as_deref() else { continue };
        let owner = *owners.entry(domain).or_insert(end);
        if owner.host != end.host && !twins.contains(&(owner.host, end.host)) {
            twins.push((owner.host, end.host));
        }
    }
    (owners, twins)
}
