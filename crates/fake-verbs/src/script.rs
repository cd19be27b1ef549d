//! What the fake machine has and what goes wrong with it.

use serde::{Deserialize, Serialize};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    num::NonZeroU64,
    time::Duration,
};

/// Holds the script, as JSON; without it: [`Script::default`].
pub const SCRIPT_VARIABLE: &str = "POMAR_FAKE_VERBS";

/// The devices of the fake machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// In the order they are listed. May be empty.
    pub devices: Vec<FakeDevice>,
}

/// One device, with one port.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FakeDevice {
    /// Its name.
    pub name: String,
    /// The port's GID table, row by row; `::` is an empty row.
    pub gids: Vec<Ipv6Addr>,
    /// The port's state.
    pub port: PortState,
    /// The port's path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// The port's local identifier.
    pub lid: u16,
    /// Queue pairs it can make; others are refused with `EOPNOTSUPP`.
    pub kinds: Vec<Kind>,
    /// How much of everything it has.
    pub limits: FakeLimits,
    /// What goes wrong.
    pub faults: Faults,
}

/// State of a port. Messages pass in every state: it is for the program to look at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// No cable.
    Down,
    /// Waiting for a subnet manager.
    Initialising,
    /// Ready.
    Active,
}

/// Service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Reliable.
    Rc,
    /// Unreliable.
    Uc,
}

/// How much of everything a device has, counted per process. What is freed can be had again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FakeLimits {
    /// Protection domains.
    pub protection_domains: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Memory regions.
    pub memory_regions: u32,
    /// Work requests of one queue.
    pub work_requests: u32,
    /// Entries of one completion queue.
    pub completion_entries: u32,
    /// Bytes of one memory region.
    pub memory_region_bytes: u64,
    /// What a call answers when something is used up.
    pub used_up: UsedUp,
}

/// Error numbers for "used up".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum UsedUp {
    /// Device or resource busy.
    Ebusy,
    /// Cannot allocate memory.
    Enomem,
    /// No space left on device.
    Enospc,
}

/// What goes wrong with a device. All counts are of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// No peer can be reached: connecting answers `ETIMEDOUT`, as when nobody has the address.
    pub unreachable: bool,
    /// One send fails.
    pub fail_send: Option<FailSend>,
    /// The device dies this long after it was first opened.
    pub die_after_ms: Option<u64>,
    /// The device dies when it has sent this many messages.
    pub die_after_sends: Option<u64>,
    /// The device delivers and answers nothing any more, this long after it was first opened. It can still send.
    pub deaf_after_ms: Option<u64>,
    /// The device delivers and answers nothing any more, when it has delivered this many messages.
    pub deaf_after_receives: Option<u64>,
    /// Every n-th message that the device sends over UC is lost.
    pub lose_every: Option<NonZeroU64>,
    /// The last byte of every n-th message that the device sends arrives changed, as by a link whose own checksums fail.
    pub damage_every: Option<NonZeroU64>,
    /// Each message leaves this much later than it was posted. Its bytes are read when it leaves, so a program that
    /// changes them before the completion is found out.
    pub latency_us: u64,
}

/// One send that fails.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailSend {
    /// Which of the device's sends, counted from 1.
    pub nth: u64,
    /// The status it completes with: a number of `enum ibv_wc_status` that is not 0.
    pub status: u32,
}

impl Script {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(json: &str) -> Result<Self, String> {
        let script: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        for device in &script.devices {
            device.check().map_err(|what| format!("device {:?}: {what}", device.name))?;
        }
        Ok(script)
    }

    /// A machine with one device and the defaults for everything else, to change.
    #[must_use]
    pub fn one_device(name: &str) -> Self {
        Self { devices: vec![FakeDevice { name: name.to_owned(), ..FakeDevice::default() }] }
    }

    /// The text for [`SCRIPT_VARIABLE`].
    ///
    /// # Panics
    /// Never: the types here can all be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("no maps with odd keys, no failing serializers")
    }
}

impl FakeDevice {
    fn check(&self) -> Result<(), String> {
        let name_fits = (1..64).contains(&self.name.len()) && !self.name.contains('\0');
        if !name_fits {
            return Err("a name has 1 to 63 bytes".to_owned());
        }
        if !matches!(self.path_mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(format!("path_mtu {}: 256, 512, 1024, 2048 or 4096", self.path_mtu));
        }
        if self.faults.fail_send.is_some_and(|fail| fail.status == 0 || fail.nth == 0) {
            return Err("fail_send: nth counts from 1, and status 0 is no failure".to_owned());
        }
        Ok(())
    }
}

impl Faults {
    pub(crate) fn latency(&self) -> Duration {
        Duration::from_micros(self.latency_us)
    }
}

impl UsedUp {
    pub(crate) fn errno(self) -> i32 {
        match self {
            Self::Ebusy => libc::EBUSY,
            Self::Enomem => libc::ENOMEM,
            Self::Enospc => libc::ENOSPC,
        }
    }
}

impl Default for Script {
    /// Two devices, `fake0` and `fake1`.
    fn default() -> Self {
        let device = |number: u8| FakeDevice {
            name: format!("fake{number}"),
            gids: vec![link_local(number), Ipv4Addr::new(10, 99, 0, number + 1).to_ipv6_mapped()],
            ..FakeDevice::default()
        };
        Self { devices: vec![device(0), device(1)] }
    }
}

fn link_local(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(number) + 1)
}

impl Default for FakeDevice {
    fn default() -> Self {
        Self {
            name: "fake0".to_owned(),
            gids: vec![link_local(0), Ipv4Addr::new(10, 99, 0, 1).to_ipv6_mapped()],
            port: PortState::Active,
            path_mtu: 1024,
            lid: 0,
            kinds: vec![Kind::Rc, Kind::Uc],
            limits: FakeLimits::default(),
            faults: Faults::default(),
        }
    }
}

impl Default for FakeLimits {
    fn default() -> Self {
        Self {
            protection_domains: 1024,
            completion_queues: 1024,
            queue_pairs: 1024,
            memory_regions: 4096,
            work_requests: 16384,
            completion_entries: 65536,
            memory_region_bytes: 1 << 40,
            used_up: UsedUp::Enomem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let script =
            Script::parse(r#"{"devices": [{"name": "x", "limits": {"queue_pairs": 3}}]}"#).expect("good");
        assert_eq!(script.devices[0].limits.queue_pairs, 3);
        assert_eq!(script.devices[0].limits.memory_regions, 4096);
        assert_eq!(script.devices[0].gids.len(), 2);
        assert!(Script::parse(&script.to_json()).is_ok());
    }

    #[test]
    fn mistakes_are_named() {
        let unknown = Script::parse(r#"{"devices": [{"nmae": "x"}]}"#).expect_err("a typing error");
        assert!(unknown.contains("nmae"), "{unknown}");
        let mtu =
            Script::parse(r#"{"devices": [{"name": "x", "path_mtu": 1500}]}"#).expect_err("no such MTU");
        assert!(mtu.contains("1500"), "{mtu}");
    }
}
