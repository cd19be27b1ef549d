//! Findings about single hosts, and about their systems side by side.

use super::{Check, Level, Subject, listed};
use crate::{
    Host, Port, System,
    parse::sw_vers::Version,
    rdma::{FIRST_WITH_LARGE_FRAMES, FIRST_WITH_RDMA, HostObstacle},
};

pub(super) fn checks(subject: &Subject<'_>) -> Vec<Check> {
    let survey = subject.survey;
    let unread = survey
        .unread
        .iter()
        .map(|unread| Check::new(Level::Error, "unread", [&unread.name], unread.error.to_string()));
    let mut checks: Vec<_> = unread.collect();
    for host in &survey.hosts {
        checks.extend(rdma(subject, host));
        checks.extend(small_frames(host));
        checks.extend(host.ports.iter().filter_map(|port| unmapped(host, port)));
    }
    checks.extend(mixed_versions(&survey.hosts));
    checks.extend(subject.cabling.twins.iter().map(|&(a, b)| {
        let (a, b) = (&survey.hosts[a].name, &survey.hosts[b].name);
        let text = format!("{a} and {b} have the same Thunderbolt domains, so they are one machine");
        Check::new(Level::Error, "same-machine", [a, b], text).hint("name each machine once")
    }));
    checks
}

fn rdma(subject: &Subject<'_>, host: &Host) -> Option<Check> {
    let obstacle = HostObstacle::of(host)?;
    if obstacle == HostObstacle::NoMac {
        let devices = match host.rdma_devices.as_slice() {
            [] => "it has no RDMA device".to_owned(),
            devices => format!("it has the RDMA devices {}", listed(devices)),
        };
        let text = format!("{}: {obstacle}; {devices}", host.name);
        return Some(Check::new(Level::Note, "no-mac", [&host.name], text));
    }
    let code = match obstacle {
        HostObstacle::NoMac => "no-mac",
        HostObstacle::OldSystem(_) => "old-system",
        HostObstacle::SlowPorts(_) => "thunderbolt-4",
        HostObstacle::SwitchedOff => "rdma-off",
        HostObstacle::Unclear(_) => "rdma-unclear",
        HostObstacle::NoDevices => "no-rdma-devices",
    };
    let check = Check::new(subject.rdma_level(), code, [&host.name], format!("{}: {obstacle}", host.name));
    Some(match obstacle.remedy() {
        Some(remedy) => check.hint(remedy),
        None => check,
    })
}

fn small_frames(host: &Host) -> Option<Check> {
    let version =
        version(host).filter(|&version| (FIRST_WITH_RDMA..FIRST_WITH_LARGE_FRAMES).contains(&version))?;
    let text =
        format!("{}: macOS {version} sends RDMA in frames of 4 KiB, later ones in up to 512 KiB", host.name);
    Some(Check::new(Level::Note, "small-frames", [&host.name], text).hint("update to macOS 26.3 or later"))
}

/// A machine is plugged into a port whose interface is not known.
fn unmapped(host: &Host, port: &Port) -> Option<Check> {
    if port.peers.is_empty() || port.interface.is_some() {
        return None;
    }
    let name = port.hardware_name().unwrap_or_else(|| "a port without a number".into());
    let text = format!("{}: networksetup lists no interface for {name}", host.name);
    let hint =
        "a Thunderbolt port gets its interface back in System Settings > Network, or at the next restart";
    Some(Check::new(Level::Warning, "no-interface", [&host.name], text).hint(hint))
}

fn mixed_versions(hosts: &[Host]) -> Option<Check> {
    let mut versions: Vec<_> = hosts.iter().filter_map(version).collect();
    versions.sort_unstable();
    let (first, last) = (*versions.first()?, *versions.last()?);
    if first == last {
        return None;
    }
    let each = hosts.iter().filter_map(|host| Some(format!("{} {}", host.name, version(host)?)));
    let text = format!("the hosts run different versions of macOS: {}", listed(&each.collect::<Vec<_>>()));
    let names = hosts.iter().filter(|host| host.is_mac()).map(|host| &host.name);
    let oldest_with_rdma = versions.iter().find(|&&version| version >= FIRST_WITH_RDMA);
    if oldest_with_rdma.is_some_and(|&oldest| oldest < FIRST_WITH_LARGE_FRAMES)
        && FIRST_WITH_LARGE_FRAMES <= last
    {
        let text =
            format!("{text}; MLX's frames before and since {FIRST_WITH_LARGE_FRAMES} do not fit each other");
        return Some(
            Check::new(Level::Warning, "mixed-frames", names, text).hint("update all to the same version"),
        );
    }
    Some(Check::new(Level::Note, "mixed-versions", names, text))
}

fn version(host: &Host) -> Option<Version> {
    match host.system {
        System::MacOs(version) => Some(version),
        System::Other(_) => None,
    }
}
