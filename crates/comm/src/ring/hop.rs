//! The arithmetic of one hop: what a rank holds, joined with the bytes that came from its neighbour.
//!
//! As MLX does it: own + received, rounded to the element type at every hop (halves are added in f32), and a
//! maximum that keeps the own value unless it is less, so that a NaN stays where it is and never travels by
//! comparison.

use crate::{BufferMut, buffer::with_slice, reduce::Reduce};
use half::{bf16, f16, slice::HalfFloatSliceExt};

/// Halves widened at a time: three arrays of 1 KiB stay in the first-level cache.
const BLOCK: usize = 256;

/// Joins `own` with as many elements in `received`, their bytes in native order.
pub(super) fn join(how: Reduce, own: BufferMut<'_>, received: &[u8]) {
    with_slice!(own, own => match how {
        Reduce::Sum => Hop::add(own, received),
        Reduce::Max => Hop::keep_greater(own, received),
    });
}

/// An element type as it is joined.
trait Hop: Sized {
    fn add(own: &mut [Self], received: &[u8]);
    fn keep_greater(own: &mut [Self], received: &[u8]);
}

/// Plain loops over unaligned bytes, which compile to vector loads and adds.
macro_rules! plain_hop {
    ($($type:ty: $add:expr);+) => {$(
        impl Hop for $type {
            fn add(own: &mut [Self], received: &[u8]) {
                for (own, bytes) in own.iter_mut().zip(received.as_chunks().0) {
                    *own = $add(*own, <$type>::from_ne_bytes(*bytes));
                }
            }

            fn keep_greater(own: &mut [Self], received: &[u8]) {
                for (own, bytes) in own.iter_mut().zip(received.as_chunks().0) {
                    let received = <$type>::from_ne_bytes(*bytes);
                    *own = if *own < received { received } else { *own };
                }
            }
        }
    )+};
}
plain_hop!(i64: i64::wrapping_add; i32: i32::wrapping_add; u8: u8::wrapping_add; f32: std::ops::Add::add);

/// A 16-bit float, converted a block at a time.
trait Half: Copy {
    const ZERO: Self;
    fn from_bytes(bytes: [u8; 2]) -> Self;
    fn widen(narrow: &[Self], wide: &mut [f32]);
    fn narrow(wide: &[f32], narrow: &mut [Self]);
}

impl Half for f16 {
    const ZERO: Self = f16::ZERO;

    fn from_bytes(bytes: [u8; 2]) -> Self {
        Self::from_ne_bytes(bytes)
    }

    fn widen(narrow: &[Self], wide: &mut [f32]) {
        narrow.convert_to_f32_slice(wide);
    }

    fn narrow(wide: &[f32], narrow: &mut [Self]) {
        narrow.convert_from_f32_slice(wide);
    }
}

impl Half for bf16 {
    const ZERO: Self = bf16::ZERO;

    fn from_bytes(bytes: [u8; 2]) -> Self {
        Self::from_ne_bytes(bytes)
    }

    fn widen(narrow: &[Self], wide: &mut [f32]) {
        for (wide, narrow) in wide.iter_mut().zip(narrow) {
            *wide = f32::from_bits(u32::from(narrow.to_bits()) << 16);
        }
    }

    fn narrow(wide: &[f32], narrow: &mut [Self]) {
        for (narrow, wide) in narrow.iter_mut().zip(wide) {
            *narrow = nearest_bf16(*wide);
        }
    }
}

/// Rounds to nearest, ties to even; every NaN becomes MLX's.
fn nearest_bf16(value: f32) -> bf16 {
    const MLX_NAN: u16 = 0x7fc0;
    let bits = value.to_bits();
    let rounded = bits.wrapping_add((bits >> 16 & 1) + 0x7fff) >> 16;
    bf16::from_bits(if value.is_nan() { MLX_NAN } else { rounded as u16 })
}

impl<H: Half> Hop for H {
    fn add(own: &mut [Self], received: &[u8]) {
        in_blocks(own, received, |own, _, wide_own, wide_received| {
            for (sum, received) in wide_own.iter_mut().zip(wide_received) {
                *sum += *received;
            }
            H::narrow(wide_own, own);
        });
    }

    fn keep_greater(own: &mut [Self], received: &[u8]) {
        in_blocks(own, received, |own, received, wide_own, wide_received| {
            let wide = wide_own.iter().zip(wide_received);
            for ((own, received), (a, b)) in own.iter_mut().zip(received).zip(wide) {
                *own = if *a < *b { *received } else { *own };
            }
        });
    }
}

/// Calls `each` with blocks of own and received elements, and the same widened.
fn in_blocks<H: Half>(own: &mut [H], received: &[u8], each: impl Fn(&mut [H], &[H], &mut [f32], &mut [f32])) {
    let mut narrow = [H::ZERO; BLOCK];
    let mut wide = [[0.0; BLOCK]; 2];
    for (own, bytes) in own.chunks_mut(BLOCK).zip(received.chunks(2 * BLOCK)) {
        let narrow = &mut narrow[..own.len()];
        for (narrow, bytes) in narrow.iter_mut().zip(bytes.as_chunks().0) {
            *narrow = H::from_bytes(*bytes);
        }
        let [wide_own, wide_received] = &mut wide;
        let (wide_own, wide_received) = (&mut wide_own[..own.len()], &mut wide_received[..own.len()]);
        H::widen(own, wide_own);
        H::widen(narrow, wide_received);
        each(own, narrow, wide_own, wide_received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn joined<T: Copy>(how: Reduce, own: &[T], received: &[u8]) -> Vec<T>
    where
        for<'a> BufferMut<'a>: From<&'a mut [T]>,
    {
        let mut own = own.to_vec();
        join(how, own.as_mut_slice().into(), received);
        own
    }

    fn halves(values: &[u16]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(joined(Reduce::Sum, &[i64::MAX], &1_i64.to_ne_bytes()), [i64::MIN]);
        assert_eq!(joined(Reduce::Sum, &[i32::MIN], &(-1_i32).to_ne_bytes()), [i32::MAX]);
        assert_eq!(joined(Reduce::Sum, &[200_u8], &[100]), [44]);
    }

    #[test]
    fn a_maximum_keeps_the_own_value_unless_it_is_less() {
        let max = |own: f32, received: f32| joined(Reduce::Max, &[own], &received.to_ne_bytes())[0].to_bits();
        assert_eq!(max(1.0, 2.0), 2.0_f32.to_bits());
        assert_eq!(max(-0.0, 0.0), (-0.0_f32).to_bits());
        assert_eq!(max(1.0, f32::NAN), 1.0_f32.to_bits());
        assert_eq!(max(f32::NAN, 1.0), f32::NAN.to_bits());
        assert_eq!(joined(Reduce::Max, &[250_u8, 3], &[4, 250]), [250, 250]);
    }

    #[test]
    fn a_half_that_is_not_a_number_keeps_its_bits_in_a_maximum() {
        let odd = bf16::from_bits(0xff81);
        assert_eq!(joined(Reduce::Max, &[odd], &halves(&[0x3f80]))[0].to_bits(), odd.to_bits());
        assert_eq!(joined(Reduce::Sum, &[odd], &halves(&[0x3f80]))[0].to_bits(), 0x7fc0);
    }

    proptest! {
        #[test]
        fn halves_are_added_as_singles_and_rounded_once(
            pairs in prop::collection::vec(any::<(u16, u16)>(), 0..3 * BLOCK),
        ) {
            let (own, received): (Vec<u16>, Vec<u16>) = pairs.iter().copied().unzip();
            let bytes = halves(&received);
            let own_b: Vec<bf16> = own.iter().map(|bits| bf16::from_bits(*bits)).collect();
            let own_f: Vec<f16> = own.iter().map(|bits| f16::from_bits(*bits)).collect();
            let sum_b = joined(Reduce::Sum, &own_b, &bytes);
            let sum_f = joined(Reduce::Sum, &own_f, &bytes);
            for (index, (a, b)) in pairs.iter().enumerate() {
                let exact = bf16::from_bits(*a).to_f32() + bf16::from_bits(*b).to_f32();
                let expected = bf16::from_f32(exact);
                prop_assert!(sum_b[index].to_bits() == expected.to_bits() || exact.is_nan());
                let exact = f16::from_bits(*a).to_f32() + f16::from_bits(*b).to_f32();
                let expected = f16::from_f32(exact);
                prop_assert!(sum_f[index].to_bits() == expected.to_bits() || exact.is_nan());
                prop_assert_eq!(sum_f[index].is_nan(), exact.is_nan());
            }
        }
    }
}
