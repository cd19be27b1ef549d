//! The operations with NEON: four vectors of 4 rows.
//!
//! With the integer dot products of Armv8.2 (every Apple chip since M1), `sdot` multiplies four by four
//! signed bytes in each lane and adds them up; its by-element form takes the four activations from one vector
//! that holds 16. Without them, products of 16 bits are added in pairs. Both are exact, so both give the same
//! sums. `sdot` and `fcvtl` are written as assembler because their intrinsics are not in stable Rust.

use std::arch::aarch64::*;
use std::arch::asm;
use std::array::from_fn;

use super::isa::{Isa, Kernel};
use crate::format::BLOCK;
use crate::level::Level;
use crate::pack::{BIAS, LINE};

/// [`Level::Neon`], with `sdot` if `DOT`.
#[derive(Clone, Copy)]
pub(super) struct Neon<const DOT: bool>;

/// Bytes of a vector.
const VECTOR: usize = 16;

impl<const DOT: bool> Neon<DOT> {
    /// Adds the products of 4 rows of codes with the four activations in lane `LANE` of `x`.
    #[inline(always)]
    unsafe fn dot<const LANE: i32>(sum: int32x4_t, codes: int8x16_t, x: int8x16_t) -> int32x4_t {
        if DOT {
            let mut sum = sum;
            // SAFETY: `DOT` says that the processor has the instruction.
            unsafe {
                asm!(
                    "sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{3}]",
                    inout(vreg) sum, in(vreg) codes, in(vreg) x, const LANE,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        } else {
            // SAFETY: NEON, see `Isa`.
            unsafe {
                let x = vreinterpretq_s8_s32(vdupq_laneq_s32::<LANE>(vreinterpretq_s32_s8(x)));
                let low = vpaddlq_s16(vmull_s8(vget_low_s8(codes), vget_low_s8(x)));
                let high = vpaddlq_s16(vmull_high_s8(codes, x));
                vaddq_s32(sum, vpaddq_s32(low, high))
            }
        }
    }
}

/// Runs a kernel compiled for a processor with `sdot`.
#[target_feature(enable = "dotprod")]
unsafe fn with_dot<I: Isa, K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's.
    unsafe { kernel.run::<I>() }
}

/// Four halves, widened.
#[inline(always)]
unsafe fn widen(halves: uint16x4_t) -> float32x4_t {
    let floats: float32x4_t;
    // SAFETY: NEON, see `Isa`.
    unsafe {
        asm!(
            "fcvtl {0:v}.4s, {1:v}.4h",
            out(vreg) floats, in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    floats
}

impl<const DOT: bool> Isa for Neon<DOT> {
    type Floats = [float32x4_t; 4];
    type Ints = [int32x4_t; 4];

    const LEVEL: Level = Level::Neon;
    const ZERO8: i32 = BIAS as i32;

    #[inline]
    unsafe fn with<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: NEON is always there, and `sdot` if `DOT`; the rest is the caller's.
        unsafe { if DOT { with_dot::<Self, K>(kernel) } else { kernel.run::<Self>() } }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::Floats {
        // SAFETY: see `Isa`, here and below.
        unsafe { [vdupq_n_f32(value); 4] }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> Self::Ints {
        // SAFETY: as above.
        unsafe { [vdupq_n_s32(value); 4] }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Floats {
        // SAFETY: as above.
        from_fn(|i| unsafe { vld1q_f32(from.add(4 * i)) })
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::Floats {
        // SAFETY: as above.
        from_fn(|i| unsafe { widen(vld1_u16(from.add(4 * i))) })
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::Floats {
        // SAFETY: as above.
        from_fn(|i| unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.add(4 * i)))) })
    }

    #[inline(always)]
    unsafe fn store(values: Self::Floats, to: *mut f32) {
        for (i, value) in values.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { vst1q_f32(to.add(4 * i), value) };
        }
    }

    #[inline(always)]
    unsafe fn to_floats(values: Self::Ints) -> Self::Floats {
        // SAFETY: as above.
        values.map(|value| unsafe { vcvtq_f32_s32(value) })
    }

    #[inline(always)]
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        from_fn(|i| unsafe { vaddq_f32(a[i], b[i]) })
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        from_fn(|i| unsafe { vmulq_f32(a[i], b[i]) })
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        from_fn(|i| unsafe { vfmaq_f32(c[i], a[i], b[i]) })
    }

    #[inline(always)]
    unsafe fn dots4<const T: usize>(
        codes: *const u8,
        x: *const i8,
        mut sums: [Self::Ints; T],
    ) -> [Self::Ints; T] {
        // SAFETY: as above.
        unsafe {
            let nibble = vdupq_n_u8(15);
            let pairs = |line: usize, quarter: usize| vld1q_u8(codes.add(line * LINE + quarter * VECTOR));
            for (t, sums) in sums.iter_mut().enumerate() {
                // Lane `l` of these belongs to the low, or the high, codes of line `l`.
                let x_low = vld1q_s8(x.add(t * BLOCK));
                let x_high = vld1q_s8(x.add(t * BLOCK + BLOCK / 2));
                for (quarter, sum) in sums.iter_mut().enumerate() {
                    let low = |line| vreinterpretq_s8_u8(vandq_u8(pairs(line, quarter), nibble));
                    let high = |line| vreinterpretq_s8_u8(vshrq_n_u8::<4>(pairs(line, quarter)));
                    *sum = Self::dot::<0>(Self::dot::<0>(*sum, low(0), x_low), high(0), x_high);
                    *sum = Self::dot::<1>(Self::dot::<1>(*sum, low(1), x_low), high(1), x_high);
                    *sum = Self::dot::<2>(Self::dot::<2>(*sum, low(2), x_low), high(2), x_high);
                    *sum = Self::dot::<3>(Self::dot::<3>(*sum, low(3), x_low), high(3), x_high);
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn dots8<const T: usize, const GROUPS: usize>(
        codes: *const u8,
        x: *const i8,
        mut sums: [Self::Ints; T],
    ) -> [Self::Ints; T] {
        const { assert!(GROUPS.is_multiple_of(4)) };
        // SAFETY: as above.
        unsafe {
            for (t, sums) in sums.iter_mut().enumerate() {
                for first in (0..GROUPS).step_by(4) {
                    let x = vld1q_s8(x.add(t * BLOCK + first * 4));
                    for (quarter, sum) in sums.iter_mut().enumerate() {
                        let codes = |line: usize| {
                            vreinterpretq_s8_u8(vld1q_u8(codes.add((first + line) * LINE + quarter * VECTOR)))
                        };
                        *sum = Self::dot::<0>(*sum, codes(0), x);
                        *sum = Self::dot::<1>(*sum, codes(1), x);
                        *sum = Self::dot::<2>(*sum, codes(2), x);
                        *sum = Self::dot::<3>(*sum, codes(3), x);
                    }
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn prefetch(_address: *const u8) {
        // Arm's processors, Apple's above all, find such streams by themselves.
    }
}
