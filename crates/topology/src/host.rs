//! What one host says about itself, put together from the answers of several commands.

use crate::{
    Network, Probe, ProbeError, Source,
    parse::{
        self, ParseError,
        hardware_ports::HardwarePort,
        ifconfig::Interface,
        rdma_ctl::RdmaSwitch,
        services::Service,
        sw_vers::Version,
        thunderbolt::{Bus, Peer, Speed},
    },
};
use std::{fmt, net::Ipv4Addr};

/// The port under which macOS lists the bridge over all Thunderbolt ports.
const BRIDGE_PORT: &str = "Thunderbolt Bridge";
/// Interfaces on Linux that lead to containers and virtual machines of the same host.
const VIRTUAL: [&str; 5] = ["docker", "veth", "br-", "virbr", "tailscale"];

/// A machine.
#[derive(Clone, Debug)]
pub struct Host {
    /// The name that ssh knows it by.
    pub name: String,
    /// Its kind, such as `Mac Studio`.
    pub model: Option<String>,
    /// What it runs.
    pub system: System,
    /// Whether macOS allows RDMA over Thunderbolt.
    pub rdma: RdmaSwitch,
    /// The RDMA devices that programs can open.
    pub rdma_devices: Vec<String>,
    /// Its Thunderbolt ports.
    pub ports: Vec<Port>,
    /// Its address on the ordinary network: Ethernet rather than Wi-Fi, never a Thunderbolt port.
    pub lan: Option<Ipv4Addr>,
    /// The service of the Thunderbolt bridge, when there is one and it is on.
    pub bridge_service: Option<String>,
    /// Every IPv4 network that it is in.
    pub networks: Vec<Network>,
}

/// What a host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// macOS.
    MacOs(Version),
    /// Something else, by its kernel's name and version.
    Other(String),
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MacOs(version) => write!(f, "macOS {version}"),
            Self::Other(kernel) => f.write_str(kernel),
        }
    }
}

/// A Thunderbolt port, and the interface that it is today.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number: 2 for `Thunderbolt 2`.
    pub receptacle: Option<String>,
    /// The name of this end of a cable, which lasts over restarts.
    pub domain: Option<String>,
    /// True when something is plugged in.
    pub connected: bool,
    /// The speed of the link, or what the empty port could do.
    pub speed: Option<Speed>,
    /// The machines at the other end.
    pub peers: Vec<Peer>,
    /// The first thing at the other end that is no machine.
    pub device: Option<String>,
    /// The interface, such as `en3`.
    pub interface: Option<String>,
    /// The interface's IPv4 address, one that lasts rather than one it gave itself.
    pub address: Option<Network>,
    /// The bridge that the interface is a member of.
    pub bridge: Option<String>,
    /// The interface's RDMA device, when it exists.
    pub rdma_device: Option<String>,
    /// The service that keeps the interface's settings.
    pub service: Option<Service>,
}

impl Port {
    /// The port's name in the settings, such as `Thunderbolt 2`.
    pub fn hardware_name(&self) -> Option<String> {
        self.receptacle.as_ref().map(|number| format!("Thunderbolt {number}"))
    }

    /// Gb/s of the link; an idle port has none.
    pub fn link_gbps(&self) -> Option<u32> {
        self.speed.filter(|speed| !speed.up_to).map(|speed| speed.gbps)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.receptacle.as_deref().unwrap_or("?"))?;
        self.interface.as_ref().map_or(Ok(()), |interface| write!(f, " ({interface})"))
    }
}

/// The RDMA device of a Mac's interface, whether it exists or not.
pub(crate) fn rdma_name(interface: &str) -> String {
    format!("rdma_{interface}")
}

impl Host {
    /// Asks a host everything.
    ///
    /// # Errors
    ///
    /// The host cannot be asked, or an answer without which its cables cannot be known is missing or damaged.
    pub fn read(source: &dyn Source, name: &str) -> Result<Self, ProbeError> {
        let host = Asked { source, name };
        match host.if_there(Probe::SwVers)? {
            Some(text) => host.mac(host.parsed(Probe::SwVers, parse::sw_vers::parse(&text))?),
            None => host.other(),
        }
    }

    /// True when the host has Thunderbolt ports that can be known.
    pub fn is_mac(&self) -> bool {
        matches!(self.system, System::MacOs(_))
    }
}

/// A host while it is being asked.
struct Asked<'a> {
    source: &'a dyn Source,
    name: &'a str,
}

impl Asked<'_> {
    fn ask(&self, probe: Probe) -> Result<String, ProbeError> {
        self.source.run(self.name, probe)
    }

    /// The answer, or nothing when the host has no such command.
    fn if_there(&self, probe: Probe) -> Result<Option<String>, ProbeError> {
        match self.ask(probe) {
            Err(ProbeError::Missing { .. }) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// The answer, or nothing when the command is missing or fails: `ibv_devices` fails when there are none.
    fn if_it_works(&self, probe: Probe) -> Result<Option<String>, ProbeError> {
        match self.if_there(probe) {
            Err(ProbeError::Failed { .. }) => Ok(None),
            answer => answer,
        }
    }

    /// Adds host and command to what is wrong with a field.
    fn parsed<T>(&self, probe: Probe, result: Result<T, ParseError>) -> Result<T, ProbeError> {
        let (host, command) = (self.name.to_owned(), probe.command());
        result.map_err(|problem| ProbeError::Unreadable { host, command, problem })
    }

    fn rdma_devices(&self) -> Result<Vec<String>, ProbeError> {
        Ok(self
            .if_it_works(Probe::IbvDevices)?
            .map_or_else(Vec::new, |text| parse::ibv_devices::parse(&text)))
    }

    fn mac(&self, version: Version) -> Result<Host, ProbeError> {
        let thunderbolt = self.ask(Probe::Thunderbolt)?;
        let thunderbolt = self.parsed(Probe::Thunderbolt, parse::thunderbolt::parse(&thunderbolt))?;
        let hardware = self.ask(Probe::HardwarePorts)?;
        let hardware = self.parsed(Probe::HardwarePorts, parse::hardware_ports::parse(&hardware))?;
        let services = self.if_it_works(Probe::Services)?;
        let switch = self.if_it_works(Probe::RdmaCtl)?;
        let facts = Facts {
            hardware,
            services: services.map_or_else(Vec::new, |text| parse::services::parse(&text)),
            rdma_devices: self.rdma_devices()?,
            interfaces: parse::ifconfig::parse(&self.ask(Probe::Ifconfig)?),
        };
        Ok(Host {
            name: self.name.to_owned(),
            model: thunderbolt.model,
            system: System::MacOs(version),
            rdma: switch.map_or(RdmaSwitch::Absent, |text| parse::rdma_ctl::parse(&text)),
            ports: thunderbolt.buses.into_iter().map(|bus| facts.port(bus)).collect(),
            lan: facts.lan(),
            bridge_service: facts.service(BRIDGE_PORT).filter(|service| service.enabled).map(|s| s.name),
            networks: networks(&facts.interfaces),
            rdma_devices: facts.rdma_devices,
        })
    }

    fn other(&self) -> Result<Host, ProbeError> {
        let kernel = parse::clean(&self.ask(Probe::Uname)?);
        let addresses = self.ask(Probe::IpAddr)?;
        let interfaces = self.parsed(Probe::IpAddr, parse::ip_addr::parse(&addresses))?;
        let real = interfaces.iter().filter(|i| !VIRTUAL.iter().any(|virtual_| i.name.starts_with(virtual_)));
        Ok(Host {
            name: self.name.to_owned(),
            model: None,
            system: System::Other(kernel),
            rdma: RdmaSwitch::Absent,
            rdma_devices: self.rdma_devices()?,
            ports: Vec::new(),
            lan: real.filter_map(ordinary_address).next(),
            bridge_service: None,
            networks: networks(&interfaces),
        })
    }
}

/// A Mac's answers that are joined by the names of ports and interfaces.
struct Facts {
    hardware: Vec<HardwarePort>,
    services: Vec<Service>,
    rdma_devices: Vec<String>,
    interfaces: Vec<Interface>,
}

impl Facts {
    fn port(&self, bus: Bus) -> Port {
        let mut port = Port {
            receptacle: bus.receptacle,
            domain: bus.domain,
            connected: bus.connected,
            speed: bus.speed,
            peers: bus.peers,
            device: bus.device,
            interface: None,
            address: None,
            bridge: None,
            rdma_device: None,
            service: None,
        };
        let Some(name) = port.hardware_name() else { return port };
        port.service = self.service(&name);
        let Some(hardware) = self.hardware.iter().find(|hardware| hardware.port == name) else { return port };
        let (interface, device) = (hardware.interface.clone(), rdma_name(&hardware.interface));
        port.address = self.address(&interface);
        port.bridge =
            self.interfaces.iter().find(|bridge| bridge.members.contains(&interface)).map(|b| b.name.clone());
        port.rdma_device = self.rdma_devices.contains(&device).then_some(device);
        port.interface = Some(interface);
        port
    }

    fn address(&self, interface: &str) -> Option<Network> {
        let interface = self.interfaces.iter().find(|candidate| candidate.name == interface)?;
        interface.addresses.iter().copied().min_by_key(|address| address.is_self_assigned())
    }

    fn service(&self, port: &str) -> Option<Service> {
        self.services.iter().find(|service| service.port == port).cloned()
    }

    fn lan(&self) -> Option<Ipv4Addr> {
        let mut ports: Vec<_> =
            self.hardware.iter().filter(|hardware| !is_thunderbolt(&hardware.port)).collect();
        ports.sort_by_key(|hardware| preference(&hardware.port));
        let found = |port: &HardwarePort| self.interfaces.iter().find(|i| i.name == port.interface);
        ports.into_iter().filter_map(found).filter_map(ordinary_address).next()
    }
}

/// `Thunderbolt 2` and the bridge, but not `Thunderbolt Ethernet Slot 1`, which is a network adapter in a
/// dock.
fn is_thunderbolt(port: &str) -> bool {
    let rest = port.strip_prefix("Thunderbolt ");
    rest.is_some_and(|rest| rest == "Bridge" || rest.parse::<u32>().is_ok())
}

/// Built-in Ethernet before adapters, before Wi-Fi, before phones and the like.
fn preference(port: &str) -> u8 {
    match port {
        "Ethernet" => 0,
        port if port.contains("Ethernet") || port.contains("LAN") => 1,
        "Wi-Fi" => 2,
        _ => 3,
    }
}

fn ordinary_address(interface: &Interface) -> Option<Ipv4Addr> {
    let mut ordinary = interface.addresses.iter().map(|network| network.address());
    ordinary.find(|address| !address.is_loopback() && !address.is_link_local() && !address.is_unspecified())
}

fn networks(interfaces: &[Interface]) -> Vec<Network> {
    interfaces.iter().flat_map(|interface| interface.addresses.iter().copied()).collect()
}
