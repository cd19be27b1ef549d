//! The operations with AVX2 and FMA: two vectors of 8 rows.
//!
//! `vpmaddubsw` multiplies unsigned by signed bytes and adds pairs, saturating at 16 bits. Nothing here gets
//! there: codes of 4 bits give at most 15 * 127 * 2 a pair, and a whole block (8 pairs a lane) 30480. Codes
//! of 8 bits take the magnitude of the weight and give its sign to the activation, at most 128 * 127 * 2 =
//! 32512 a pair.

use std::arch::x86_64::*;

use super::isa::{Isa, Kernel};
use crate::format::BLOCK;
use crate::level::Level;
use crate::pack::{BIAS, LINE};

/// [`Level::Avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// Bytes of a vector.
const VECTOR: usize = 32;

/// Four activations, for every row.
#[inline(always)]
unsafe fn broadcast(x: *const i8) -> __m256i {
    // SAFETY: four readable activations, and the instructions, by the caller.
    unsafe { _mm256_set1_epi32(x.cast::<i32>().read_unaligned()) }
}

/// Adds neighbours among 16 numbers of 16 bits.
#[inline(always)]
unsafe fn add_pairs(sums: __m256i) -> __m256i {
    // SAFETY: the instructions, by the caller.
    unsafe { _mm256_madd_epi16(sums, _mm256_set1_epi16(1)) }
}

impl Isa for Avx2 {
    type Floats = [__m256; 2];
    type Ints = [__m256i; 2];

    const LEVEL: Level = Level::Avx2;
    const ZERO8: i32 = 0;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn with<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: compiled for the level; the rest is the caller's.
        unsafe { kernel.run::<Avx2>() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::Floats {
        // SAFETY: see `Isa`, here and below.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> Self::Ints {
        // SAFETY: as above.
        unsafe { [_mm256_set1_epi32(value); 2] }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Floats {
        // SAFETY: as above.
        unsafe { [_mm256_load_ps(from), _mm256_load_ps(from.add(8))] }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::Floats {
        // SAFETY: as above.
        unsafe {
            [
                _mm256_cvtph_ps(_mm_load_si128(from.cast())),
                _mm256_cvtph_ps(_mm_load_si128(from.add(8).cast())),
            ]
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::Floats {
        // SAFETY: as above.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_load_si128(from.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_load_si128(from.add(8).cast()));
            [low, high].map(|wide| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn store(values: Self::Floats, to: *mut f32) {
        // SAFETY: as above.
        unsafe {
            _mm256_store_ps(to, values[0]);
            _mm256_store_ps(to.add(8), values[1]);
        }
    }

    #[inline(always)]
    unsafe fn to_floats(values: Self::Ints) -> Self::Floats {
        // SAFETY: as above.
        unsafe { [_mm256_cvtepi32_ps(values[0]), _mm256_cvtepi32_ps(values[1])] }
    }

    #[inline(always)]
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: as above.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    unsafe fn dots4<const T: usize>(
        codes: *const u8,
        x: *const i8,
        mut sums: [Self::Ints; T],
    ) -> [Self::Ints; T] {
        // SAFETY: as above.
        unsafe {
            let nibble = _mm256_set1_epi8(15);
            // Half a panel at a time: sums of 8 tokens just fit the registers.
            for half in 0..2 {
                let mut pairs = [_mm256_setzero_si256(); T];
                for line in 0..4 {
                    let codes = _mm256_load_si256(codes.add(line * LINE + half * VECTOR).cast());
                    let low = _mm256_and_si256(codes, nibble);
                    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), nibble);
                    for (t, pairs) in pairs.iter_mut().enumerate() {
                        let x = x.add(t * BLOCK + line * 4);
                        *pairs = _mm256_add_epi16(*pairs, _mm256_maddubs_epi16(low, broadcast(x)));
                        let x = x.add(BLOCK / 2);
                        *pairs = _mm256_add_epi16(*pairs, _mm256_maddubs_epi16(high, broadcast(x)));
                    }
                }
                for (sum, pairs) in sums.iter_mut().zip(pairs) {
                    sum[half] = _mm256_add_epi32(sum[half], add_pairs(pairs));
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
        // SAFETY: as above.
        unsafe {
            let bias = _mm256_set1_epi8(BIAS as i8);
            for half in 0..2 {
                for line in 0..GROUPS {
                    let codes = _mm256_load_si256(codes.add(line * LINE + half * VECTOR).cast());
                    let codes = _mm256_sub_epi8(codes, bias);
                    let magnitudes = _mm256_abs_epi8(codes);
                    for (t, sum) in sums.iter_mut().enumerate() {
                        let x = _mm256_sign_epi8(broadcast(x.add(t * BLOCK + line * 4)), codes);
                        let pairs = _mm256_maddubs_epi16(magnitudes, x);
                        sum[half] = _mm256_add_epi32(sum[half], add_pairs(pairs));
                    }
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn prefetch(address: *const u8) {
        // SAFETY: as above; a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}
