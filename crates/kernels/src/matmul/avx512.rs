//! The operations with AVX-512 and its integer dot products (VNNI): a vector holds all 16 rows.
//!
//! `vpdpbusd` multiplies four unsigned by four signed bytes in each lane and adds them up: weights are the
//! unsigned side, so codes of 8 bits keep their bias of 128. Four activations, the same for all rows, are a
//! broadcast operand.

use std::arch::x86_64::*;

use super::isa::{Isa, Kernel};
use crate::format::BLOCK;
use crate::level::Level;
use crate::pack::{BIAS, LINE};

/// [`Level::Avx512`].
#[derive(Clone, Copy)]
pub(super) struct Avx512;

/// Four activations, for every row.
#[inline(always)]
unsafe fn broadcast(x: *const i8) -> __m512i {
    // SAFETY: four readable activations, and the instructions, by the caller.
    unsafe { _mm512_set1_epi32(x.cast::<i32>().read_unaligned()) }
}

impl Isa for Avx512 {
    type Floats = __m512;
    type Ints = __m512i;

    const LEVEL: Level = Level::Avx512;
    const ZERO8: i32 = BIAS as i32;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn with<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: compiled for the level; the rest is the caller's.
        unsafe { kernel.run::<Avx512>() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: see `Isa`, here and below.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_load_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtph_ps(_mm256_load_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m512 {
        // SAFETY: as above.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_load_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn store(values: __m512, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm512_store_ps(to, values) }
    }

    #[inline(always)]
    unsafe fn to_floats(values: __m512i) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi32_ps(values) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn dots4<const T: usize>(codes: *const u8, x: *const i8, mut sums: [__m512i; T]) -> [__m512i; T] {
        // SAFETY: as above.
        unsafe {
            let nibble = _mm512_set1_epi8(15);
            for line in 0..4 {
                let pairs = _mm512_load_si512(codes.add(line * LINE).cast());
                let low = _mm512_and_si512(pairs, nibble);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(pairs), nibble);
                for (t, sum) in sums.iter_mut().enumerate() {
                    let x = x.add(t * BLOCK + line * 4);
                    *sum = _mm512_dpbusd_epi32(*sum, low, broadcast(x));
                    *sum = _mm512_dpbusd_epi32(*sum, high, broadcast(x.add(BLOCK / 2)));
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn dots8<const T: usize, const GROUPS: usize>(
        codes: *const u8,
        x: *const i8,
        mut sums: [__m512i; T],
    ) -> [__m512i; T] {
        // SAFETY: as above.
        unsafe {
            for line in 0..GROUPS {
                let codes = _mm512_load_si512(codes.add(line * LINE).cast());
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_dpbusd_epi32(*sum, codes, broadcast(x.add(t * BLOCK + line * 4)));
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
