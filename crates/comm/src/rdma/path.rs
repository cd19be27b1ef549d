//! All cables between two ranks as one way for both channels.
//!
//! Frame number k of a channel travels on cable k mod n, so a long message uses all of them and the receiver always knows
//! where the next frame will come from. Nothing needs to be put back in order: each cable keeps its own.

use super::{
    devices::Lease,
    wire::{DEPTH, Wire},
};
use crate::{
    CommError,
    mesh::PIECES_UNDER_WAY,
    record::{self, Sink, Source},
    tcp::Link,
    transport::lock,
    verdict::Verdict,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Acquire},
    },
    time::{Duration, Instant},
};

/// Frames that the peer says it sent, of which none arrives for this long, are lost. With the heartbeat's 200 ms this keeps
/// the promise of 2 s; a working link delivers within milliseconds.
const LOST_AFTER: Duration = Duration::from_millis(1200);

/// How long leaving waits for the last frames to be out.
const FLUSH_WITHIN: Duration = Duration::from_millis(500);

/// The way to one peer.
#[derive(Debug)]
pub(crate) struct Path {
    wires: Vec<Mutex<Wire>>,
    link: Arc<Link>,
    /// Frames of all cables that have arrived.
    received: Arc<AtomicU64>,
    overdue: Mutex<Option<Overdue>>,
    /// Goes last, when the queue pairs are gone.
    _lease: Arc<Lease>,
}

/// Frames are announced and not here.
#[derive(Clone, Copy, Debug)]
struct Overdue {
    since: Instant,
    received: u64,
}

impl Path {
    pub(super) fn new(
        wires: Vec<Wire>,
        link: &Arc<Link>,
        received: Arc<AtomicU64>,
        lease: Arc<Lease>,
    ) -> Arc<Self> {
        let wires = wires.into_iter().map(Mutex::new).collect();
        Arc::new(Self { wires, link: Arc::clone(link), received, overdue: Mutex::default(), _lease: lease })
    }

    /// Most bytes of a record so that [`PIECES_UNDER_WAY`] of them have credit at once; each begins with a frame of its own.
    pub(crate) fn piece_bytes(&self) -> usize {
        let room = self.wires.iter().map(|wire| lock(wire).room()).min().unwrap_or(0);
        let frames = self.wires.len() * DEPTH / PIECES_UNDER_WAY;
        (frames * room).saturating_sub(record::HEADER_BYTES)
    }

    /// The sending and the receiving end of a channel.
    pub(crate) fn ends(self: &Arc<Self>, channel: usize) -> (RdmaSink, RdmaSource) {
        let sink = RdmaSink { path: Arc::clone(self), channel, next: 0 };
        (sink, RdmaSource { path: Arc::clone(self), channel, next: 0 })
    }

    /// True when all that the peer has announced has arrived.
    pub(crate) fn has_all_announced(&self) -> bool {
        self.received.load(Acquire) >= self.link.announced()
    }

    /// Waits, for a moment, until this rank's last frames are out, so that the farewell does not overtake them.
    pub(crate) fn flush(&self) {
        let until = Instant::now() + FLUSH_WITHIN;
        for wire in &self.wires {
            loop {
                let mut wire = lock(wire);
                if wire.is_flushed() || wire.poll().is_err() || Instant::now() > until {
                    break;
                }
                drop(wire);
                std::thread::yield_now();
            }
        }
    }

    /// Nothing is here to read: is that because it was lost? UC tells nobody of a frame that it dropped.
    fn check_loss(&self) -> Result<(), CommError> {
        if !self.has_all_announced() {
            // Some may have come on a cable that nobody has asked.
            self.wires.iter().try_for_each(|wire| lock(wire).poll())?;
        }
        let (received, announced) = (self.received.load(Acquire), self.link.announced());
        let mut overdue = lock(&self.overdue);
        if received >= announced {
            *overdue = None;
            return Ok(());
        }
        match *overdue {
            Some(seen) if seen.received == received => {
                if seen.since.elapsed() < LOST_AFTER {
                    return Ok(());
                }
                let rank = self.link.peer;
                let what = format!(
                    "{} of {announced} frames from rank {rank} to rank {} never arrived: the link lost them; \
                     a link that loses frames needs reliable queue pairs (rc)",
                    announced - received,
                    self.link.own()
                );
                Err(self.link.end(Verdict::LinkFailed { rank, by: self.link.own(), what }))
            }
            _ => {
                *overdue = Some(Overdue { since: Instant::now(), received });
                Ok(())
            }
        }
    }
}

/// The sending end of one channel.
#[derive(Debug)]
pub(crate) struct RdmaSink {
    path: Arc<Path>,
    channel: usize,
    /// Number of the next frame.
    next: usize,
}

impl Sink for RdmaSink {
    fn try_write(&mut self, head: &[u8], body: &[u8]) -> Result<usize, CommError> {
        let wires = &self.path.wires;
        let mut done = 0;
        while done < head.len() + body.len() {
            let (head, body) = (&head[done.min(head.len())..], &body[done.saturating_sub(head.len())..]);
            let bytes = lock(&wires[self.next % wires.len()]).send(self.channel, head, body)?;
            if bytes == 0 {
                break;
            }
            done += bytes;
            self.next = self.next.wrapping_add(1);
        }
        Ok(done)
    }
}

/// The receiving end of one channel.
#[derive(Debug)]
pub(crate) struct RdmaSource {
    path: Arc<Path>,
    channel: usize,
    /// Number of the frame to read from.
    next: usize,
}

impl Source for RdmaSource {
    fn try_read(&mut self, into: &mut [u8]) -> Result<usize, CommError> {
        let wires = &self.path.wires;
        let mut done = 0;
        while done < into.len() {
            let got = lock(&wires[self.next % wires.len()]).receive(self.channel, &mut into[done..])?;
            done += got.bytes;
            if got.frame_done {
                self.next = self.next.wrapping_add(1);
            } else {
                break;
            }
        }
        if done == 0 {
            self.path.check_loss()?;
        }
        Ok(done)
    }
}
