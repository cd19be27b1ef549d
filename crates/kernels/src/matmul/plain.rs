//! The operations in plain Rust: the reference for the other levels.

use std::array::from_fn;

use half::{bf16, f16};

use super::isa::{Isa, Kernel};
use crate::format::BLOCK;
use crate::level::Level;
use crate::pack::{BIAS, PANEL};

/// [`Level::Plain`](crate::Level::Plain).
#[derive(Clone, Copy)]
pub(super) struct Plain;

/// Codes as they lie in a line: four columns of each row.
type Codes = [[u8; 4]; PANEL];

/// Adds the products of 16 rows of 4-bit codes with 32 activations.
#[inline(never)]
fn add_dots4(codes: &[Codes; 4], x: &[i8; BLOCK], sums: &mut [i32; PANEL]) {
    for (line, codes) in codes.iter().enumerate() {
        for (sum, codes) in sums.iter_mut().zip(codes) {
            for (i, code) in codes.iter().enumerate() {
                let (low, high) = (x[line * 4 + i], x[BLOCK / 2 + line * 4 + i]);
                *sum += i32::from(code & 15) * i32::from(low) + i32::from(code >> 4) * i32::from(high);
            }
        }
    }
}

/// Adds the products of 16 rows of 8-bit codes with activations, four a group.
#[inline(never)]
fn add_dots8(codes: &[Codes], x: &[[i8; 4]], sums: &mut [i32; PANEL]) {
    for (codes, x) in codes.iter().zip(x) {
        for (sum, codes) in sums.iter_mut().zip(codes) {
            for (code, &x) in codes.iter().zip(x) {
                *sum += i32::from(code.wrapping_sub(BIAS) as i8) * i32::from(x);
            }
        }
    }
}

impl Isa for Plain {
    type Floats = [f32; PANEL];
    type Ints = [i32; PANEL];

    const LEVEL: Level = Level::Plain;
    const ZERO8: i32 = 0;

    #[inline]
    unsafe fn with<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: no special instructions; the rest is the caller's.
        unsafe { kernel.run::<Plain>() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::Floats {
        [value; PANEL]
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> Self::Ints {
        [value; PANEL]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Floats {
        // SAFETY: 16 readable floats, by the caller.
        unsafe { *from.cast() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::Floats {
        // SAFETY: 16 readable numbers, by the caller.
        let bits: [u16; PANEL] = unsafe { *from.cast() };
        bits.map(|bits| f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::Floats {
        // SAFETY: 16 readable numbers, by the caller.
        let bits: [u16; PANEL] = unsafe { *from.cast() };
        bits.map(|bits| bf16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn store(values: Self::Floats, to: *mut f32) {
        // SAFETY: 16 writable floats, by the caller.
        unsafe { *to.cast() = values }
    }

    #[inline(always)]
    unsafe fn to_floats(values: Self::Ints) -> Self::Floats {
        values.map(|value| value as f32)
    }

    #[inline(always)]
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    unsafe fn dots4<const T: usize>(
        codes: *const u8,
        x: *const i8,
        mut sums: [Self::Ints; T],
    ) -> [Self::Ints; T] {
        for (token, sums) in sums.iter_mut().enumerate() {
            // SAFETY: 256 bytes of codes, and 32 activations for each token, by the caller.
            let (codes, x) = unsafe { (&*codes.cast(), &*x.add(token * BLOCK).cast()) };
            add_dots4(codes, x, sums);
        }
        sums
    }

    #[inline(always)]
    unsafe fn dots8<const T: usize, const GROUPS: usize>(
        codes: *const u8,
        x: *const i8,
        mut sums: [Self::Ints; T],
    ) -> [Self::Ints; T] {
        for (token, sums) in sums.iter_mut().enumerate() {
            // SAFETY: 64 bytes of codes, and 4 activations for each token, a group, by the caller.
            let (codes, x) = unsafe {
                (
                    std::slice::from_raw_parts(codes.cast(), GROUPS),
                    std::slice::from_raw_parts(x.add(token * BLOCK).cast(), GROUPS),
                )
            };
            add_dots8(codes, x, sums);
        }
        sums
    }

    #[inline(always)]
    unsafe fn prefetch(_address: *const u8) {}
}
