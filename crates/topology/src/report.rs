//! Everything together, for people and programs.

use crate::{
    Backend, Cable, CableAddresses, Cabling, Check, Choice, Fix, Host, Hostfile, Level, Network, Reach,
    Survey, address,
    changes::changes,
    check::{self, Subject},
    fix::fixes,
    parse::{rdma_ctl::RdmaSwitch, thunderbolt::Peer},
    rdma::{CableObstacle, HostObstacle, carries_rdma},
};
use serde::Serialize;
use std::net::Ipv4Addr;

/// What is asked of the hosts and cables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The backend that has to work; else the fastest one that does.
    pub backend: Option<Backend>,
    /// Leave the cables alone and make a TCP ring over the ordinary network.
    pub over_lan: bool,
}

/// Hosts, cables, findings, commands and the hostfile. As JSON, fields are only ever added.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The hosts that answered.
    pub hosts: Vec<HostFacts>,
    /// The cables between them.
    pub cables: Vec<CableFacts>,
    /// True when each two hosts have a cable.
    pub mesh: bool,
    /// Hosts in the order of a ring, when there is one.
    pub ring: Option<Vec<String>>,
    /// Pairs of Macs without a cable.
    pub missing: Vec<[String; 2]>,
    /// The backend of the hostfile.
    pub backend: Option<&'static str>,
    /// Findings.
    pub checks: Vec<Check>,
    /// Differences from an earlier recording, when there is one.
    pub changes: Option<Vec<String>>,
    /// Commands that set the cables up; nobody has run them.
    pub commands: Vec<Fix>,
    /// MLX's hostfile, when a backend works.
    pub hostfile: Option<Hostfile>,
}

/// A host.
#[derive(Debug, Serialize)]
pub struct HostFacts {
    /// The name that ssh knows it by.
    pub name: String,
    /// Its kind.
    pub model: Option<String>,
    /// What it runs, with the version.
    pub system: String,
    /// What `rdma_ctl` says.
    pub rdma: RdmaSwitch,
    /// Why it cannot do RDMA over Thunderbolt, if it cannot.
    pub rdma_obstacle: Option<String>,
    /// Its RDMA devices.
    pub rdma_devices: Vec<String>,
    /// Its address on the ordinary network.
    pub lan: Option<Ipv4Addr>,
    /// Its Thunderbolt ports.
    pub ports: Vec<PortFacts>,
}

/// A Thunderbolt port.
#[derive(Debug, Serialize)]
pub struct PortFacts {
    /// Its number.
    pub port: Option<String>,
    /// The domain of this end.
    pub domain: Option<String>,
    /// Its interface.
    pub interface: Option<String>,
    /// The interface's address.
    pub address: Option<Network>,
    /// The bridge that it is in.
    pub bridge: Option<String>,
    /// Its RDMA device.
    pub rdma_device: Option<String>,
    /// True when something is plugged in.
    pub connected: bool,
    /// Speed of the link, or what the idle port could do, in Gb/s.
    pub gbps: Option<u32>,
    /// The machines at the other end.
    pub peers: Vec<Peer>,
    /// Another thing at the other end.
    pub device: Option<String>,
}

/// A cable.
#[derive(Debug, Serialize)]
pub struct CableFacts {
    /// Its ends.
    pub ends: [EndFacts; 2],
    /// The dock in between.
    pub through: Option<String>,
    /// The speed, twice when the ends do not agree.
    pub speed: String,
    /// True when nothing stands in the way of RDMA.
    pub rdma: bool,
    /// What does, apart from the hosts.
    pub obstacles: Vec<String>,
}

/// One end of a cable.
#[derive(Debug, Serialize)]
pub struct EndFacts {
    /// The host's name.
    pub host: String,
    /// The port's number.
    pub port: Option<String>,
    /// Its interface.
    pub interface: Option<String>,
    /// Its address now.
    pub address: Option<Network>,
    /// The address that it should have.
    pub planned: Option<Network>,
}

impl Report {
    /// Draws the conclusions from a survey; `before` is an earlier one to compare with.
    pub fn new(survey: &Survey, request: Request, before: Option<&Survey>) -> Self {
        let hosts = &survey.hosts;
        let cabling = Cabling::of(hosts);
        let reach = Reach::of(hosts, &cabling);
        let addresses = address::plan(hosts, &cabling);
        let choice = (!request.over_lan).then(|| reach.choose(hosts, request.backend));
        let subject = Subject {
            survey,
            cabling: &cabling,
            addresses: &addresses,
            reach: &reach,
            wanted: request.backend,
            choice: choice.as_ref(),
        };
        let mut checks = check::checks(&subject);
        let hostfile = match hostfile(survey, &cabling, &addresses, choice.as_ref()) {
            Some(Err(why)) => {
                checks.push(Check::hostfile(hosts, why));
                None
            }
            other => other.and_then(Result::ok),
        };
        let name = |host: usize| hosts[host].name.clone();
        Self {
            hosts: hosts.iter().map(HostFacts::of).collect(),
            cables: cables(hosts, &cabling, &addresses),
            mesh: reach.any.is_mesh(),
            ring: reach.any.ring().map(|ring| ring.order.into_iter().map(name).collect()),
            missing: reach.missing(hosts).into_iter().map(|(a, b)| [name(a), name(b)]).collect(),
            backend: hostfile.as_ref().map(|hostfile| hostfile.backend),
            checks,
            changes: before.map(|before| changes(&before.hosts, hosts)),
            commands: fixes(hosts, &cabling, &addresses),
            hostfile,
        }
    }

    /// True when what was asked for does not work.
    pub fn has_errors(&self) -> bool {
        self.checks.iter().any(|check| check.level == Level::Error)
    }
}

/// The hostfile, if all hosts answered and a backend works.
fn hostfile(
    survey: &Survey,
    cabling: &Cabling,
    addresses: &[Option<CableAddresses>],
    choice: Option<&Result<Choice, String>>,
) -> Option<Result<Hostfile, String>> {
    if !survey.unread.is_empty() || !cabling.twins.is_empty() {
        return None;
    }
    match choice {
        None => Some(Hostfile::over_lan(&survey.hosts)),
        Some(choice) => {
            choice.as_ref().ok().map(|choice| Hostfile::new(&survey.hosts, cabling, addresses, choice))
        }
    }
}

fn cables(hosts: &[Host], cabling: &Cabling, addresses: &[Option<CableAddresses>]) -> Vec<CableFacts> {
    let facts = |(cable, addresses): (&Cable, &Option<CableAddresses>)| {
        let end = |place: usize| {
            let port = cable.ends[place].port(hosts);
            EndFacts {
                host: hosts[cable.ends[place].host].name.clone(),
                port: port.receptacle.clone(),
                interface: port.interface.clone(),
                address: port.address,
                planned: addresses.map(|addresses| addresses.ends[place]),
            }
        };
        CableFacts {
            ends: [end(0), end(1)],
            through: cable.through.clone(),
            speed: cable.speed(hosts),
            rdma: carries_rdma(hosts, cable),
            obstacles: CableObstacle::of(hosts, cable).iter().map(|obstacle| obstacle.text(hosts)).collect(),
        }
    };
    cabling.cables.iter().zip(addresses).map(facts).collect()
}

impl HostFacts {
    fn of(host: &Host) -> Self {
        let ports = host.ports.iter().map(|port| PortFacts {
            port: port.receptacle.clone(),
            domain: port.domain.clone(),
            interface: port.interface.clone(),
            address: port.address,
            bridge: port.bridge.clone(),
            rdma_device: port.rdma_device.clone(),
            connected: port.connected,
            gbps: port.speed.map(|speed| speed.gbps),
            peers: port.peers.clone(),
            device: port.device.clone(),
        });
        Self {
            name: host.name.clone(),
            model: host.model.clone(),
            system: host.system.to_string(),
            rdma: host.rdma.clone(),
            rdma_obstacle: HostObstacle::of(host).map(|obstacle| obstacle.to_string()),
            rdma_devices: host.rdma_devices.clone(),
            lan: host.lan,
            ports: ports.collect(),
        }
    }
}
