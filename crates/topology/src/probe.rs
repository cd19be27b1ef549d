//! The questions that are put to a host: fixed commands that read and never change anything.

/// One command whose output says something about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// The version of macOS; a host without this command is not a Mac.
    SwVers,
    /// Thunderbolt ports, their speed, and who is at the other end.
    Thunderbolt,
    /// Which port is which network interface today.
    HardwarePorts,
    /// The network services, which hold addresses across restarts.
    Services,
    /// Whether macOS allows RDMA over Thunderbolt.
    RdmaCtl,
    /// The RDMA devices that programs can open.
    IbvDevices,
    /// Addresses and members of the Thunderbolt bridge on a Mac.
    Ifconfig,
    /// The kernel of a host that is not a Mac.
    Uname,
    /// Addresses on Linux.
    IpAddr,
}

impl Probe {
    /// Every probe.
    pub const ALL: [Self; 9] = [
        Self::SwVers,
        Self::Thunderbolt,
        Self::HardwarePorts,
        Self::Services,
        Self::RdmaCtl,
        Self::IbvDevices,
        Self::Ifconfig,
        Self::Uname,
        Self::IpAddr,
    ];

    /// The command line, the same for every host and every shell.
    pub fn command(self) -> &'static str {
        match self {
            Self::SwVers => "sw_vers",
            Self::Thunderbolt => "system_profiler SPThunderboltDataType -json",
            Self::HardwarePorts => "networksetup -listallhardwareports",
            Self::Services => "networksetup -listnetworkserviceorder",
            Self::RdmaCtl => "rdma_ctl status",
            Self::IbvDevices => "ibv_devices",
            Self::Ifconfig => "ifconfig -a",
            Self::Uname => "uname -sr",
            Self::IpAddr => "ip -j addr",
        }
    }

    /// The file that holds a recorded answer, in the host's folder.
    pub fn file(self) -> &'static str {
        match self {
            Self::SwVers => "sw_vers.txt",
            Self::Thunderbolt => "thunderbolt.json",
            Self::HardwarePorts => "hardware_ports.txt",
            Self::Services => "services.txt",
            Self::RdmaCtl => "rdma_ctl.txt",
            Self::IbvDevices => "ibv_devices.txt",
            Self::Ifconfig => "ifconfig.txt",
            Self::Uname => "uname.txt",
            Self::IpAddr => "ip_addr.json",
        }
    }
}
