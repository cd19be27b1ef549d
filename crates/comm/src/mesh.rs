//! Collectives over a full mesh of byte streams, the same for every transport that joins its ranks pairwise.
//!
//! Short data goes from everyone to everyone, one hop, and each rank reduces all. Long data over more than two ranks is
//! cut into one section per rank: everyone sends section r to rank r, which reduces it in rank order and sends the
//! result to all. That moves as few bytes as a ring does, in two hops instead of 2(n-1), and keeps the order of
//! float sums.
//!
//! Where only neighbours have quick links ([`Shape::Cycle`]), everything goes round instead: see `cycle`.

mod cycle;

use crate::{
    BufferMut, CommError,
    call::Stamp,
    memory::HeapMemory,
    record::{Sink, Source, Stream, read_record, write_record},
    reduce::{self, Reduce},
    transport::{MAX_RANKS, Pieces, Step, Transport, for_each_span},
    wait::Wait,
};
use std::ops::Range;

/// Most bytes of one piece of a collective: eight of them fill the window of a TCP channel. A rank shows its piece while
/// nobody may be reading, and lets up to [`PIECES_UNDER_WAY`] pile up; where they would not fit into a window, a group agrees on
/// smaller pieces ([`Transport::piece_bytes`]).
pub(crate) const PIECE_BYTES: usize = 128 << 10;

/// Pieces of one rank that must fit into the window of each channel.
pub(crate) const PIECES_UNDER_WAY: usize = 3;

/// From here on, more than two ranks reduce by sections.
const LONG_BYTES: usize = 32 << 10;

/// The ends of one peer's collective channel.
#[derive(Debug)]
pub(crate) struct Channel<K, S> {
    pub(crate) peer: usize,
    pub(crate) sink: Stream<K>,
    pub(crate) source: Stream<S>,
}

/// Which pairs carry collectives. All ranks of a group have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All of them.
    Full,
    /// Neighbours only, the last rank and rank 0 among them.
    Cycle,
}

/// What collectives work with: a channel per peer, `None` at this rank's own place, and room for one piece per rank.
#[derive(Debug)]
pub(crate) struct Exchange<K, S> {
    own: usize,
    shape: Shape,
    channels: Vec<Option<Channel<K, S>>>,
    pieces: PieceTable,
}

/// Room for one piece per rank, each on its own cache lines.
#[derive(Debug)]
struct PieceTable {
    starts: Vec<*const u8>,
    memory: HeapMemory,
}

// SAFETY: the addresses point into `memory`, which moves along.
unsafe impl Send for PieceTable {}

impl PieceTable {
    fn new(ranks: usize) -> Self {
        let memory = HeapMemory::zeroed(ranks * PIECE_BYTES);
        let base = memory.start().as_ptr();
        let starts = (0..ranks).map(|rank| base.wrapping_add(rank * PIECE_BYTES).cast_const()).collect();
        Self { starts, memory }
    }

    /// The first `bytes` of one rank's room.
    fn room(&mut self, rank: usize, bytes: usize) -> &mut [u8] {
        assert!(rank < self.starts.len() && bytes <= PIECE_BYTES);
        // SAFETY: inside `memory`, as just checked, and initialised; `&mut self` makes this the only reference, and the
        // raw addresses given out before are no longer used (`Transport::look` lends them from `&mut` too).
        unsafe {
            let start = self.memory.start().as_ptr().add(rank * PIECE_BYTES);
            std::slice::from_raw_parts_mut(start, bytes)
        }
    }
}

impl<K: Sink, S: Source> Exchange<K, S> {
    pub(crate) fn new(own: usize, channels: Vec<Option<Channel<K, S>>>) -> Self {
        let pieces = PieceTable::new(channels.len());
        Self { own, shape: Shape::Full, channels, pieces }
    }

    /// Uses other pairs from now on.
    pub(crate) fn set_shape(&mut self, shape: Shape) {
        self.shape = shape;
    }

    /// Gives one peer's channel new ends, and the old ones back; its records go on counting.
    pub(crate) fn replace_ends(&mut self, peer: usize, (sink, source): (K, S)) -> Option<(K, S)> {
        let channel = self.channels.get_mut(peer)?.as_mut()?;
        let old_sink = std::mem::replace(&mut channel.sink.end, sink);
        Some((old_sink, std::mem::replace(&mut channel.source.end, source)))
    }

    /// [`Transport::show`] over a mesh.
    pub(crate) fn show<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        step: Step,
        mine: &[u8],
    ) -> Result<(), CommError> {
        match self.shape {
            Shape::Full => self.send_to_all(wait, step.stamp, mine),
            Shape::Cycle => self.set_out(wait, step, mine),
        }
    }

    /// [`Transport::look`] over a mesh.
    pub(crate) fn look<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        step: Step,
    ) -> Result<Pieces<'_>, CommError> {
        if self.shape == Shape::Cycle {
            self.let_pass(wait, step)?;
            return Ok(&self.pieces.starts);
        }
        for channel in self.channels.iter_mut().flatten() {
            let room = self.pieces.room(channel.peer, step.bytes_of(channel.peer));
            read_record(wait, &mut channel.source, channel.peer, step.stamp, room)?;
        }
        Ok(&self.pieces.starts)
    }

    /// Sends the same bytes to everybody, beginning with the next rank so that not all start with rank 0.
    fn send_to_all<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        stamp: Stamp,
        bytes: &[u8],
    ) -> Result<(), CommError> {
        let (before, after) = self.channels.split_at_mut(self.own);
        for channel in after.iter_mut().chain(before).flatten() {
            write_record(wait, &mut channel.sink, channel.peer, stamp, bytes)?;
        }
        Ok(())
    }

    /// Reduces `data` by sections: section r is reduced by rank r.
    fn reduce_by_sections<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        (how, stamp): (Reduce, Stamp),
        mut data: BufferMut<'_>,
    ) -> Result<(), CommError> {
        let (own, width, length) = (self.own, data.dtype().bytes(), data.len());
        let per_section = length.div_ceil(self.channels.len());
        let bound = |rank: usize| length.min(rank * per_section);
        let sections: [Range<usize>; MAX_RANKS] = std::array::from_fn(|rank| bound(rank)..bound(rank + 1));
        let in_bytes = |rank: usize| sections[rank].start * width..sections[rank].end * width;

        // Everyone's part of my section comes to me.
        let bytes = data.as_bytes_mut();
        for channel in self.channels.iter_mut().flatten() {
            write_record(wait, &mut channel.sink, channel.peer, stamp, &bytes[in_bytes(channel.peer)])?;
        }
        let mine = in_bytes(own);
        for channel in self.channels.iter_mut().flatten() {
            let room = self.pieces.room(channel.peer, mine.len());
            read_record(wait, &mut channel.source, channel.peer, stamp, room)?;
        }
        // SAFETY: one room per other rank, each filled with the section's bytes and aligned to 64; `data` is the caller's.
        unsafe { reduce::reduce(how, own, data.part(sections[own].clone()), &self.pieces.starts) };

        // My section, now whole, goes to everyone.
        let bytes = data.as_bytes_mut();
        self.send_to_all(wait, stamp, &bytes[mine])?;
        for channel in self.channels.iter_mut().flatten() {
            let whole = &mut bytes[in_bytes(channel.peer)];
            read_record(wait, &mut channel.source, channel.peer, stamp, whole)?;
        }
        Ok(())
    }

    /// [`Transport::reduce_all`] over a mesh: short data in one hop, long data by sections. `transport` works with this
    /// very state.
    pub(crate) fn reduce_all<T: Transport<Collective = Self>>(
        &mut self,
        transport: &T,
        wait: &Wait<'_, T>,
        how: Reduce,
        mut data: BufferMut<'_>,
    ) -> Result<(), CommError> {
        let stamp = Stamp::pack(wait.op, data.dtype() as u8, data.byte_len());
        let ranks = self.channels.len();
        let long = ranks > 2 && data.byte_len() >= LONG_BYTES;
        if long && self.shape == Shape::Cycle && cycle::sums_in_itself(data.dtype()) {
            return self.reduce_along(wait, how, stamp, data);
        }
        let by_sections = long && self.shape == Shape::Full;
        let most = transport.piece_bytes() * if by_sections { ranks } else { 1 };
        for_each_span(data.len(), most / data.dtype().bytes(), |span| {
            let part = data.part(span);
            if by_sections {
                self.reduce_by_sections(wait, (how, stamp), part)
            } else {
                transport.reduce_together(wait, self, (how, stamp), part)
            }
        })
    }
}
