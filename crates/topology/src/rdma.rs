//! Whether a host and a cable can do RDMA over Thunderbolt, and why not.

use crate::{
    Cable, Cabling, End, Host, Port, System,
    host::rdma_name,
    parse::{rdma_ctl::RdmaSwitch, sw_vers::Version},
};
use std::fmt;

/// The first macOS with RDMA over Thunderbolt.
pub(crate) const FIRST_WITH_RDMA: Version = Version(26, 2, 0);
/// The first macOS on which MLX uses frames larger than 4 KiB; all ranks must be on the same side of it.
pub(crate) const FIRST_WITH_LARGE_FRAMES: Version = Version(26, 3, 0);
/// Thunderbolt 5, below which there is no RDMA.
pub(crate) const RDMA_GBPS: u32 = 80;

/// Why a host has no RDMA over Thunderbolt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostObstacle {
    /// Not macOS.
    NoMac,
    /// A macOS before [`FIRST_WITH_RDMA`].
    OldSystem(Version),
    /// No port can do more than this many Gb/s.
    SlowPorts(u32),
    /// Turned off.
    SwitchedOff,
    /// `rdma_ctl` is missing, or says something unknown.
    Unclear(String),
    /// On, and yet no device.
    NoDevices,
}

impl HostObstacle {
    /// What stands in the way of RDMA on a host, if anything.
    pub(crate) fn of(host: &Host) -> Option<Self> {
        let System::MacOs(version) = host.system else { return Some(Self::NoMac) };
        if version < FIRST_WITH_RDMA {
            return Some(Self::OldSystem(version));
        }
        if let Some(gbps) = fastest_port(host).filter(|&gbps| gbps < RDMA_GBPS) {
            return Some(Self::SlowPorts(gbps));
        }
        match &host.rdma {
            RdmaSwitch::Disabled => Some(Self::SwitchedOff),
            RdmaSwitch::Absent => Some(Self::Unclear("there is no rdma_ctl".into())),
            RdmaSwitch::Unknown(answer) => Some(Self::Unclear(format!("rdma_ctl says '{answer}'"))),
            RdmaSwitch::Enabled => host.rdma_devices.is_empty().then_some(Self::NoDevices),
        }
    }

    /// What to do about it, if something can be done.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::NoMac | Self::SlowPorts(_) => None,
            Self::OldSystem(_) => Some("update to macOS 26.3 or later"),
            Self::SwitchedOff => {
                Some("start that Mac in recovery mode, run `rdma_ctl enable` in Terminal, restart")
            }
            Self::Unclear(_) => Some("run `rdma_ctl status` there"),
            Self::NoDevices => Some("restart that Mac; one without Thunderbolt 5 never has such devices"),
        }
    }
}

impl fmt::Display for HostObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMac => write!(f, "it is no Mac, so what its cables lead to cannot be known"),
            Self::OldSystem(version) => {
                write!(f, "macOS {version} has no RDMA over Thunderbolt; {FIRST_WITH_RDMA} is the first")
            }
            Self::SlowPorts(gbps) => write!(
                f,
                "its ports are of Thunderbolt 4 or older (up to {gbps} Gb/s); RDMA needs Thunderbolt 5, \
                 whatever rdma_ctl says"
            ),
            Self::SwitchedOff => write!(f, "RDMA is turned off (rdma_ctl status: disabled)"),
            Self::Unclear(answer) => write!(f, "it is not known whether RDMA is on: {answer}"),
            Self::NoDevices => write!(f, "RDMA is enabled, but ibv_devices lists no device"),
        }
    }
}

/// The most that any port can do, if that can be told: an idle port shows it, a link only when it is a fast
/// one.
pub(crate) fn fastest_port(host: &Host) -> Option<u32> {
    let tells = |port: &Port| port.speed.filter(|speed| speed.up_to || speed.gbps >= RDMA_GBPS);
    host.ports.iter().filter_map(tells).map(|speed| speed.gbps).max()
}

/// Why a cable carries no RDMA although its hosts could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CableObstacle {
    /// A link of Thunderbolt 4 or older.
    Slow {
        /// Gb/s of the slower end.
        gbps: u32,
    },
    /// There is a dock in between.
    Through(String),
    /// The port is no network interface.
    NoInterface(End),
    /// The interface has no RDMA device.
    NoDevice(End),
}

impl CableObstacle {
    /// What stands in the way of RDMA over a cable, apart from its hosts.
    pub(crate) fn of(hosts: &[Host], cable: &Cable) -> Vec<Self> {
        let slow = cable.gbps(hosts).filter(|&gbps| gbps < RDMA_GBPS).map(|gbps| Self::Slow { gbps });
        let through = cable.through.clone().map(Self::Through);
        let of_end = |&end: &End| {
            let facts = end.port(hosts);
            match (&facts.interface, &facts.rdma_device) {
                (None, _) => Some(Self::NoInterface(end)),
                (Some(_), None) => Some(Self::NoDevice(end)),
                (Some(_), Some(_)) => None,
            }
        };
        slow.into_iter().chain(through).chain(cable.ends.iter().filter_map(of_end)).collect()
    }

    /// The same for people.
    pub(crate) fn text(&self, hosts: &[Host]) -> String {
        match self {
            Self::Slow { gbps } => {
                format!("the link runs at {gbps} Gb/s; RDMA needs Thunderbolt 5 ({RDMA_GBPS} Gb/s)")
            }
            Self::Through(dock) => format!("it goes through '{dock}'; RDMA needs a direct cable"),
            Self::NoInterface(end) => format!("{} is no network interface", end.place(hosts)),
            Self::NoDevice(end) => {
                let interface = end.port(hosts).interface.as_deref().unwrap_or("?");
                format!("{} has no device {}", end.place(hosts), rdma_name(interface))
            }
        }
    }
}

/// True when nothing stands in the way, at the hosts or the cable.
pub(crate) fn carries_rdma(hosts: &[Host], cable: &Cable) -> bool {
    let able = |end: &End| HostObstacle::of(&hosts[end.host]).is_none();
    cable.ends.iter().all(able) && CableObstacle::of(hosts, cable).is_empty()
}

/// Pairs of hosts for each cable that carries RDMA.
pub(crate) fn rdma_pairs<'a>(
    hosts: &'a [Host],
    cabling: &'a Cabling,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    cabling.cables.iter().filter(|cable| carries_rdma(hosts, cable)).map(Cable::hosts)
}
