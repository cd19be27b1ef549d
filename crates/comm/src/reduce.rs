//! Element-wise sums and maxima over the ranks' pieces, in rank order.

use crate::BufferMut;
use half::{bf16, f16};

/// Elements reduced at a time: the wide accumulators (4 KiB at most) stay in the first-level cache.
const BLOCK: usize = 512;

/// How two elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduce {
    Sum,
    Max,
}

/// An element type and the wider one it is accumulated in.
pub(crate) trait Element: Copy {
    type Wide: Copy + Default;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn max(a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

macro_rules! integer_element {
    ($($type:ty),+) => {$(
        impl Element for $type {
            type Wide = $type;
            fn widen(self) -> $type { self }
            fn narrow(wide: $type) -> $type { wide }
            fn add(a: $type, b: $type) -> $type { a.wrapping_add(b) }
            fn max(a: $type, b: $type) -> $type { Ord::max(a, b) }
        }
    )+};
}
integer_element!(i64, i32, u8);

macro_rules! float_element {
    ($($type:ty: $widen:expr, $narrow:expr);+) => {$(
        impl Element for $type {
            type Wide = f32;
            fn widen(self) -> f32 { $widen(self) }
            fn narrow(wide: f32) -> $type { $narrow(wide) }
            fn add(a: f32, b: f32) -> f32 { a + b }
            fn max(a: f32, b: f32) -> f32 { if b > a || b.is_nan() { b } else { a } }
        }
    )+};
}
float_element!(f32: std::convert::identity, std::convert::identity; f16: f16::to_f32, f16::from_f32; bf16: bf16::to_f32, bf16::from_f32);

/// Reduces `data`, the elements of rank `own`, with as many from each of the other ranks' `pieces`, in rank order. There is
/// one piece per rank; that of `own` is not looked at.
///
/// # Safety
/// Every other piece is valid for reads of `data.byte_len()` bytes, aligned for the element type, and does not overlap
/// `data`.
pub(crate) unsafe fn reduce(how: Reduce, own: usize, data: BufferMut<'_>, pieces: &[*const u8]) {
    crate::buffer::with_slice!(data, slice => {
        // SAFETY: our own contract, passed on.
        unsafe { reduce_typed(how, own, slice, pieces) }
    });
}

/// [`reduce`] for one element type.
///
/// # Safety
/// As [`reduce`].
unsafe fn reduce_typed<E: Element>(how: Reduce, own: usize, data: &mut [E], pieces: &[*const u8]) {
    match how {
        // SAFETY: our own contract, passed on.
        Reduce::Sum => unsafe { fold(own, data, pieces, E::add) },
        // SAFETY: as above.
        Reduce::Max => unsafe { fold(own, data, pieces, E::max) },
    }
}

/// Reads the pieces with raw pointers only: they may lie in memory that another process can write, so no reference to
/// them may exist. A peer that does write them at the wrong moment spoils values, nothing else.
///
/// # Safety
/// As [`reduce`].
unsafe fn fold<E: Element>(
    own: usize,
    data: &mut [E],
    pieces: &[*const u8],
    join: impl Fn(E::Wide, E::Wide) -> E::Wide + Copy,
) {
    match (own, pieces) {
        // SAFETY: our own contract, passed on.
        (0, [_, other]) => unsafe { join_pair(data, *other, join) },
        // SAFETY: as above.
        (1, [other, _]) => unsafe { join_pair(data, *other, |mine, theirs| join(theirs, mine)) },
        // SAFETY: as above.
        _ => unsafe { fold_many(own, data, pieces, join) },
    }
}

/// Two ranks, the usual case, in one pass.
///
/// # Safety
/// As [`reduce`], for the one piece.
unsafe fn join_pair<E: Element>(
    data: &mut [E],
    piece: *const u8,
    join: impl Fn(E::Wide, E::Wide) -> E::Wide,
) {
    let piece = piece.cast::<E>();
    for (i, value) in data.iter_mut().enumerate() {
        // SAFETY: i < data.len(), so the read is inside the piece; aligned by contract.
        let theirs = unsafe { piece.add(i).read() };
        *value = E::narrow(join(value.widen(), theirs.widen()));
    }
}

/// # Safety
/// As [`reduce`].
unsafe fn fold_many<E: Element>(
    own: usize,
    data: &mut [E],
    pieces: &[*const u8],
    join: impl Fn(E::Wide, E::Wide) -> E::Wide,
) {
    for (index, block) in data.chunks_mut(BLOCK).enumerate() {
        let mut wide = [E::Wide::default(); BLOCK];
        let wide = &mut wide[..block.len()];
        for (rank, piece) in pieces.iter().enumerate() {
            let piece = piece.cast::<E>().wrapping_add(index * BLOCK);
            for (i, w) in wide.iter_mut().enumerate() {
                let value = if rank == own {
                    block[i]
                } else {
                    // SAFETY: index * BLOCK + i < data.len(), so the read is inside the piece; aligned by contract.
                    unsafe { piece.add(i).read() }
                };
                *w = if rank == 0 { value.widen() } else { join(*w, value.widen()) };
            }
        }
        for (value, w) in block.iter_mut().zip(wide) {
            *value = E::narrow(*w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each rank makes of it, which must be the same. Over slices, which end exactly where the pieces do, so that a
    /// checker of memory sees every stray read.
    fn reduced<E: Element + PartialEq + std::fmt::Debug>(how: Reduce, parts: &[Vec<E>]) -> Vec<E> {
        let pieces: Vec<*const u8> = parts.iter().map(|part| part.as_ptr().cast()).collect();
        let results: Vec<_> = (0..parts.len())
            .map(|own| {
                let (mut data, mut pieces) = (parts[own].clone(), pieces.clone());
                pieces[own] = std::ptr::null();
                // SAFETY: all parts have the length of `data`, and vectors are aligned for their elements.
                unsafe { reduce_typed(how, own, &mut data, &pieces) };
                data
            })
            .collect();
        assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
        results[0].clone()
    }

    #[test]
    fn lengths_around_a_block() {
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1] {
            for (ranks, sum) in [(1, 1), (2, 3), (3, 6), (4, 10)] {
                let part = |k| (0..length as i32).map(|i| i * k).collect();
                let parts: Vec<Vec<i32>> = (1..=ranks).map(part).collect();
                let expected: Vec<i32> = part(sum);
                assert_eq!(reduced(Reduce::Sum, &parts), expected);
            }
        }
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(reduced(Reduce::Sum, &[vec![i64::MAX], vec![1]]), [i64::MIN]);
        assert_eq!(reduced(Reduce::Sum, &[vec![200_u8], vec![100]]), [44]);
    }

    #[test]
    fn floats_are_added_in_the_order_of_the_pieces() {
        let parts = [vec![1e8_f32], vec![-1e8], vec![1.0]];
        assert_eq!(reduced(Reduce::Sum, &parts), [1.0]);
        let [a, b, c] = parts;
        assert_eq!(reduced(Reduce::Sum, &[c, a, b]), [0.0]);
    }

    #[test]
    fn the_lower_rank_decides_between_equal_zeros() {
        let bits = |parts: [f32; 2]| {
            let parts = parts.map(|value| vec![value]);
            let pieces = [0, 1].map(|own| {
                let mut data = parts[own].clone();
                let pieces = parts.each_ref().map(|part| part.as_ptr().cast());
                // SAFETY: all have one element.
                unsafe { reduce_typed(Reduce::Max, own, &mut data, &pieces) };
                data[0].to_bits()
            });
            assert_eq!(pieces[0], pieces[1]);
            pieces[0]
        };
        assert_eq!(bits([0.0, -0.0]), 0.0_f32.to_bits());
        assert_eq!(bits([-0.0, 0.0]), (-0.0_f32).to_bits());
    }

    #[test]
    fn halves_are_rounded_once() {
        // 2048 + 1 + 1: rounding after each step would lose both ones.
        let parts = [2048.0, 1.0, 1.0].map(|value| vec![f16::from_f32(value)]);
        assert_eq!(reduced(Reduce::Sum, &parts), [f16::from_f32(2050.0)]);
    }
}
