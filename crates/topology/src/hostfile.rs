//! MLX's hostfile, as `mlx.launch` and `pomar launch` read it.
//!
//! ```json
//! {
//!   "backend": "jaccl",
//!   "envs": [],
//!   "hosts": [
//!     {"ssh": "a", "ips": ["192.168.1.11"], "rdma": [null, "rdma_en3"]},
//!     {"ssh": "b", "ips": ["192.168.1.12"], "rdma": ["rdma_en4", null]}
//!   ]
//! }
//! ```
//!
//! Ranks are in the order of the list. `rdma` has a place for each rank: the device of this host that leads
//! there, a list of devices when several cables do, null for itself and where no cable is used. The first of
//! `ips` of the first host is where JACCL's ranks meet; the `ips` of a TCP ring are where the rank before
//! connects to. The older form of the file is the list of hosts alone.

use crate::{Backend, Cable, CableAddresses, Cabling, Choice, Host, MAX_WIRES, rdma::carries_rdma};
use serde::Serialize;
use std::{cmp::Reverse, fmt::Write, net::Ipv4Addr};

/// A hostfile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hostfile {
    /// How the ranks are to talk.
    pub backend: &'static str,
    /// Environment variables for all ranks: none.
    pub envs: Vec<String>,
    /// The hosts by rank.
    pub hosts: Vec<Entry>,
}

/// A host in a hostfile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The name for ssh.
    pub ssh: String,
    /// Addresses to listen on.
    pub ips: Vec<Ipv4Addr>,
    /// Devices towards each rank; empty for a TCP ring.
    pub rdma: Vec<Devices>,
}

/// The devices from one rank towards another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Devices {
    /// No cable, or the same rank.
    None,
    /// One cable.
    One(String),
    /// Several, in an order that both ends share.
    Several(Vec<String>),
}

/// Which of its two forms a hostfile is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An object with the backend.
    Object,
    /// The list of hosts alone, for programs that know no other.
    List,
}

impl Hostfile {
    /// The hostfile for a backend that works.
    ///
    /// # Errors
    ///
    /// A host lacks the address that others would connect to.
    pub fn new(
        hosts: &[Host],
        cabling: &Cabling,
        addresses: &[Option<CableAddresses>],
        choice: &Choice,
    ) -> Result<Self, String> {
        let writer = Writer { hosts, cabling, addresses, choice };
        let entries = (0..choice.order.len()).map(|rank| writer.entry(rank)).collect::<Result<_, _>>()?;
        Ok(Self { backend: choice.backend.name(), envs: Vec::new(), hosts: entries })
    }

    /// The hostfile for a TCP ring over the ordinary network, in the order of the hosts.
    ///
    /// # Errors
    ///
    /// A host has no address there.
    pub fn over_lan(hosts: &[Host]) -> Result<Self, String> {
        let entry = |host: &Host| {
            Ok(Entry { ssh: host.name.clone(), ips: vec![lan_address(host)?], rdma: Vec::new() })
        };
        let entries = hosts.iter().map(entry).collect::<Result<_, String>>()?;
        Ok(Self { backend: Backend::Ring.name(), envs: Vec::new(), hosts: entries })
    }

    /// The text of the file, a line for each host.
    pub fn text(&self, form: Form) -> String {
        let (indent, mut text) = match form {
            Form::Object => (
                "    ",
                format!("{{\n  \"backend\": \"{}\",\n  \"envs\": [],\n  \"hosts\": [\n", self.backend),
            ),
            Form::List => ("  ", "[\n".to_owned()),
        };
        for (rank, host) in self.hosts.iter().enumerate() {
            let comma = if rank + 1 < self.hosts.len() { "," } else { "" };
            // Writing to a String cannot fail.
            _ = writeln!(text, "{indent}{}{comma}", line(host));
        }
        text + if form == Form::Object { "  ]\n}\n" } else { "]\n" }
    }
}

/// A host as JSON on one line.
fn line(host: &Entry) -> String {
    let devices = |devices: &Devices| match devices {
        Devices::None => "null".to_owned(),
        Devices::One(name) => quoted(name),
        Devices::Several(names) => list(names.iter().map(|name| quoted(name))),
    };
    format!(
        "{{\"ssh\": {}, \"ips\": {}, \"rdma\": {}}}",
        quoted(&host.ssh),
        list(host.ips.iter().map(|ip| quoted(&ip.to_string()))),
        list(host.rdma.iter().map(devices))
    )
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

struct Writer<'a> {
    hosts: &'a [Host],
    cabling: &'a Cabling,
    addresses: &'a [Option<CableAddresses>],
    choice: &'a Choice,
}

impl Writer<'_> {
    fn entry(&self, rank: usize) -> Result<Entry, String> {
        let host = &self.hosts[self.choice.order[rank]];
        let (ips, rdma) = match self.choice.backend {
            Backend::Ring => (self.ring_addresses(rank)?, Vec::new()),
            // Only the first host's address is used, as the place where the ranks meet.
            Backend::Jaccl | Backend::JacclRing if rank == 0 => (vec![lan_address(host)?], self.row(rank)),
            Backend::Jaccl | Backend::JacclRing => (host.lan.into_iter().collect(), self.row(rank)),
        };
        Ok(Entry { ssh: host.name.clone(), ips, rdma })
    }

    /// Addresses on the cables from the rank before, the fastest cables first.
    fn ring_addresses(&self, rank: usize) -> Result<Vec<Ipv4Addr>, String> {
        let (order, ranks) = (&self.choice.order, self.choice.order.len());
        let (own, before) = (order[rank], order[(rank + ranks - 1) % ranks]);
        let address = |(index, cable): (usize, &Cable)| {
            let addresses = self.addresses[index].ok_or_else(|| {
                format!(
                    "{} gets no address: a port is no network interface, or all private networks are in use",
                    cable.places(self.hosts)
                )
            })?;
            Ok(addresses.ends[usize::from(cable.ends[1].host == own)].address())
        };
        let pair = (own.min(before), own.max(before));
        let cables = self.cabling.cables.iter().enumerate();
        let mut cables: Vec<_> = cables.filter(|(_, cable)| cable.hosts() == pair).collect();
        cables.sort_by_key(|(_, cable)| Reverse(cable.gbps(self.hosts)));
        cables.into_iter().take(self.choice.wires).map(address).collect()
    }

    fn row(&self, rank: usize) -> Vec<Devices> {
        (0..self.choice.order.len()).map(|to| self.devices(rank, to)).collect()
    }

    /// The devices towards another rank; in a ring only neighbours, with the same number everywhere.
    fn devices(&self, rank: usize, to: usize) -> Devices {
        let (own, other) = (self.choice.order[rank], self.choice.order[to]);
        let most = match self.choice.backend {
            Backend::Jaccl => MAX_WIRES,
            _ if are_neighbours(rank, to, self.choice.order.len()) => self.choice.wires,
            _ => 0,
        };
        let cables = self.cabling.between(own, other).filter(|cable| carries_rdma(self.hosts, cable));
        let device = |cable: &Cable| cable.end_at(own)?.port(self.hosts).rdma_device.clone();
        let mut names: Vec<_> = cables.filter_map(device).take(most).collect();
        match (names.pop(), names.is_empty()) {
            (None, _) => Devices::None,
            (Some(name), true) => Devices::One(name),
            (Some(last), false) => Devices::Several(names.into_iter().chain([last]).collect()),
        }
    }
}

fn are_neighbours(a: usize, b: usize, ranks: usize) -> bool {
    (a + 1) % ranks == b || (b + 1) % ranks == a
}

fn lan_address(host: &Host) -> Result<Ipv4Addr, String> {
    host.lan.ok_or_else(|| {
        format!(
            "{} has no address on an ordinary network (Ethernet or Wi-Fi), where the others could find it",
            host.name
        )
    })
}
