//! What a transport must do; everything else about a group is the same for all and lives here.
//!
//! A transport offers streams of bytes between each pair of ranks, and one collective step, the *exchange*: every rank
//! shows the others one piece of bytes and looks at theirs. All collectives are made of exchanges.

use crate::{
    BufferMut, CommError, Group, GroupOptions,
    call::{Op, Stamp},
    record::{self, Sink, Source, Stream},
    reduce::{self, Reduce},
    verdict::{Verdict, cut_reason},
    wait::{Bell, LONGEST_SLEEP, Patience, Wait},
};
use std::{
    ops::Range,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Most ranks that a group can have. Bounds what is set up per pair.
pub const MAX_RANKS: usize = 64;

/// A rank's place in its group, the same for every transport.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) patience: Patience,
    deadline_nanos: AtomicU64,
}

impl Seat {
    /// # Errors
    /// [`CommError::Setup`] when there is no such rank, or too many of them.
    pub(crate) fn new(rank: usize, size: usize, options: &GroupOptions) -> Result<Self, CommError> {
        check_size(size)?;
        if rank >= size {
            return Err(CommError::Setup { what: format!("rank {rank} of {size}: ranks count from 0") });
        }
        let seat = Self {
            rank,
            size,
            patience: Patience::new(options.spin, size),
            deadline_nanos: AtomicU64::new(0),
        };
        seat.set_deadline(options.deadline);
        Ok(seat)
    }

    /// The other ranks.
    pub(crate) fn peers(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let own = self.rank;
        (0..self.size).filter(move |rank| *rank != own)
    }

    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_nanos(self.deadline_nanos.load(Relaxed))
    }

    pub(crate) fn set_deadline(&self, deadline: Duration) {
        // More than 500 years is for ever.
        self.deadline_nanos.store(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// # Errors
/// [`CommError::Setup`] unless `size` is 1 to [`MAX_RANKS`].
pub(crate) fn check_size(size: usize) -> Result<(), CommError> {
    if (1..=MAX_RANKS).contains(&size) {
        return Ok(());
    }
    Err(CommError::Setup { what: format!("{size} ranks; a group has 1 to {MAX_RANKS}") })
}

/// The other ranks' pieces in one exchange: one pointer per rank, valid for [`Step::bytes_of`] that rank and aligned to 64
/// bytes, until the next exchange; this rank's own place holds nothing of use. Raw because the memory may be shared with
/// other processes.
pub(crate) type Pieces<'a> = &'a [*const u8];

/// One exchange, as all ranks must agree on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) stamp: Stamp,
    /// Length of each piece.
    pub(crate) bytes: usize,
    /// The only rank that shows something (broadcast); `None`: all do.
    pub(crate) only_from: Option<usize>,
}

impl Step {
    /// Length of one rank's piece.
    pub(crate) fn bytes_of(&self, rank: usize) -> usize {
        if self.only_from.is_none_or(|root| root == rank) { self.bytes } else { 0 }
    }
}

/// The part of a group that differs between transports.
pub(crate) trait Transport: Send + Sync {
    /// What collectives need to remember; locked for as long as one runs.
    type Collective: Send;
    type Sink: Sink;
    type Source: Source;

    fn seat(&self) -> &Seat;

    /// What this rank's threads sleep on.
    fn bell(&self) -> &Bell;

    /// Longest sleep of a call that has waited for `waited`, before it looks by itself. Short where arrivals don't ring
    /// the bell.
    fn longest_sleep(&self, _waited: Duration) -> Duration {
        LONGEST_SLEEP
    }

    /// The error that ended the group, if one did. Cheap: asked in every wait.
    fn verdict(&self) -> Result<(), CommError>;

    /// True when `peer` has closed its side in good order.
    fn has_left(&self, peer: usize) -> bool;

    /// Most bytes of one piece. A multiple of 64.
    fn piece_bytes(&self) -> usize;

    fn collective(&self) -> &Mutex<Self::Collective>;

    /// First half of an exchange: shows `mine` to the others. `mine` is free again afterwards.
    fn show(
        &self,
        wait: &Wait<'_, Self>,
        state: &mut Self::Collective,
        step: Step,
        mine: &[u8],
    ) -> Result<(), CommError>;

    /// Second half: waits for the others' pieces.
    fn look<'s>(
        &self,
        wait: &Wait<'_, Self>,
        state: &'s mut Self::Collective,
        step: Step,
    ) -> Result<Pieces<'s>, CommError>;

    /// The way to `peer`; `None` for this rank itself and for ranks outside the group.
    fn outbox(&self, peer: usize) -> Option<&Mutex<Stream<Self::Sink>>>;

    /// The way from `peer`, likewise.
    fn inbox(&self, peer: usize) -> Option<&Mutex<Stream<Self::Source>>>;

    /// Ends the group for all ranks, this one first, unless it has ended already.
    fn end(&self, verdict: Verdict);

    /// All of an all_sum or all_max: one exchange per piece, each rank reduces all. A transport with a better way for
    /// long data replaces it.
    fn reduce_all(
        &self,
        wait: &Wait<'_, Self>,
        state: &mut Self::Collective,
        how: Reduce,
        mut data: BufferMut<'_>,
    ) -> Result<(), CommError> {
        let stamp = Stamp::pack(wait.op, data.dtype() as u8, data.byte_len());
        let per_piece = self.piece_bytes() / data.dtype().bytes();
        for_each_span(data.len(), per_piece, |span| {
            self.reduce_together(wait, state, (how, stamp), data.part(span))
        })
    }

    /// One exchange: everyone shows its part of at most a piece, everyone reduces all parts.
    fn reduce_together(
        &self,
        wait: &Wait<'_, Self>,
        state: &mut Self::Collective,
        (how, stamp): (Reduce, Stamp),
        mut part: BufferMut<'_>,
    ) -> Result<(), CommError> {
        let step = Step { stamp, bytes: part.byte_len(), only_from: None };
        self.show(wait, state, step, part.as_bytes_mut())?;
        let pieces = self.look(wait, state, step)?;
        // SAFETY: `look` gives one pointer per other rank, valid for `step.bytes` and aligned to 64, into memory that
        // belongs to the transport.
        unsafe { reduce::reduce(how, self.seat().rank, part, pieces) };
        Ok(())
    }
}

/// Cuts `0..total` into spans of at most `most` and does `each` in order; an empty total has one empty span, so that
/// ranks meet in empty collectives too.
pub(crate) fn for_each_span(
    total: usize,
    most: usize,
    mut each: impl FnMut(Range<usize>) -> Result<(), CommError>,
) -> Result<(), CommError> {
    let mut start = 0;
    loop {
        let end = total.min(start + most);
        each(start..end)?;
        start = end;
        if start == total {
            return Ok(());
        }
    }
}

/// Copies one rank's piece.
///
/// # Safety
/// `piece` is valid for `into.len()` bytes and does not overlap `into`.
unsafe fn copy_piece(piece: *const u8, into: &mut [u8]) {
    // SAFETY: our own contract.
    unsafe { std::ptr::copy_nonoverlapping(piece, into.as_mut_ptr(), into.len()) }
}

/// What every transport's group does the same way.
trait Calls: Transport + Sized {
    /// Runs one collective: locks its state, gives it the group's deadline, and aborts the group when it fails, because
    /// the ranks no longer agree on where they are.
    fn collectively(
        &self,
        op: Op,
        body: impl FnOnce(&Wait<'_, Self>, &mut Self::Collective) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        self.verdict()?;
        let mut state = lock(self.collective());
        let wait = Wait::new(self, op, self.seat().deadline());
        body(&wait, &mut state).map_err(|error| wait.give_up(error))
    }

    fn no_such_peer(&self, rank: usize) -> CommError {
        CommError::NoSuchPeer { rank, size: self.seat().size }
    }
}

impl<T: Transport> Calls for T {}

/// A poisoned lock means that a caller's thread panicked in between; the streams check themselves, so go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Transport> Group for T {
    fn rank(&self) -> usize {
        self.seat().rank
    }

    fn size(&self) -> usize {
        self.seat().size
    }

    fn deadline(&self) -> Duration {
        self.seat().deadline()
    }

    fn set_deadline(&self, deadline: Duration) {
        self.seat().set_deadline(deadline);
    }

    fn all_sum(&self, data: BufferMut<'_>) -> Result<(), CommError> {
        self.collectively(Op::AllSum, |wait, state| self.reduce_all(wait, state, Reduce::Sum, data))
    }

    fn all_max(&self, data: BufferMut<'_>) -> Result<(), CommError> {
        self.collectively(Op::AllMax, |wait, state| self.reduce_all(wait, state, Reduce::Max, data))
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<(), CommError> {
        let expected = mine.len() * self.seat().size;
        if all.len() != expected {
            return Err(CommError::BufferSize { op: Op::AllGather.name(), expected, got: all.len() });
        }
        let stamp = Stamp::pack(Op::AllGather, 0, mine.len());
        let part_of =
            |rank: usize, span: &Range<usize>| rank * mine.len() + span.start..rank * mine.len() + span.end;
        let own = self.seat().rank;
        all[part_of(own, &(0..mine.len()))].copy_from_slice(mine);
        self.collectively(Op::AllGather, |wait, state| {
            for_each_span(mine.len(), self.piece_bytes(), |span| {
                let step = Step { stamp, bytes: span.len(), only_from: None };
                self.show(wait, state, step, &mine[span.clone()])?;
                let pieces = self.look(wait, state, step)?.iter().enumerate();
                for (rank, piece) in pieces.filter(|(rank, _)| *rank != own) {
                    // SAFETY: valid for `step.bytes`, the length of the span, in the transport's own memory.
                    unsafe { copy_piece(*piece, &mut all[part_of(rank, &span)]) };
                }
                Ok(())
            })
        })
    }

    fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<(), CommError> {
        let Seat { rank, size, .. } = *self.seat();
        if root >= size {
            return Err(CommError::NoSuchPeer { rank: root, size });
        }
        // MAX_RANKS fits into the stamp's 8 bits.
        let stamp = Stamp::pack(Op::Broadcast, root as u8, data.len());
        self.collectively(Op::Broadcast, |wait, state| {
            for_each_span(data.len(), self.piece_bytes(), |span| {
                let part = &mut data[span];
                let step = Step { stamp, bytes: part.len(), only_from: Some(root) };
                self.show(wait, state, step, &part[..step.bytes_of(rank)])?;
                let pieces = self.look(wait, state, step)?;
                if rank != root {
                    // SAFETY: the root's piece is valid for `step.bytes`, the length of `part`.
                    unsafe { copy_piece(pieces[root], part) };
                }
                Ok(())
            })
        })
    }

    fn barrier(&self) -> Result<(), CommError> {
        let step = Step { stamp: Stamp::pack(Op::Barrier, 0, 0), bytes: 0, only_from: None };
        self.collectively(Op::Barrier, |wait, state| {
            self.show(wait, state, step, &[])?;
            self.look(wait, state, step).map(|_| ())
        })
    }

    fn send(&self, to: usize, data: &[u8]) -> Result<(), CommError> {
        let outbox = self.outbox(to).ok_or_else(|| self.no_such_peer(to))?;
        self.verdict()?;
        let wait = Wait::new(self, Op::Send, self.seat().deadline());
        record::write_record(&wait, &mut lock(outbox), to, Stamp::pack(Op::Send, 0, data.len()), data)
    }

    fn recv_within(&self, from: usize, data: &mut [u8], within: Duration) -> Result<(), CommError> {
        let inbox = self.inbox(from).ok_or_else(|| self.no_such_peer(from))?;
        self.verdict()?;
        let wait = Wait::new(self, Op::Recv, within);
        record::read_record(&wait, &mut lock(inbox), from, Stamp::pack(Op::Send, 0, data.len()), data)
    }

    fn abort(&self, reason: &str) {
        self.end(Verdict::Aborted { by: self.seat().rank, reason: cut_reason(reason).to_owned() });
    }
}
