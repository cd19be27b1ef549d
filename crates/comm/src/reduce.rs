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

/// Fills `out` with the reduction of as many elements from each of `pieces`, one piece per rank, in rank order.
///
/// # Safety
/// Every piece is valid for reads of `out.byte_len()` bytes, aligned for the element type, and does not overlap `out`.
pub(crate) unsafe fn reduce(how: Reduce, out: BufferMut<'_>, pieces: &[*const u8]) {
    crate::buffer::with_slice!(out, slice => {
        // SAFETY: our own contract, passed on.
        unsafe { reduce_typed(how, slice, pieces) }
    });
}

/// [`reduce`] for one element type.
///
/// # Safety
/// As [`reduce`].
unsafe fn reduce_typed<E: Element>(how: Reduce, out: &mut [E], pieces: &[*const u8]) {
    match how {
        // SAFETY: our own contract, passed on.
        Reduce::Sum => unsafe { fold(out, pieces, E::add) },
        // SAFETY: as above.
        Reduce::Max => unsafe { fold(out, pieces, E::max) },
    }
}

/// Reads with raw pointers only: the pieces may lie in memory that another process can write, so no reference to them
/// may exist. A peer that does write them at the wrong moment spoils values, nothing else.
///
/// # Safety
/// As [`reduce`].
unsafe fn fold<E: Element>(out: &mut [E], pieces: &[*const u8], join: impl Fn(E::Wide, E::Wide) -> E::Wide) {
    let Some((first, rest)) = pieces.split_first() else {
        return;
    };
    for (index, block) in out.chunks_mut(BLOCK).enumerate() {
        let start = index * BLOCK;
        let mut wide = [E::Wide::default(); BLOCK];
        let wide = &mut wide[..block.len()];
        let first = first.cast::<E>();
        for (i, w) in wide.iter_mut().enumerate() {
            // SAFETY: start + i < out.len(), so the read is inside the piece; aligned by contract.
            *w = unsafe { first.add(start + i).read() }.widen();
        }
        for piece in rest {
            let piece = piece.cast::<E>();
            for (i, w) in wide.iter_mut().enumerate() {
                // SAFETY: as above.
                *w = join(*w, unsafe { piece.add(start + i).read() }.widen());
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

    /// Over slices, which end exactly where the pieces do, so that a checker of memory sees every stray read.
    fn reduced<E: Element + Default>(how: Reduce, parts: &[Vec<E>]) -> Vec<E> {
        let mut out = vec![E::default(); parts[0].len()];
        let pieces: Vec<*const u8> = parts.iter().map(|part| part.as_ptr().cast()).collect();
        // SAFETY: all parts have the length of `out`, and vectors are aligned for their elements.
        unsafe { reduce_typed(how, &mut out, &pieces) };
        out
    }

    #[test]
    fn lengths_around_a_block() {
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1] {
            let parts: Vec<Vec<i32>> = (1..4).map(|k| (0..length as i32).map(|i| i * k).collect()).collect();
            let expected: Vec<i32> = (0..length as i32).map(|i| i * 6).collect();
            assert_eq!(reduced(Reduce::Sum, &parts), expected);
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
    fn halves_are_rounded_once() {
        // 2048 + 1 + 1: rounding after each step would lose both ones.
        let parts = [2048.0, 1.0, 1.0].map(|value| vec![f16::from_f32(value)]);
        assert_eq!(reduced(Reduce::Sum, &parts), [f16::from_f32(2050.0)]);
    }
}
