//! The RDMA devices of this process: opened once each, with an account of what was taken from them.

use super::{
    budget::{self, QueueSize, Taken},
    gid,
    wire::{RECEIVES, SENDS, SLOTS, Slots},
};
use crate::{CommError, transport::lock};
use pomar_verbs::{
    CompletionQueue, Depth, Device, Gid, Library, Limits, PathMtu, ProtectionDomain, QpKind, QueuePair,
    VerbsError,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

const QUEUE_SIZE: QueueSize =
    QueueSize { work_requests: RECEIVES as u32, completions: (RECEIVES + SENDS) as u32 };

/// RDMA devices for the groups of one process, all of which should share it: what they take is counted together.
#[derive(Debug)]
pub struct RdmaDevices {
    library: Library,
    opened: Mutex<BTreeMap<String, Opened>>,
}

/// A device and what it has given.
#[derive(Debug)]
struct Opened {
    device: Device,
    domain: ProtectionDomain,
    limits: Limits,
    gid: (u8, Gid),
    path_mtu: PathMtu,
    lid: u16,
    taken: Taken,
}

/// One end of a cable before it is connected.
#[derive(Debug)]
pub(super) struct Loose {
    pub(super) device: String,
    pub(super) queue_pair: QueuePair,
    pub(super) completions: CompletionQueue,
    pub(super) slots: Slots,
    pub(super) gid: (u8, Gid),
    pub(super) path_mtu: PathMtu,
    pub(super) lid: u16,
}

impl RdmaDevices {
    /// Loads the verbs library of this system; opens no device yet.
    ///
    /// # Errors
    /// [`CommError::Setup`] that says which files were tried.
    pub fn load() -> Result<Self, CommError> {
        Library::load().map(Self::with_library).map_err(setup)
    }

    /// As [`RdmaDevices::load`], with a library that was loaded before.
    #[must_use]
    pub fn with_library(library: Library) -> Self {
        Self { library, opened: Mutex::default() }
    }

    /// The names of the devices that this machine has.
    ///
    /// # Errors
    /// [`CommError::Setup`] when the system can't tell.
    pub fn names(&self) -> Result<Vec<String>, CommError> {
        self.library.device_names().map_err(setup)
    }

    /// Unreliable queue pairs on Apple's driver, which has no others; reliable ones elsewhere.
    pub(super) fn usual_kind(&self) -> QpKind {
        if self.library.is_apple() { QpKind::Uc } else { QpKind::Rc }
    }

    /// A queue pair in state INIT with its buffers for every entry of `devices`: one region per device for all of its
    /// queue pairs. All limits are checked before the first thing is created, and nothing is tried twice.
    pub(super) fn prepare(
        self: &Arc<Self>,
        devices: &[String],
        kind: QpKind,
        frame_bytes: usize,
    ) -> Result<(Arc<Lease>, Vec<Loose>), CommError> {
        let mut counts = BTreeMap::<String, u32>::new();
        devices.iter().for_each(|name| *counts.entry(name.clone()).or_default() += 1);
        let mut opened = lock(&self.opened);
        for (name, count) in &counts {
            if !opened.contains_key(name) {
                opened.insert(name.clone(), self.open(name)?);
            }
            let device = &opened[name];
            let more = Taken { queue_pairs: *count, memory_regions: 1 };
            budget::check(
                name,
                device.limits,
                device.taken,
                more,
                QUEUE_SIZE,
                region_bytes(*count, frame_bytes),
            )?;
        }
        for (name, count) in &counts {
            if let Some(device) = opened.get_mut(name) {
                device.taken.queue_pairs += count;
                device.taken.memory_regions += 1;
            }
        }
        // From here on, a failure gives the account back with the lease, as it does the things themselves.
        let lease = Arc::new(Lease { devices: Arc::clone(self), counts });
        let made = make(&opened, &lease.counts, devices, kind, frame_bytes);
        // The lease locks the account when it goes.
        drop(opened);
        Ok((lease, made?))
    }

    fn open(&self, name: &str) -> Result<Opened, CommError> {
        let device = self.library.open_device(name).map_err(setup)?;
        let port = device.port().map_err(setup)?;
        if !port.active {
            let what = format!(
                "RDMA device {name}: its port is {}; is the cable in, and its interface up?",
                port.state
            );
            return Err(CommError::Setup { what });
        }
        let gid = gid::choose(name, &device.gids().map_err(setup)?)?;
        let limits = budget::known_limits(device.limits().map_err(setup)?, self.library.is_apple());
        let domain = device.protection_domain().map_err(setup)?;
        let (path_mtu, lid) = (port.path_mtu, port.lid);
        Ok(Opened { device, domain, limits, gid, path_mtu, lid, taken: Taken::default() })
    }
}

/// What a group has taken from the budget of each device, given back when the group is gone.
#[derive(Debug)]
pub(super) struct Lease {
    devices: Arc<RdmaDevices>,
    /// Queue pairs by device; each device has one region too.
    counts: BTreeMap<String, u32>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut opened = lock(&self.devices.opened);
        for (name, count) in &self.counts {
            if let Some(device) = opened.get_mut(name) {
                device.taken.queue_pairs -= count;
                device.taken.memory_regions -= 1;
            }
        }
    }
}

/// The regions, and the queue pairs in the order of `devices`.
fn make(
    opened: &BTreeMap<String, Opened>,
    counts: &BTreeMap<String, u32>,
    devices: &[String],
    kind: QpKind,
    frame_bytes: usize,
) -> Result<Vec<Loose>, CommError> {
    let mut regions = BTreeMap::new();
    for (name, count) in counts {
        let bytes = region_bytes(*count, frame_bytes);
        let region = opened[name].domain.register(bytes).map_err(setup)?;
        regions.insert(name, (Arc::new(region), 0));
    }
    let mut all = Vec::with_capacity(devices.len());
    for name in devices {
        let Some((region, start)) = regions.get_mut(name) else { continue };
        all.push(opened[name].loose(name, kind, Slots::new(Arc::clone(region), *start, frame_bytes))?);
        *start += SLOTS * frame_bytes;
    }
    Ok(all)
}

impl Opened {
    fn loose(&self, name: &str, kind: QpKind, slots: Slots) -> Result<Loose, CommError> {
        let completions = self.device.completion_queue(QUEUE_SIZE.completions).map_err(setup)?;
        let depth = Depth { send: SENDS as u32, receive: RECEIVES as u32 };
        let queue_pair = self.domain.queue_pair(&completions, kind, depth).map_err(setup)?;
        queue_pair.init().map_err(setup)?;
        Ok(Loose {
            device: name.to_owned(),
            queue_pair,
            completions,
            slots,
            gid: self.gid,
            path_mtu: self.path_mtu,
            lid: self.lid,
        })
    }
}

fn region_bytes(wires: u32, frame_bytes: usize) -> usize {
    wires as usize * SLOTS * frame_bytes
}

pub(super) fn setup(error: VerbsError) -> CommError {
    CommError::Setup { what: error.to_string() }
}
