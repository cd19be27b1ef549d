//! Collectives for ranks that only have quick links to their neighbours: everything goes round, to the right.
//!
//! Short data: each piece travels on from rank to rank until all have seen it, so that everyone reduces all pieces in rank
//! order. Long data: partial sums travel from rank 0 to the last one, each rank adding its own part, which is rank order too;
//! the whole sum then travels on round to everyone else. Each link carries the data at most twice, as in a ring of
//! reduce-scatter and all-gather, but the order of float sums is the one that all transports keep. Many spans are under
//! way at a time, so all links are busy.

use super::Exchange;
use crate::{
    BufferMut, CommError, DType,
    call::Stamp,
    record::{Sink, Source, read_record, write_record},
    reduce::{self, Reduce},
    transport::{Step, Transport},
    wait::Wait,
};
use std::ops::Range;

/// The neighbours of a rank.
#[derive(Clone, Copy)]
struct Neighbours {
    left: usize,
    right: usize,
}

impl Neighbours {
    fn of(own: usize, size: usize) -> Self {
        Self { left: (own + size - 1) % size, right: (own + 1) % size }
    }
}

/// True for types whose partial sums are of the type itself. Halves are rounded once, at the end.
pub(super) fn sums_in_itself(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::Bf16)
}

impl<K: Sink, S: Source> Exchange<K, S> {
    fn send<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        to: usize,
        stamp: Stamp,
        bytes: &[u8],
    ) -> Result<(), CommError> {
        let Some(Some(channel)) = self.channels.get_mut(to) else { return Ok(()) };
        write_record(wait, &mut channel.sink, to, stamp, bytes)
    }

    fn receive<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        from: usize,
        stamp: Stamp,
        into: &mut [u8],
    ) -> Result<(), CommError> {
        let Some(Some(channel)) = self.channels.get_mut(from) else { return Ok(()) };
        read_record(wait, &mut channel.source, from, stamp, into)
    }

    /// First half of an exchange: this rank's piece sets out.
    pub(super) fn set_out<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        step: Step,
        mine: &[u8],
    ) -> Result<(), CommError> {
        let Neighbours { right, .. } = Neighbours::of(self.own, self.channels.len());
        self.send(wait, right, step.stamp, mine)
    }

    /// Second half: all other pieces come by from the left, and all but the right neighbour's own go on.
    pub(super) fn let_pass<T: Transport>(&mut self, wait: &Wait<'_, T>, step: Step) -> Result<(), CommError> {
        let size = self.channels.len();
        let Neighbours { left, right } = Neighbours::of(self.own, size);
        for steps in 1..size {
            let whose = (self.own + size - steps) % size;
            let Self { channels, pieces, .. } = &mut *self;
            let room = pieces.room(whose, step.bytes_of(whose));
            if let Some(channel) = &mut channels[left] {
                read_record(wait, &mut channel.source, left, step.stamp, room)?;
            }
            if whose != right
                && let Some(channel) = &mut channels[right]
            {
                write_record(wait, &mut channel.sink, right, step.stamp, room)?;
            }
        }
        Ok(())
    }

    /// Reduces long data. Span k's whole sum is waited for when the partial sums of `lag` more spans are under way: more
    /// than there are links, and so few that the links' windows ([`super::PIECES_UNDER_WAY`] spans at least) hold them, whoever is
    /// late.
    pub(super) fn reduce_along<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        how: Reduce,
        stamp: Stamp,
        mut data: BufferMut<'_>,
    ) -> Result<(), CommError> {
        let lag = self.channels.len();
        let per_span = wait.transport.piece_bytes() / data.dtype().bytes();
        let (length, spans) = (data.len(), data.len().div_ceil(per_span));
        let span = |number: usize| number * per_span..length.min((number + 1) * per_span);
        for number in 0..spans + lag {
            if number < spans {
                self.add_and_pass(wait, how, stamp, data.part(span(number)))?;
            }
            if number >= lag {
                self.take_whole(wait, stamp, &mut data, span(number - lag))?;
            }
        }
        Ok(())
    }

    /// Adds this rank's part to what the lower ranks have added up, and sends that on: as a partial sum, or as the whole one.
    fn add_and_pass<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        how: Reduce,
        stamp: Stamp,
        mut part: BufferMut<'_>,
    ) -> Result<(), CommError> {
        let own = self.own;
        let Neighbours { left, right } = Neighbours::of(own, self.channels.len());
        if own > 0 {
            let bytes = part.byte_len();
            let Self { channels, pieces, .. } = &mut *self;
            if let Some(channel) = &mut channels[left] {
                read_record(wait, &mut channel.source, left, stamp, pieces.room(left, bytes))?;
            }
            let lower_and_own = [pieces.starts[left], std::ptr::null()];
            // SAFETY: the one room that is looked at was just filled with as many bytes as the part has and is aligned to 64;
            // the part is the caller's.
            unsafe { reduce::reduce(how, 1, part.part(0..part.len()), &lower_and_own) };
        }
        self.send(wait, right, stamp, part.as_bytes_mut())
    }

    /// Takes the whole sum of a span that the last rank set on its way, and sends it on to whoever lacks it.
    fn take_whole<T: Transport>(
        &mut self,
        wait: &Wait<'_, T>,
        stamp: Stamp,
        data: &mut BufferMut<'_>,
        span: Range<usize>,
    ) -> Result<(), CommError> {
        let last = self.channels.len() - 1;
        if self.own == last {
            return Ok(());
        }
        let Neighbours { left, right } = Neighbours::of(self.own, self.channels.len());
        let mut part = data.part(span);
        self.receive(wait, left, stamp, part.as_bytes_mut())?;
        if right == last { Ok(()) } else { self.send(wait, right, stamp, part.as_bytes_mut()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Group, GroupOptions, TcpGroup, TcpListenerHandle, mesh::Shape};
    use half::f16;
    use std::{net::SocketAddr, thread};

    /// What one rank gets for data of `length` elements per call.
    #[derive(Debug, PartialEq)]
    struct Results {
        integers: Vec<i64>,
        floats: Vec<u32>,
        halves: Vec<u16>,
        gathered: Vec<u8>,
        broadcast: Vec<u8>,
    }

    /// Floats whose sum depends on the order.
    fn float(rank: usize, index: usize) -> f32 {
        let mixed = (rank as u32 + 1).wrapping_mul(0x9e37_79b9) ^ (index as u32).wrapping_mul(0x85eb_ca6b);
        (mixed >> 8) as f32 * if rank.is_multiple_of(2) { 1e-3 } else { -7.0 }
    }

    fn call(group: &TcpGroup, length: usize) -> Results {
        let rank = group.rank();
        let mut integers: Vec<i64> = (0..length).map(|i| (i * 31 + rank * 7) as i64).collect();
        let mut floats: Vec<f32> = (0..length).map(|i| float(rank, i)).collect();
        let mut halves: Vec<f16> = (0..length).map(|i| f16::from_f32(float(rank, i) * 1e-7)).collect();
        let mut gathered = vec![0; length * group.size()];
        let mut broadcast = vec![rank as u8; length];
        group.all_sum(integers.as_mut_slice().into()).unwrap();
        group.all_sum(floats.as_mut_slice().into()).unwrap();
        group.all_max(halves.as_mut_slice().into()).unwrap();
        group.all_gather(&vec![rank as u8 + 1; length], &mut gathered).unwrap();
        group.broadcast(1, &mut broadcast).unwrap();
        group.barrier().unwrap();
        let floats = floats.into_iter().map(f32::to_bits).collect();
        let halves = halves.into_iter().map(f16::to_bits).collect();
        Results { integers, floats, halves, gathered, broadcast }
    }

    fn results(shape: Shape, size: usize, length: usize) -> Vec<Results> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners: Vec<_> = (0..size).map(|_| TcpListenerHandle::bind(&[any]).unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.addresses().to_vec()).collect();
        let one = |(rank, listener)| {
            let addresses = addresses.clone();
            thread::spawn(move || {
                let group = TcpGroup::connect(listener, rank, &addresses, &[3; 32], GroupOptions::default());
                let mut group = group.unwrap();
                group.set_shape(shape);
                call(&group, length)
            })
        };
        let ranks: Vec<_> = listeners.into_iter().enumerate().map(one).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    }

    #[test]
    fn a_cycle_gives_the_bits_of_a_full_mesh() {
        for size in [3, 4, 6] {
            // One piece, a long sum of one span, and of so many that the lag is used up.
            for length in [1, 5_000, 20_000, 300_001] {
                let round = results(Shape::Cycle, size, length);
                assert_eq!(round, results(Shape::Full, size, length), "{size} ranks, {length} elements");
                assert!(round.windows(2).all(|pair| pair[0].floats == pair[1].floats));
            }
        }
    }
}
