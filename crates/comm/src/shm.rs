//! Ranks on one machine, talking through shared memory.
//!
//! **Collectives.** Every rank has two *slots*. In exchange number k it writes its piece to one of them, writes what it
//! called beside it, publishes k, and waits until all peers have published k; then it reads the peers' slots. More than
//! two ranks write to slot k mod 2. Two slots are enough for one meeting per exchange: whoever writes for k + 2 has seen all
//! peers publish k + 1, which they do only after they are through with reading k.
//!
//! Two ranks swap slots instead: each writes where it has just read. The lines of that slot are in its cache already, and
//! nobody else wants them any more, so a line changes caches once per exchange, and not twice. That halves the time of an
//! all_sum of 8 KiB.
//!
//! **Point to point.** One single-writer, single-reader byte ring per ordered pair.
//!
//! **Trust.** All ranks of an instance run as one user, but a rank that went mad must not take the others along: cursors
//! and stamps are checked, data is only ever copied or added through raw pointers, and the size of the memory is sealed.

mod layout;
mod liveness;
mod segment;

pub use layout::ShmLayout;
pub use segment::{Segment, inherited_fd};

use crate::{
    CommError, GroupOptions,
    call::Stamp,
    record::{Sink, Source, Stream},
    spsc::{Corrupt, Owner, Reader, RingMemory, Writer},
    stop::Stop,
    transport::{Pieces, Seat, Step, Transport},
    verdict::{MAX_REASON_BYTES, Verdict, cut_reason},
    wait::{Bell, Wait},
};
use layout::{Control, VERDICT};
use segment::Mapping;
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, Once,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const FREE: u64 = 0;
const JOINED: u64 = 1;
const LEFT: u64 = 2;

/// A rank's part in a group over shared memory. Dropping it leaves the group.
///
/// ```
/// use pomar_comm::{Group, GroupOptions, Segment, ShmGroup};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = Segment::create(2)?;
/// let other = segment.try_clone_fd()?;
/// // Threads here; processes get the descriptor with `Segment::inherit`.
/// let peer = std::thread::spawn(move || {
///     let group = ShmGroup::attach(other, 1, 2, GroupOptions::default())?;
///     let mut part = [10_i64, 20];
///     group.all_sum(part.as_mut_slice().into())?;
///     group.send_message(0, b"done")
/// });
/// let group = ShmGroup::attach(segment.into_owned_fd(), 0, 2, GroupOptions::default())?;
/// let mut part = [1_i64, 2];
/// group.all_sum(part.as_mut_slice().into())?;
/// assert_eq!(part, [11, 22]);
/// let mut message = Vec::new();
/// group.recv_message(1, &mut message)?;
/// assert_eq!(message, b"done");
/// # peer.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ShmGroup {
    outboxes: Vec<Mutex<Stream<ShmSink>>>,
    inboxes: Vec<Mutex<Stream<ShmSource>>>,
    collective: Mutex<Turns>,
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
}

impl ShmGroup {
    /// Takes the place of `rank` in the segment behind `fd`, and waits until all ranks have taken theirs.
    ///
    /// # Errors
    /// [`CommError::Setup`] when the segment is not one of ours, is for another `size`, or the place is taken;
    /// [`CommError::DidNotJoin`] when somebody does not come; [`CommError::PeerDead`] when one dies meanwhile.
    pub fn attach(fd: OwnedFd, rank: usize, size: usize, options: GroupOptions) -> Result<Self, CommError> {
        let seat = Seat::new(rank, size, &options)?;
        let (mapping, layout) = Mapping::attach(fd.as_fd())?;
        if layout.size() != size {
            let what = format!("the segment is for {} ranks, this rank was told {size}", layout.size());
            return Err(CommError::Setup { what });
        }
        let shared = Arc::new(Shared {
            mapping,
            layout,
            seat,
            dead_after: options.dead_after,
            reason_given: Once::new(),
            stop: Stop::default(),
        });
        shared.take_place()?;
        let watcher = Arc::clone(&shared);
        let watch = thread::Builder::new()
            .name(format!("pomar-shm-{rank}"))
            .spawn(move || liveness::keep_watch(&watcher))
            .map_err(|source| CommError::Io { what: "starting the heartbeat thread", source })?;
        let group = Self {
            outboxes: (0..size).map(|peer| Mutex::new(Stream::new(ShmSink::new(&shared, peer)))).collect(),
            inboxes: (0..size).map(|peer| Mutex::new(Stream::new(ShmSource::new(&shared, peer)))).collect(),
            collective: Mutex::new(Turns::new(&shared)),
            shared,
            watch: Some(watch),
        };
        group.shared.wait_for_all(options.join_deadline)?;
        Ok(group)
    }
}

impl Drop for ShmGroup {
    fn drop(&mut self) {
        self.shared.stop.stop();
        if let Some(watch) = self.watch.take() {
            // A panic there has been printed; there is nothing more to do about it here.
            let _ = watch.join();
        }
        self.shared.word(self.shared.seat.rank, Control::State).store(LEFT, Release);
        self.shared.ring_all();
    }
}

/// What the group and its watching thread have in common.
#[derive(Debug)]
struct Shared {
    mapping: Mapping,
    layout: ShmLayout,
    seat: Seat,
    dead_after: Duration,
    /// This rank writes one reason at most.
    reason_given: Once,
    stop: Stop,
}

impl Shared {
    fn word(&self, rank: usize, field: Control) -> &AtomicU64 {
        self.mapping.word(self.layout.control(rank, field))
    }

    fn bell_of(&self, rank: usize) -> &Bell {
        let offset = self.layout.control(rank, Control::Bell);
        let start = self.mapping.range(offset, size_of::<Bell>(), align_of::<Bell>());
        // SAFETY: in the mapping and aligned, as `range` checked; a Bell is two atomics, for which every bit pattern is
        // valid, and all processes use this memory as a Bell only.
        unsafe { start.cast::<Bell>().as_ref() }
    }

    fn ring_all(&self) {
        for rank in 0..self.seat.size {
            self.bell_of(rank).ring();
        }
    }

    /// Joined and not left.
    fn is_present(&self, rank: usize) -> bool {
        self.word(rank, Control::State).load(Acquire) == JOINED
    }

    fn take_place(&self) -> Result<(), CommError> {
        let rank = self.seat.rank;
        self.word(rank, Control::Pid).store(u64::from(std::process::id()), Relaxed);
        let state = self.word(rank, Control::State);
        if state.compare_exchange(FREE, JOINED, AcqRel, Relaxed).is_err() {
            return Err(CommError::Setup { what: format!("the place of rank {rank} is already taken") });
        }
        Ok(())
    }

    fn wait_for_all(&self, within: Duration) -> Result<(), CommError> {
        let started = Instant::now();
        while let Some(missing) =
            self.seat.peers().find(|peer| self.word(*peer, Control::State).load(Acquire) == FREE)
        {
            self.verdict()?;
            if started.elapsed() >= within {
                return Err(CommError::DidNotJoin { missing, after: within });
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ends the group for all ranks, unless it has ended already.
    fn end(&self, verdict: Verdict) {
        let (kind, rank, text) = match verdict {
            Verdict::Dead { rank, what } => (DEAD, rank, what),
            Verdict::Broken { rank, what } => (BROKEN, rank, what),
            Verdict::LinkFailed { rank, what, .. } => (LINK_FAILED, rank, what),
            Verdict::Aborted { by, reason } => (ABORTED, by, reason),
        };
        self.reason_given.call_once(|| self.write_reason(&text));
        let word = kind << 32 | (rank as u64) << 16 | self.seat.rank as u64;
        // Release: whoever reads the word finds the reason.
        let _ = self.mapping.word(VERDICT).compare_exchange(0, word, AcqRel, Relaxed);
        self.ring_all();
    }

    fn write_reason(&self, text: &str) {
        let text = cut_reason(text).as_bytes();
        let offset = self.layout.control(self.seat.rank, Control::Reason);
        let start = self.mapping.range(offset, text.len(), 8);
        // SAFETY: in the mapping, as `range` checked. Only this rank writes its reason, once, and others read it only
        // after the verdict word that follows.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), start.as_ptr(), text.len()) };
        self.word(self.seat.rank, Control::ReasonLength).store(text.len() as u64, Relaxed);
    }

    fn read_reason(&self, rank: usize) -> String {
        let stated = self.word(rank, Control::ReasonLength).load(Relaxed);
        let length = usize::try_from(stated).unwrap_or(usize::MAX).min(MAX_REASON_BYTES);
        let mut text = [0; MAX_REASON_BYTES];
        let start = self.mapping.range(self.layout.control(rank, Control::Reason), length, 8);
        // SAFETY: in the mapping, as `range` checked; written before the verdict word that we have read.
        unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), text.as_mut_ptr(), length) };
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    fn verdict(&self) -> Result<(), CommError> {
        let word = self.mapping.word(VERDICT).load(Acquire);
        if word == 0 {
            return Ok(());
        }
        let last = self.seat.size - 1;
        let rank = ((word >> 16 & 0xffff) as usize).min(last);
        let by = ((word & 0xffff) as usize).min(last);
        let reason = self.read_reason(by);
        let verdict = match word >> 32 {
            DEAD => Verdict::Dead { rank, what: reason },
            BROKEN => Verdict::Broken { rank, what: reason },
            LINK_FAILED => Verdict::LinkFailed { rank, by, what: reason },
            _ => Verdict::Aborted { by: rank, reason },
        };
        Err(verdict.to_error())
    }
}

/// The verdict word: kind in the upper half, then 16 bits for the rank it is about and 16 for the rank that
/// pronounced it and gives the reason. 0 while the group lives.
const DEAD: u64 = 1;
const ABORTED: u64 = 2;
const BROKEN: u64 = 3;
const LINK_FAILED: u64 = 4;

/// This rank's place in the sequence of exchanges.
#[derive(Debug)]
pub(crate) struct Turns {
    turn: u64,
    /// Addresses of the slots that the ranks write to, in even turns and in odd ones.
    slots: [SlotTable; 2],
}

/// Addresses in the mapping of the group's `shared`, which lives as long as the group.
#[derive(Debug)]
struct SlotTable(Vec<*const u8>);

// SAFETY: addresses in a mapping that all threads share; see Mapping.
unsafe impl Send for SlotTable {}

impl Turns {
    fn new(shared: &Shared) -> Self {
        let Shared { mapping, layout, seat, .. } = shared;
        let slot = |rank, parity| {
            let (rank, parity) = if seat.size == 2 { ((rank + parity) % 2, 0) } else { (rank, parity) };
            mapping.range(layout.slot(rank, parity), layout.slot_bytes(), 64).as_ptr().cast_const()
        };
        let table = |parity| SlotTable((0..seat.size).map(|rank| slot(rank, parity)).collect());
        Self { turn: 0, slots: [table(0), table(1)] }
    }

    /// Where the ranks write in this turn.
    fn slots(&self) -> &[*const u8] {
        &self.slots[self.parity()].0
    }

    fn parity(&self) -> usize {
        (self.turn % 2) as usize
    }

    fn stamp_field(&self) -> Control {
        if self.parity() == 0 { Control::EvenStamp } else { Control::OddStamp }
    }
}

impl Transport for ShmGroup {
    type Collective = Turns;
    type Sink = ShmSink;
    type Source = ShmSource;

    fn seat(&self) -> &Seat {
        &self.shared.seat
    }

    fn bell(&self) -> &Bell {
        self.shared.bell_of(self.shared.seat.rank)
    }

    fn verdict(&self) -> Result<(), CommError> {
        self.shared.verdict()
    }

    fn has_left(&self, peer: usize) -> bool {
        self.shared.word(peer, Control::State).load(Acquire) == LEFT
    }

    fn piece_bytes(&self) -> usize {
        self.shared.layout.slot_bytes()
    }

    fn collective(&self) -> &Mutex<Turns> {
        &self.collective
    }

    fn show(&self, _: &Wait<'_, Self>, turns: &mut Turns, step: Step, mine: &[u8]) -> Result<(), CommError> {
        let Shared { layout, seat, .. } = &*self.shared;
        turns.turn += 1;
        assert!(mine.len() <= layout.slot_bytes());
        let slot = turns.slots()[seat.rank].cast_mut();
        // SAFETY: a slot, in the mapping, with room for `mine` as just checked, that only this rank writes in this turn.
        // Nobody reads it now: of more than two ranks, all have published the turn before, so they are through with the
        // one before that, which used this slot last; of two, only this rank has read it since it was written.
        unsafe { std::ptr::copy_nonoverlapping(mine.as_ptr(), slot, mine.len()) };
        self.shared.word(seat.rank, turns.stamp_field()).store(step.stamp.word(), Relaxed);
        // Release: whoever sees the turn sees slot and stamp.
        self.shared.word(seat.rank, Control::Turn).store(turns.turn, Release);
        for peer in seat.peers() {
            self.shared.bell_of(peer).ring();
        }
        Ok(())
    }

    fn look<'s>(
        &self,
        wait: &Wait<'_, Self>,
        turns: &'s mut Turns,
        step: Step,
    ) -> Result<Pieces<'s>, CommError> {
        for peer in self.shared.seat.peers() {
            let published = self.shared.word(peer, Control::Turn);
            // Acquire: pairs with the Release in `show`.
            let turn =
                wait.until(peer, || Ok(Some(published.load(Acquire)).filter(|turn| *turn >= turns.turn)))?;
            if turn > turns.turn + 1 {
                let what = format!("it is at exchange {turn} before this rank finished {}", turns.turn);
                return Err(CommError::Protocol { rank: peer, what });
            }
            let theirs = Stamp::from_word(self.shared.word(peer, turns.stamp_field()).load(Relaxed));
            step.stamp.check(theirs, wait.op, peer)?;
        }
        Ok(turns.slots())
    }

    fn outbox(&self, peer: usize) -> Option<&Mutex<Stream<ShmSink>>> {
        self.outboxes.get(peer).filter(|_| peer != self.shared.seat.rank)
    }

    fn inbox(&self, peer: usize) -> Option<&Mutex<Stream<ShmSource>>> {
        self.inboxes.get(peer).filter(|_| peer != self.shared.seat.rank)
    }

    fn end(&self, verdict: Verdict) {
        self.shared.end(verdict);
    }
}

/// The ring that goes from one rank to another.
fn ring_memory(shared: &Arc<Shared>, from: usize, to: usize) -> RingMemory {
    let Shared { layout, mapping, .. } = &**shared;
    let base = mapping.range(layout.ring(from, to), crate::spsc::CURSOR_BYTES + layout.ring_bytes(), 64);
    // SAFETY: in the mapping and aligned, as `range` checked; zeros when the segment was made; `shared` owns the mapping;
    // each rank makes one writer and one reader per peer, in `attach`, and its place can be taken only once; the
    // capacity is a power of two by the layout's checks.
    unsafe { RingMemory::new(base, layout.ring_bytes(), Arc::clone(shared) as Owner) }
}

fn corrupt(peer: usize) -> CommError {
    CommError::Protocol { rank: peer, what: "a ring's cursor is out of bounds".into() }
}

/// Bytes to one peer.
#[derive(Debug)]
pub(crate) struct ShmSink {
    writer: Writer,
    shared: Arc<Shared>,
    peer: usize,
}

impl ShmSink {
    fn new(shared: &Arc<Shared>, peer: usize) -> Self {
        let writer = Writer::new(ring_memory(shared, shared.seat.rank, peer));
        Self { writer, shared: Arc::clone(shared), peer }
    }
}

impl Sink for ShmSink {
    fn try_write(&mut self, head: &[u8], body: &[u8]) -> Result<usize, CommError> {
        let error = |Corrupt| corrupt(self.peer);
        let mut done = self.writer.write(head).map_err(error)?;
        if done == head.len() {
            done += self.writer.write(body).map_err(error)?;
        }
        if done > 0 {
            self.shared.bell_of(self.peer).ring();
        }
        Ok(done)
    }
}

/// Bytes from one peer.
#[derive(Debug)]
pub(crate) struct ShmSource {
    reader: Reader,
    shared: Arc<Shared>,
    peer: usize,
}

impl ShmSource {
    fn new(shared: &Arc<Shared>, peer: usize) -> Self {
        let reader = Reader::new(ring_memory(shared, peer, shared.seat.rank));
        Self { reader, shared: Arc::clone(shared), peer }
    }
}

impl Source for ShmSource {
    fn try_read(&mut self, into: &mut [u8]) -> Result<usize, CommError> {
        let bytes = self.reader.read(into).map_err(|Corrupt| corrupt(self.peer))?;
        if bytes > 0 {
            // The peer may be waiting for room.
            self.shared.bell_of(self.peer).ring();
        }
        Ok(bytes)
    }
}
