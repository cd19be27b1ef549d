//! Ranks that write into each other's memory: RDMA verbs, over Thunderbolt 5 on a Mac, RoCE or InfiniBand on Linux.
//!
//! A group begins as a TCP mesh. Over its connections the ranks tell each other their queue pairs, and then move the
//! data of each pair to them; the connection stays for heartbeats, verdicts and the farewell, so that a dead peer is named as
//! quickly as ever, and a queue pair that waits for ever is found out.
//!
//! The verbs library is loaded at run time. What a Mac gives sparingly is used sparingly: one queue pair per cable and
//! peer, one memory region per device, a budget that is checked before anything is created (`budget`), no second
//! try. Frames have credits (`wire`), so that no frame is sent before a receive is posted for it; numbers, so that a lost
//! one is noticed; and checksums on request (`frame`). Several cables between two ranks share the load (`path`).
//!
//! References: the InfiniBand Architecture Specification, volume 1, chapters 9 and 11, and the manual pages of
//! libibverbs.

mod budget;
mod devices;
mod frame;
mod gid;
mod matrix;
mod offer;
mod path;
mod wire;

pub use devices::RdmaDevices;
pub use matrix::{parse as parse_device_matrix, read_device_matrix};
pub(crate) use path::{Path, RdmaSink, RdmaSource};
pub use pomar_verbs::QpKind;

use crate::{
    CommError, Group,
    tcp::{Link, TcpGroup, Way},
};
use devices::{Lease, Loose};
use offer::{Agreement, Answer, End, Offer};
use pomar_verbs::{Gid, LocalEnd, PathMtu, RemoteEnd};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
};
use wire::{Parts, Wire};

/// The frame classes: powers of two between these, in bytes.
const SMALLEST_FRAME: usize = 4 << 10;
const LARGEST_FRAME: usize = 512 << 10;

const PATH_MTUS: [PathMtu; 5] =
    [PathMtu::M256, PathMtu::M512, PathMtu::M1024, PathMtu::M2048, PathMtu::M4096];

/// What a caller can choose about RDMA.
#[derive(Clone, Debug)]
pub struct RdmaOptions {
    /// For each rank, the devices of this machine whose cables lead to it, in the order of the cables. Empty: this machine
    /// has one device, and it leads to everybody.
    pub devices: Vec<Vec<String>>,
    /// Reliable or unreliable connections. `None` chooses what the driver is made for: unreliable on a Mac, reliable elsewhere.
    pub queue_pairs: Option<QpKind>,
    /// Most bytes of a frame, a power of two from 4 KiB to 512 KiB; the smaller wish of two ranks counts. 64 KiB.
    pub frame_bytes: usize,
    /// A CRC-32 in every frame. Off: links check their packets themselves.
    pub checksum: bool,
}

impl Default for RdmaOptions {
    fn default() -> Self {
        Self { devices: Vec::new(), queue_pairs: None, frame_bytes: 64 << 10, checksum: false }
    }
}

impl RdmaOptions {
    /// The frame class, within what this system can do.
    fn frame_bytes(&self) -> Result<usize, CommError> {
        let bytes = self.frame_bytes;
        if !bytes.is_power_of_two() || !(SMALLEST_FRAME..=LARGEST_FRAME).contains(&bytes) {
            let what = format!("frames of {bytes} bytes: choose a power of two from 4096 to 524288");
            return Err(CommError::Setup { what });
        }
        Ok(bytes.min(system::largest_frame()))
    }

    /// The devices that lead to each rank, or why none does.
    fn devices_to(&self, group: &TcpGroup, devices: &RdmaDevices) -> Result<Vec<Vec<String>>, CommError> {
        let (rank, size) = (group.rank(), group.size());
        if !self.devices.is_empty() {
            if self.devices.len() != size {
                let what = format!("RDMA devices for {} ranks, and the group has {size}", self.devices.len());
                return Err(CommError::Setup { what });
            }
            return Ok(self.devices.clone());
        }
        let names = devices.names()?;
        match &names[..] {
            [] => Err(CommError::Setup {
                what: "this machine has no RDMA device; on a Mac, RDMA is switched on with rdma_ctl enable in recovery \
                       mode (macOS 26.2, Thunderbolt 5)"
                    .into(),
            }),
            [only] => {
                Ok((0..size).map(|peer| if peer == rank { vec![] } else { vec![only.clone()] }).collect())
            }
            several => Err(CommError::Setup {
                what: format!(
                    "several RDMA devices ({}), and nothing says which of them leads to which rank: give a device matrix \
                     (pomar topology writes one)",
                    several.join(", ")
                ),
            }),
        }
    }
}

/// What became of each pair, by rank: the way that it went before it moved to RDMA (`None` for this rank itself), or why
/// it did not move.
pub(crate) type PairOutcomes = Vec<Result<Option<Way>, String>>;

/// Moves all pairs of a group that was just made to RDMA.
///
/// # Errors
/// [`CommError::Setup`] that names each pair that can't, and why; the other ranks hear of it.
pub fn connect(
    mut group: TcpGroup,
    devices: &Arc<RdmaDevices>,
    options: &RdmaOptions,
) -> Result<TcpGroup, CommError> {
    let outcomes = connect_where_possible(&mut group, Ok(Arc::clone(devices)), options)?;
    let failed: Vec<String> = outcomes
        .iter()
        .enumerate()
        .filter_map(|(peer, outcome)| {
            Some(format!("ranks {} and {peer}: {}", group.rank(), outcome.as_ref().err()?))
        })
        .collect();
    if failed.is_empty() {
        // Where another pair failed, one of its ranks aborts instead.
        group.fit_pieces()?;
        return Ok(group);
    }
    let what = format!("no RDMA between {}", failed.join("; between "));
    group.abort(&what);
    Err(CommError::Setup { what })
}

/// Moves those pairs of a group that was just made to RDMA that can; the others stay on TCP. All ranks call it.
///
/// # Errors
/// Any [`CommError`] about peers. That a pair has no RDMA is no error but an outcome.
pub(crate) fn connect_where_possible(
    group: &mut TcpGroup,
    devices: Result<Arc<RdmaDevices>, CommError>,
    options: &RdmaOptions,
) -> Result<PairOutcomes, CommError> {
    let prepared = devices.and_then(|devices| prepare(group, &devices, options));
    let mut own = prepared.map_err(|error| match error {
        CommError::Setup { what } => what,
        other => other.to_string(),
    });
    let (peers, size) = (group.peers(), group.size());

    // First everybody says what it has,
    for peer in peers.clone() {
        let offer = own.as_ref().map(|bundles| bundles.get(&peer).map(|bundle| &bundle.offer));
        group.send_message(peer, &offer::encode(&offer))?;
    }
    let mut outcomes: Vec<Result<(), String>> = vec![Ok(()); size];
    let mut paths: Vec<Option<Arc<Path>>> = vec![None; size];
    for peer in peers.clone() {
        let theirs: Answer = receive(group, peer)?;
        let theirs = theirs.map_err(|why| said_by(peer, &why));
        match own.as_mut().map_err(|why| why.clone()).and_then(|bundles| meet(bundles.remove(&peer), theirs))
        {
            Ok(path) => paths[peer] = Some(path),
            Err(why) => outcomes[peer] = Err(why),
        }
    }
    // then whether that worked, since only both ends together make a way.
    for peer in peers.clone() {
        group.send_message(peer, &offer::encode(&outcomes[peer]))?;
    }
    for peer in peers.clone() {
        let theirs: Result<(), String> = receive(group, peer)?;
        let theirs = theirs.map_err(|why| said_by(peer, &why));
        outcomes[peer] = std::mem::replace(&mut outcomes[peer], Ok(())).and(theirs);
    }
    // Nobody sends on a queue pair before both ends are ready to receive.
    group.barrier()?;
    let moved = outcomes.into_iter().zip(paths).enumerate().map(|(peer, (outcome, path))| {
        outcome.map(|()| path.and_then(|path| group.move_to(peer, Way::over(path))))
    });
    Ok(moved.collect())
}

/// A peer's reason: "this machine" is then the peer's.
fn said_by(peer: usize, why: &str) -> String {
    format!("rank {peer} says: {why}")
}

fn receive<T: for<'d> serde::Deserialize<'d>>(group: &TcpGroup, peer: usize) -> Result<T, CommError> {
    let mut message = Vec::new();
    group.recv_message(peer, &mut message)?;
    offer::decode(peer, &message)
}

/// This rank's ends of the cables to one peer.
struct Bundle {
    offer: Offer,
    wires: Vec<(Wire, LocalEnd)>,
    link: Arc<Link>,
    received: Arc<AtomicU64>,
    lease: Arc<Lease>,
}

/// A bundle per peer, with all receives posted.
fn prepare(
    group: &TcpGroup,
    devices: &Arc<RdmaDevices>,
    options: &RdmaOptions,
) -> Result<BTreeMap<usize, Bundle>, CommError> {
    let kind = options.queue_pairs.unwrap_or_else(|| devices.usual_kind());
    let frame_bytes = options.frame_bytes()?;
    let by_rank = options.devices_to(group, devices)?;
    let names: Vec<String> = group.peers().flat_map(|peer| by_rank[peer].iter().cloned()).collect();
    let (lease, loose) = devices.prepare(&names, kind, frame_bytes)?;
    let mut loose = loose.into_iter();
    let mut bundles = BTreeMap::new();
    for link in group.links() {
        let cables = loose.by_ref().take(by_rank[link.peer].len());
        let received = Arc::new(AtomicU64::new(0));
        let ready = cables.map(|loose| ready(loose, options.checksum, link, &received));
        let (ends, wires) = ready.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let offer = Offer::new(kind, frame_bytes, options.checksum, ends);
        let (link, lease) = (Arc::clone(link), Arc::clone(&lease));
        bundles.insert(link.peer, Bundle { offer, wires, link, received, lease });
    }
    Ok(bundles)
}

/// Posts the receives of one end and describes it.
fn ready(
    loose: Loose,
    checksum: bool,
    link: &Arc<Link>,
    received: &Arc<AtomicU64>,
) -> Result<(End, (Wire, LocalEnd)), CommError> {
    let Loose { device, queue_pair, completions, slots, gid: (gid_index, gid), path_mtu, lid } = loose;
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| CommError::Setup { what: error.to_string() })?;
    let packet_sequence = u32::from_le_bytes(random) & 0x00ff_ffff;
    let local = LocalEnd { gid_index, packet_sequence, path_mtu };
    let end = End {
        device: device.clone(),
        queue_pair: queue_pair.number(),
        packet_sequence,
        lid,
        gid: gid.0,
        path_mtu: path_mtu.bytes(),
    };
    let (link, received_in_all) = (Arc::clone(link), Arc::clone(received));
    let parts = Parts { queue_pair, completions, slots, link, received_in_all, name: device, checksum };
    Ok((end, (Wire::new(parts).map_err(devices::setup)?, local)))
}

/// Connects this rank's ends to the peer's.
///
/// # Errors
/// Why not, in words for people.
fn meet(bundle: Option<Bundle>, theirs: Answer) -> Result<Arc<Path>, String> {
    let nothing = || "no RDMA device leads there".to_owned();
    let (Some(bundle), Some(theirs)) = (bundle, theirs?) else { return Err(nothing()) };
    let Bundle { offer, wires, link, received, lease } = bundle;
    let Agreement { cables, frame_bytes, checksum } = offer.agree(&theirs)?;
    let mut connected = Vec::with_capacity(cables);
    for ((mut wire, mut local), end) in wires.into_iter().zip(&theirs.ends).take(cables) {
        // A packet may be as long as the shorter of the two ends takes.
        let theirs = PATH_MTUS.into_iter().find(|mtu| mtu.bytes() == end.path_mtu);
        let theirs = theirs.ok_or_else(|| format!("no path MTU has {} bytes", end.path_mtu))?;
        local.path_mtu = local.path_mtu.min(theirs);
        let remote = RemoteEnd {
            queue_pair: end.queue_pair,
            packet_sequence: end.packet_sequence,
            lid: end.lid,
            gid: Gid(end.gid),
        };
        wire.connect(&local, &remote).map_err(|error| error.to_string())?;
        wire.agree(frame_bytes, checksum);
        connected.push(wire);
    }
    Ok(Path::new(connected, &link, received, lease))
}

/// Reads `bytes` as everything that a rank reads from a peer's RDMA side: a message, with and without a checksum, and an
/// offer. For fuzzing: it must never panic.
pub fn fuzz_message(bytes: &[u8]) {
    for checksum in [false, true] {
        if let Ok(header) = frame::Header::read(bytes, checksum) {
            let mut again = bytes.to_vec();
            header.write(&mut again, checksum);
            assert_eq!(again, bytes, "a header that was accepted is not the one that is written for it");
        }
    }
    if let Ok(Ok(Some(offer))) = offer::decode::<Answer>(1, bytes) {
        let _ = offer.agree(&offer);
    }
}

#[cfg(target_os = "macos")]
mod system {
    //! What this release of macOS can do.

    /// Before 26.3 Apple's driver takes messages of 4 KiB at most.
    pub(super) fn largest_frame() -> usize {
        super::largest_frame_of_macos(&release().unwrap_or_default())
    }

    /// The release, such as "26.2".
    fn release() -> Option<String> {
        let mut text = [0_u8; 32];
        let mut length = text.len();
        // SAFETY: a constant name that ends in 0, and a buffer with its length; the call writes at most that.
        let answer = unsafe {
            libc::sysctlbyname(
                c"kern.osproductversion".as_ptr(),
                text.as_mut_ptr().cast(),
                &raw mut length,
                std::ptr::null_mut(),
                0,
            )
        };
        let text = text.get(..length.min(32))?;
        (answer == 0).then(|| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
    }
}

#[cfg(not(target_os = "macos"))]
mod system {
    //! Elsewhere the device's own limits count.

    pub(super) fn largest_frame() -> usize {
        super::LARGEST_FRAME
    }
}

/// Before macOS 26.3 messages are limited to 4 KiB; an unreadable release counts as old.
#[cfg(any(test, target_os = "macos"))]
fn largest_frame_of_macos(release: &str) -> usize {
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let release = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if release >= (26, 3) { LARGEST_FRAME } else { SMALLEST_FRAME }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_small_before_macos_26_3() {
        for (release, bytes) in
            [("26.2", 4096), ("26.2.1", 4096), ("26.3", 524_288), ("27.0", 524_288), ("", 4096)]
        {
            assert_eq!(largest_frame_of_macos(release), bytes, "{release}");
        }
    }

    #[test]
    fn frame_classes_are_powers_of_two() {
        for (bytes, good) in
            [(4096, true), (65_536, true), (524_288, true), (2048, false), (1 << 20, false), (5000, false)]
        {
            let options = RdmaOptions { frame_bytes: bytes, ..RdmaOptions::default() };
            assert_eq!(options.frame_bytes().is_ok(), good, "{bytes}");
        }
    }
}
