//! One peer: two channels of bytes and the notices, all as MPI messages.
//!
//! A *channel* is a stream of bytes (point to point, or collectives), cut into messages of at most [`MESSAGE_BYTES`]; a
//! message of no bytes is its end. The sender copies into slots of its own, the receiver keeps receives posted for
//! messages to come and copies out of them. A window limits what may be under way, so that what MPI itself has to keep
//! (short messages for which no receive is posted yet) stays bounded; the receiver's notices open it again.

use super::{
    notice::{self, NOTICE_BYTES, News},
    process::{Entered, Process, TAGS_PER_GROUP},
    slot::Slot,
};
use crate::{
    CommError,
    record::{HEADER_BYTES, Sink, Source},
    stop::Stop,
    transport::lock,
    verdict::{Verdict, VerdictCell},
    wait::Bell,
};
use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Number of channels.
pub(super) const CHANNELS: usize = 2;

/// Tag of the notices, after those of the channels.
const NOTICES: usize = CHANNELS;
const _: () = assert!(NOTICES as i32 + 1 == TAGS_PER_GROUP);

/// Most bytes of a message. Half a piece of a collective, so that copying one half overlaps with moving the other.
const MESSAGE_BYTES: usize = (64 << 10) + HEADER_BYTES;

/// Messages of a channel that can be on their way out, and receives posted for those to come in: together 1 MiB.
const SLOTS: usize = 8;

/// Notices that can be on their way out. More wait until the next look.
const NOTICE_SLOTS: usize = 4;

/// Bytes of a channel that may be under way or unread.
const WINDOW: u64 = 1 << 20;

/// Consumed bytes that are worth a notice.
const CREDIT_STEP: u64 = WINDOW / 4;

/// What all links of a group have in common.
#[derive(Debug, Default)]
pub(super) struct Common {
    pub(super) verdict: VerdictCell,
    pub(super) bell: Bell,
    pub(super) stop: Stop,
}

impl Common {
    /// Ends the group on this rank; the attending thread tells the others at once.
    pub(super) fn end(&self, verdict: Verdict) {
        if self.verdict.set(verdict) {
            self.bell.ring();
            self.stop.hurry();
        }
    }
}

/// The way to and from one peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: usize,
    first_tag: i32,
    process: Arc<Process>,
    common: Arc<Common>,
    outgoing: [Mutex<Outgoing>; CHANNELS],
    incoming: [Mutex<Incoming>; CHANNELS],
    notices: Mutex<Notices>,
    /// Counts the peer's notices: its sign of life.
    heard: AtomicU64,
    left: AtomicBool,
    /// Bytes of each channel that the peer has consumed, and that this rank has.
    consumed_there: [AtomicU64; CHANNELS],
    consumed_here: [AtomicU64; CHANNELS],
}

/// A channel's messages to the peer.
#[derive(Debug)]
struct Outgoing {
    slots: [Slot; SLOTS],
    /// For the message of no bytes.
    end: Slot,
    sent: u64,
}

/// A channel's messages from the peer. Receives are posted in the order of the slots, so messages fill them in turn.
#[derive(Debug)]
struct Incoming {
    slots: [Slot; SLOTS],
    next: usize,
    /// Of the message in `slots[next]`, when it has arrived: its length, and how much of it has been read.
    arrived: Option<(usize, usize)>,
    credited: u64,
}

#[derive(Debug)]
struct Notices {
    incoming: Slot,
    outgoing: [Slot; NOTICE_SLOTS],
    told_verdict: bool,
}

impl Link {
    /// A link with all its receives posted.
    pub(super) fn new(
        peer: usize,
        first_tag: i32,
        process: &Arc<Process>,
        common: &Arc<Common>,
    ) -> Result<Self, CommError> {
        let slots = || std::array::from_fn(|_| Slot::new(MESSAGE_BYTES));
        let outgoing = || Outgoing { slots: slots(), end: Slot::new(0), sent: 0 };
        let incoming = || Incoming { slots: slots(), next: 0, arrived: None, credited: 0 };
        let notices = Notices {
            incoming: Slot::new(NOTICE_BYTES),
            outgoing: std::array::from_fn(|_| Slot::new(NOTICE_BYTES)),
            told_verdict: false,
        };
        let link = Self {
            peer,
            first_tag,
            process: Arc::clone(process),
            common: Arc::clone(common),
            outgoing: std::array::from_fn(|_| Mutex::new(outgoing())),
            incoming: std::array::from_fn(|_| Mutex::new(incoming())),
            notices: Mutex::new(notices),
            heard: AtomicU64::new(0),
            left: AtomicBool::new(false),
            consumed_there: Default::default(),
            consumed_here: Default::default(),
        };
        link.post_all()?;
        Ok(link)
    }

    fn post_all(&self) -> Result<(), CommError> {
        for (channel, incoming) in self.incoming.iter().enumerate() {
            let mut incoming = lock(incoming);
            let mpi = self.process.enter()?;
            for slot in &mut incoming.slots {
                slot.receive(&mpi, self.peer, self.tag(channel))?;
            }
        }
        let mut notices = lock(&self.notices);
        notices.incoming.receive(&self.process.enter()?, self.peer, self.tag(NOTICES))?;
        Ok(())
    }

    fn tag(&self, stream: usize) -> i32 {
        // Three streams, so it fits.
        self.first_tag + stream as i32
    }

    /// This rank.
    pub(super) fn own(&self) -> usize {
        self.process.world.rank
    }

    /// A counter that moves while the peer lives.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// True once the peer has said farewell. What it sent before may still be on its way.
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Acquire)
    }

    fn left_error(&self) -> CommError {
        CommError::PeerDead { rank: self.peer, what: "it left the group".into() }
    }

    /// What has to be done now and then whatever the callers do: hears the peer's notices, moves messages on, and tells
    /// the verdict, or else (when `beat`) that this rank is alive. Says whether messages are still on their way out.
    pub(super) fn attend(&self, beat: bool) -> Result<bool, CommError> {
        self.hear()?;
        let mut busy = false;
        for outgoing in &self.outgoing {
            // A caller that is just sending moves things on by itself.
            if let Ok(mut outgoing) = outgoing.try_lock() {
                busy |= !outgoing.is_sent(&self.process)?;
            }
        }
        match self.common.verdict.get() {
            Some(verdict) => busy |= !self.tell_verdict(verdict)?,
            None if beat && !self.has_left() => {
                self.tell(&News::Alive)?;
            }
            None => {}
        }
        Ok(busy)
    }

    /// Takes in the notices that have come.
    fn hear(&self) -> Result<(), CommError> {
        let mut notices = lock(&self.notices);
        let slot = &mut notices.incoming;
        let mpi = self.process.enter()?;
        while let Some(length) = slot.received(&mpi)? {
            let Some((news, consumed)) = notice::read(&slot.bytes()[..length]) else {
                let what = format!("a notice of {length} bytes that is none");
                return Err(CommError::Protocol { rank: self.peer, what });
            };
            self.heard.fetch_add(1, Relaxed);
            for (known, told) in self.consumed_there.iter().zip(consumed) {
                known.fetch_max(told, Release);
            }
            match news {
                News::Alive => {}
                News::Farewell => self.left.store(true, Release),
                News::Verdict(verdict) => self.common.end(verdict.seen_by(self.own())),
            }
            slot.receive(&mpi, self.peer, self.tag(NOTICES))?;
        }
        Ok(())
    }

    /// Sends a notice; false when all slots are on their way, so that it has to be tried again.
    fn tell(&self, news: &News) -> Result<bool, CommError> {
        self.tell_from(&mut lock(&self.notices), news)
    }

    fn tell_from(&self, notices: &mut Notices, news: &News) -> Result<bool, CommError> {
        let mpi = self.process.enter()?;
        for slot in &mut notices.outgoing {
            if slot.is_sent(&mpi)? {
                let consumed = std::array::from_fn(|channel| self.consumed_here[channel].load(Relaxed));
                let length = notice::write(news, consumed, slot.bytes_mut());
                slot.send(&mpi, length, self.peer, self.tag(NOTICES))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tells the verdict unless that has been done; says whether it has.
    fn tell_verdict(&self, verdict: &Verdict) -> Result<bool, CommError> {
        let mut notices = lock(&self.notices);
        if !notices.told_verdict {
            notices.told_verdict = self.tell_from(&mut notices, &News::Verdict(verdict.clone()))?;
        }
        Ok(notices.told_verdict)
    }

    /// Ends both channels and says farewell.
    pub(super) fn leave(&self) -> Result<(), CommError> {
        for (channel, outgoing) in self.outgoing.iter().enumerate() {
            let mut outgoing = lock(outgoing);
            outgoing.end.send(&self.process.enter()?, 0, self.peer, self.tag(channel))?;
        }
        self.tell(&News::Farewell).map(drop)
    }

    /// Whether everything that was sent has left this rank's memory.
    pub(super) fn is_settled(&self) -> Result<bool, CommError> {
        let mut settled = true;
        for outgoing in &self.outgoing {
            settled &= lock(outgoing).is_sent(&self.process)?;
        }
        let mut notices = lock(&self.notices);
        let mpi = self.process.enter()?;
        for slot in &mut notices.outgoing {
            settled &= slot.is_sent(&mpi)?;
        }
        Ok(settled)
    }

    /// Takes in what the peer still sends, unread; says whether it has ended both channels and said farewell.
    pub(super) fn is_over(&self) -> Result<bool, CommError> {
        self.hear()?;
        let mut over = self.has_left();
        for (channel, incoming) in self.incoming.iter().enumerate() {
            let mut incoming = lock(incoming);
            while let Some((1.., _)) = incoming.message(self)? {
                incoming.next_message(self, channel)?;
            }
            over &= incoming.arrived.is_some();
        }
        Ok(over)
    }

    /// Takes all posted receives back; to be followed by [`Link::is_withdrawn`].
    pub(super) fn withdraw(&self) -> Result<(), CommError> {
        for incoming in &self.incoming {
            let incoming = lock(incoming);
            let mpi = self.process.enter()?;
            incoming.slots.iter().for_each(|slot| slot.cancel(&mpi));
        }
        let notices = lock(&self.notices);
        notices.incoming.cancel(&self.process.enter()?);
        Ok(())
    }

    /// Whether MPI has given back all receives.
    pub(super) fn is_withdrawn(&self) -> Result<bool, CommError> {
        let mut withdrawn = true;
        for incoming in &self.incoming {
            let mut incoming = lock(incoming);
            let mpi = self.process.enter()?;
            for slot in &mut incoming.slots {
                slot.received(&mpi)?;
                withdrawn &= slot.is_free();
            }
        }
        let mut notices = lock(&self.notices);
        notices.incoming.received(&self.process.enter()?)?;
        Ok(withdrawn && notices.incoming.is_free())
    }
}

impl Outgoing {
    /// Any slot will do: MPI keeps the order in which sends begin, and short ones may be through before long ones.
    fn free_slot(&mut self, mpi: &Entered<'_>) -> Result<Option<&mut Slot>, CommError> {
        for slot in &mut self.slots {
            if slot.is_sent(mpi)? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn is_sent(&mut self, process: &Process) -> Result<bool, CommError> {
        let mpi = process.enter()?;
        let mut sent = true;
        for slot in self.slots.iter_mut().chain([&mut self.end]) {
            sent &= slot.is_sent(&mpi)?;
        }
        Ok(sent)
    }
}

/// The sending end of one channel.
#[derive(Debug)]
pub(crate) struct MpiSink {
    link: Arc<Link>,
    channel: usize,
}

impl MpiSink {
    pub(super) fn new(link: &Arc<Link>, channel: usize) -> Self {
        Self { link: Arc::clone(link), channel }
    }

    /// Bytes that may follow the `sent` ones.
    fn room(&self, sent: u64) -> Result<usize, CommError> {
        let consumed = self.link.consumed_there[self.channel].load(Acquire);
        let under_way = sent.checked_sub(consumed).ok_or_else(|| CommError::Protocol {
            rank: self.link.peer,
            what: format!("it consumed {consumed} bytes of {sent} sent"),
        })?;
        // Never more than the window is sent.
        Ok((WINDOW - under_way) as usize)
    }
}

impl Sink for MpiSink {
    fn try_write(&mut self, head: &[u8], body: &[u8]) -> Result<usize, CommError> {
        let link = &*self.link;
        if link.has_left() {
            return Err(link.left_error());
        }
        let mut outgoing = lock(&link.outgoing[self.channel]);
        let mut room = self.room(outgoing.sent)?;
        if room == 0 {
            link.hear()?;
            room = self.room(outgoing.sent)?;
        }
        let room = room.min(MESSAGE_BYTES);
        let head = &head[..head.len().min(room)];
        let body = &body[..body.len().min(room - head.len())];
        let length = head.len() + body.len();
        if length == 0 {
            return Ok(0);
        }
        let mpi = link.process.enter()?;
        let Some(slot) = outgoing.free_slot(&mpi)? else { return Ok(0) };
        let bytes = slot.bytes_mut();
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..length].copy_from_slice(body);
        slot.send(&mpi, length, link.peer, link.tag(self.channel))?;
        outgoing.sent += length as u64;
        Ok(length)
    }
}

/// The receiving end of one channel.
#[derive(Debug)]
pub(crate) struct MpiSource {
    link: Arc<Link>,
    channel: usize,
}

impl MpiSource {
    pub(super) fn new(link: &Arc<Link>, channel: usize) -> Self {
        Self { link: Arc::clone(link), channel }
    }
}

impl Incoming {
    /// The message that is due, once it has arrived: its length, and how much of it has been read.
    fn message(&mut self, link: &Link) -> Result<Option<(usize, usize)>, CommError> {
        if self.arrived.is_none() {
            let length = self.slots[self.next].received(&link.process.enter()?)?;
            self.arrived = length.map(|length| (length, 0));
        }
        Ok(self.arrived)
    }

    /// Has done with the message and posts its slot for a later one.
    fn next_message(&mut self, link: &Link, channel: usize) -> Result<(), CommError> {
        self.arrived = None;
        self.slots[self.next].receive(&link.process.enter()?, link.peer, link.tag(channel))?;
        self.next = (self.next + 1) % SLOTS;
        Ok(())
    }
}

impl Source for MpiSource {
    fn try_read(&mut self, into: &mut [u8]) -> Result<usize, CommError> {
        let link = &*self.link;
        let mut incoming = lock(&link.incoming[self.channel]);
        let Some((length, read)) = incoming.message(link)? else { return Ok(0) };
        if length == 0 {
            return Err(link.left_error());
        }
        let bytes = into.len().min(length - read);
        into[..bytes].copy_from_slice(&incoming.slots[incoming.next].bytes()[read..read + bytes]);
        incoming.arrived = Some((length, read + bytes));
        if read + bytes == length {
            incoming.next_message(link, self.channel)?;
        }
        let consumed = link.consumed_here[self.channel].fetch_add(bytes as u64, Relaxed) + bytes as u64;
        if consumed - incoming.credited >= CREDIT_STEP && link.tell(&News::Alive)? {
            incoming.credited = consumed;
        }
        Ok(bytes)
    }
}
