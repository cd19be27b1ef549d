//! One cable between two ranks: a queue pair, its buffers, and the credits that keep it from ever sending what finds
//! no receive posted.
//!
//! Both ends post the same number of receives and repost each as soon as its frame is consumed, so each may have
//! [`DEPTH`] data frames per channel under way or unread at its peer. Every frame tells how many the sender has consumed;
//! when there is no data to carry that news, a credit frame does. At most two of those per channel can be unread (each stands
//! for half of DEPTH frames that the peer does not know to be consumed, out of the DEPTH that it may have sent), so
//! four receives more than twice DEPTH are always enough. UC drops what finds no receive, and RC would stall: neither happens.

use super::frame::{FrameError, HEADER_BYTES, Header, Kind};
use crate::{
    CommError,
    tcp::{CHANNELS, Link},
    verdict::Verdict,
};
use pomar_verbs::{Completion, CompletionQueue, LocalEnd, MemoryRegion, QueuePair, RemoteEnd, VerbsError};
use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Release},
    },
};

/// Data frames of one channel that may be under way or unread, per queue pair and direction.
pub(super) const DEPTH: usize = 6;

/// Receives posted at all times but for frames that wait to be read. With 32 work requests to a queue, the most that
/// is known to work on Apple's driver, there would be room for twice as many.
pub(super) const RECEIVES: usize = CHANNELS * DEPTH + 2 * CHANNELS;

/// Frames that may be on their way out, credits included.
pub(super) const SENDS: usize = 8;

/// Send slots that data leaves free for credits.
const CREDIT_SENDS: usize = 2;

/// Buffers of one queue pair.
pub(super) const SLOTS: usize = RECEIVES + SENDS;

/// A set bit in a work request's id says that it is a receive; the rest is the slot.
const RECEIVE: u64 = 1 << 32;

/// Completions taken from the queue at a time.
const BATCH: usize = 8;

/// Where a wire's buffers lie: `SLOTS` frames in a row inside a registered region. The first `RECEIVES` are for receiving.
#[derive(Debug)]
pub(super) struct Slots {
    region: Arc<MemoryRegion>,
    start: usize,
    frame_bytes: usize,
}

impl Slots {
    /// Slots from byte `start` of `region` on. The caller gives each byte of the region to one wire.
    pub(super) fn new(region: Arc<MemoryRegion>, start: usize, frame_bytes: usize) -> Self {
        assert!(start + SLOTS * frame_bytes <= region.len() && frame_bytes > HEADER_BYTES);
        Self { region, start, frame_bytes }
    }

    fn range(&self, slot: usize, bytes: usize) -> Range<usize> {
        assert!(slot < SLOTS && bytes <= self.frame_bytes);
        let start = self.start + slot * self.frame_bytes;
        start..start + bytes
    }

    /// The first `bytes` of a slot that is not with the device.
    ///
    /// # Safety
    /// No work request that uses the slot is posted, and nobody else has a reference into it.
    unsafe fn bytes(&self, slot: usize, bytes: usize) -> &[u8] {
        let range = self.range(slot, bytes);
        // SAFETY: inside the region, which is initialised memory that lives as long as `self.region`.
        unsafe { std::slice::from_raw_parts(self.region.as_ptr().add(range.start), bytes) }
    }

    /// As [`Slots::bytes`], to write to.
    ///
    /// # Safety
    /// As for [`Slots::bytes`].
    unsafe fn bytes_mut(&mut self, slot: usize, bytes: usize) -> &mut [u8] {
        let range = self.range(slot, bytes);
        // SAFETY: as in `bytes`; `&mut self` makes it the only reference made by this process.
        unsafe { std::slice::from_raw_parts_mut(self.region.as_ptr().add(range.start), bytes) }
    }
}

/// A data frame that has arrived and waits to be read.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    slot: usize,
    /// Next byte of the frame to read.
    from: usize,
    /// End of the frame.
    end: usize,
}

/// One end of a queue pair. The queue pair comes first, so that it is destroyed before the memory it uses.
#[derive(Debug)]
pub(super) struct Wire {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    slots: Slots,
    link: Arc<Link>,
    /// Frames of all wires to this peer that have arrived.
    received_in_all: Arc<AtomicU64>,
    name: String,
    checksum: bool,
    /// Most payload bytes of a frame.
    room: usize,
    free_sends: Vec<usize>,
    arrived: [VecDeque<Arrived>; CHANNELS],
    next_sent: u64,
    next_received: u64,
    /// Data frames per channel, modulo 2^32: sent, consumed by the peer as far as it has told, consumed here, and told
    /// to the peer.
    sent: [u32; CHANNELS],
    peer_consumed: [u32; CHANNELS],
    consumed: [u32; CHANNELS],
    told: [u32; CHANNELS],
}

/// What a wire is made of.
pub(super) struct Parts {
    pub(super) queue_pair: QueuePair,
    pub(super) completions: CompletionQueue,
    pub(super) slots: Slots,
    pub(super) link: Arc<Link>,
    pub(super) received_in_all: Arc<AtomicU64>,
    /// The device, for messages.
    pub(super) name: String,
    pub(super) checksum: bool,
}

impl Wire {
    /// Posts all receives. The queue pair is in state INIT at least, and nothing has been posted to it.
    pub(super) fn new(parts: Parts) -> Result<Self, VerbsError> {
        let Parts { queue_pair, completions, slots, link, received_in_all, name, checksum } = parts;
        let queue = || VecDeque::with_capacity(RECEIVES);
        let room = slots.frame_bytes - HEADER_BYTES;
        let wire = Self {
            room,
            queue_pair,
            completions,
            slots,
            link,
            received_in_all,
            name,
            checksum,
            free_sends: (RECEIVES..SLOTS).collect(),
            arrived: [queue(), queue()],
            next_sent: 0,
            next_received: 0,
            sent: [0; CHANNELS],
            peer_consumed: [0; CHANNELS],
            consumed: [0; CHANNELS],
            told: [0; CHANNELS],
        };
        (0..RECEIVES).try_for_each(|slot| wire.post_receive(slot))?;
        Ok(wire)
    }

    /// Connects the queue pair to the peer's.
    pub(super) fn connect(&self, local: &LocalEnd, remote: &RemoteEnd) -> Result<(), VerbsError> {
        self.queue_pair.connect(local, remote)
    }

    /// What was agreed with the peer after the receives were posted: the most bytes of a frame, never more than posted.
    pub(super) fn agree(&mut self, frame_bytes: usize, checksum: bool) {
        self.room = frame_bytes.min(self.slots.frame_bytes) - HEADER_BYTES;
        self.checksum = checksum;
    }

    /// Most payload bytes of a frame.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    fn post_receive(&self, slot: usize) -> Result<(), VerbsError> {
        let range = self.slots.range(slot, self.slots.frame_bytes);
        // SAFETY: the slot is a receive slot that is not posted and holds nothing that is still to be read; it is touched
        // again only after its completion. The memory outlives the queue pair, which is the first field to be dropped.
        unsafe { self.queue_pair.post_receive(RECEIVE | slot as u64, &self.slots.region, range) }
    }

    /// Sends as much of `head` followed by `body` as one frame takes; 0 when there is no credit or no free buffer.
    pub(super) fn send(&mut self, channel: usize, head: &[u8], body: &[u8]) -> Result<usize, CommError> {
        if !self.may_send(channel) {
            self.poll()?;
            if !self.may_send(channel) {
                return Ok(0);
            }
        }
        let head = &head[..head.len().min(self.room)];
        let body = &body[..body.len().min(self.room - head.len())];
        self.post_frame(Kind::Data, channel, head, body)?;
        Ok(head.len() + body.len())
    }

    fn may_send(&self, channel: usize) -> bool {
        let under_way = self.sent[channel].wrapping_sub(self.peer_consumed[channel]) as usize;
        under_way < DEPTH && self.free_sends.len() > CREDIT_SENDS
    }

    /// Posts one frame. There is a free send slot.
    fn post_frame(&mut self, kind: Kind, channel: usize, head: &[u8], body: &[u8]) -> Result<(), CommError> {
        let Some(slot) = self.free_sends.pop() else { return Ok(()) };
        let length = head.len() + body.len();
        let header = Header { kind, channel, sequence: self.next_sent, length, consumed: self.consumed };
        let bytes = HEADER_BYTES + length;
        // SAFETY: a free send slot is not posted.
        let frame = unsafe { self.slots.bytes_mut(slot, bytes) };
        frame[HEADER_BYTES..HEADER_BYTES + head.len()].copy_from_slice(head);
        frame[HEADER_BYTES + head.len()..].copy_from_slice(body);
        header.write(frame, self.checksum);

        self.link.count_sent_elsewhere();
        let range = self.slots.range(slot, bytes);
        // SAFETY: the slot leaves `free_sends` until its completion has come; the memory outlives the queue pair.
        let posted = unsafe { self.queue_pair.post_send(slot as u64, &self.slots.region, range) };
        posted.map_err(|error| self.failed(&error.to_string()))?;
        self.next_sent += 1;
        self.told = self.consumed;
        if kind == Kind::Data {
            self.sent[channel] = self.sent[channel].wrapping_add(1);
        }
        Ok(())
    }

    /// Reads what has arrived on a channel into `into`; 0 when nothing has.
    pub(super) fn receive(&mut self, channel: usize, into: &mut [u8]) -> Result<Received, CommError> {
        if self.arrived[channel].is_empty() {
            self.poll()?;
        }
        let Some(frame) = self.arrived[channel].front_mut() else {
            return Ok(Received { bytes: 0, frame_done: false });
        };
        let bytes = into.len().min(frame.end - frame.from);
        let (slot, from, end) = (frame.slot, frame.from, frame.end);
        frame.from += bytes;
        let frame_done = frame.from == end;
        // SAFETY: the slot's receive has completed, and it is posted again only below.
        into[..bytes].copy_from_slice(unsafe { &self.slots.bytes(slot, end)[from..from + bytes] });
        if frame_done {
            self.arrived[channel].pop_front();
            self.post_receive(slot).map_err(|error| self.failed(&error.to_string()))?;
            self.consumed[channel] = self.consumed[channel].wrapping_add(1);
            self.tell_if_due()?;
        }
        Ok(Received { bytes, frame_done })
    }

    /// Sends a credit frame once half a channel's depth is consumed that the peer does not know of.
    fn tell_if_due(&mut self) -> Result<(), CommError> {
        let untold = |channel: usize| self.consumed[channel].wrapping_sub(self.told[channel]) as usize;
        if (0..CHANNELS).all(|channel| untold(channel) < DEPTH / 2) {
            return Ok(());
        }
        if self.free_sends.is_empty() {
            self.poll()?;
        }
        // Without a free buffer the news waits for the next frame, or the next poll.
        self.post_frame(Kind::Credit, 0, &[], &[])
    }

    /// Takes all completions that are there.
    pub(super) fn poll(&mut self) -> Result<(), CommError> {
        let mut batch = [Completion::default(); BATCH];
        loop {
            let polled = self.completions.poll(&mut batch);
            let count = polled.map_err(|error| self.failed(&error.to_string()))?;
            for completion in &batch[..count] {
                self.complete(completion)?;
            }
            if count < BATCH {
                return Ok(());
            }
        }
    }

    fn complete(&mut self, completion: &Completion) -> Result<(), CommError> {
        if !completion.status.is_ok() {
            return Err(self.failed(&completion.status.to_string()));
        }
        let slot = (completion.id & (RECEIVE - 1)) as usize;
        if completion.id & RECEIVE == 0 {
            self.free_sends.push(slot);
            return Ok(());
        }
        // The device wrote no more than the posted length; a broken one must not make us read beyond it.
        let bytes = (completion.bytes as usize).min(self.slots.frame_bytes);
        // SAFETY: the slot's receive has just completed, and nothing else refers to it.
        let message = unsafe { self.slots.bytes(slot, bytes) };
        let header = Header::read(message, self.checksum).map_err(|error| match error {
            FrameError::Damaged { .. } | FrameError::Length { .. } => self.failed(&error.to_string()),
            other => self.broken(other.to_string()),
        })?;
        if header.sequence != self.next_received {
            let what = format!(
                "frame {} arrived where frame {} was due: the link lost frames",
                header.sequence, self.next_received
            );
            return Err(self.failed(&what));
        }
        self.next_received += 1;
        self.received_in_all.fetch_add(1, Release);
        self.note_consumed(header.consumed)?;
        match header.kind {
            Kind::Credit => self.post_receive(slot).map_err(|error| self.failed(&error.to_string())),
            Kind::Data if self.arrived[header.channel].len() == DEPTH => {
                Err(self.broken("more frames than this rank gave credit for".into()))
            }
            Kind::Data => {
                let arrived = Arrived { slot, from: HEADER_BYTES, end: HEADER_BYTES + header.length };
                self.arrived[header.channel].push_back(arrived);
                Ok(())
            }
        }
    }

    fn note_consumed(&mut self, consumed: [u32; CHANNELS]) -> Result<(), CommError> {
        let under_way = |(sent, consumed): (u32, u32)| sent.wrapping_sub(consumed) as usize;
        if self.sent.into_iter().zip(consumed).map(under_way).any(|frames| frames > DEPTH) {
            return Err(self.broken("it consumed frames that were never sent".into()));
        }
        self.peer_consumed = consumed;
        Ok(())
    }

    /// True when every frame is out of this rank's hands.
    pub(super) fn is_flushed(&self) -> bool {
        self.free_sends.len() == SENDS
    }

    /// The link is of no more use. What breaks after the peer's farewell is the farewell.
    fn failed(&self, what: &str) -> CommError {
        let rank = self.link.peer;
        if self.link.has_left() {
            return CommError::PeerDead { rank, what: "it left the group".into() };
        }
        // All ranks get these words, so they name this end too.
        let by = self.link.own();
        let what = format!("{} of rank {by}: {what}", self.name);
        self.link.end(Verdict::LinkFailed { rank, by, what })
    }

    fn broken(&self, what: String) -> CommError {
        self.link.end(Verdict::Broken { rank: self.link.peer, what })
    }
}

/// What [`Wire::receive`] brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) bytes: usize,
    /// The frame is used up: the channel's next bytes come with another frame.
    pub(super) frame_done: bool,
}
