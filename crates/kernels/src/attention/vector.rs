//! Sixteen floats in registers.
//!
//! The compiler makes good vector code of plain loops as long as the sums are few. The inner loops of
//! attention keep up to 256 of them, which it would move through memory, so here the registers are named. The
//! operations are single IEEE operations per lane, so the bits are those of the plain form.

use crate::lanes::LANES;

/// A vector of [`LANES`] floats of one instruction set.
///
/// # Safety
///
/// Functions may only be called where the instruction set is there and enabled. They are `inline(always)`, so
/// that they become single instructions in a caller that enables it.
pub(super) trait Vector: Copy {
    unsafe fn zero() -> Self;
    unsafe fn load(from: &[f32; LANES]) -> Self;
    unsafe fn store(self, to: &mut [f32; LANES]);
    /// `self * factor + addend` in every lane, rounded once.
    unsafe fn mul_add(self, factor: f32, addend: Self) -> Self;
}

/// The reference, for any processor.
#[derive(Clone, Copy)]
pub(super) struct Plain([f32; LANES]);

impl Vector for Plain {
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: &[f32; LANES]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    unsafe fn store(self, to: &mut [f32; LANES]) {
        *to = self.0;
    }

    #[inline(always)]
    unsafe fn mul_add(mut self, factor: f32, addend: Self) -> Self {
        for (x, addend) in self.0.iter_mut().zip(addend.0) {
            *x = x.mul_add(factor, addend);
        }
        self
    }
}

/// Names a [`Vector`] of `$count` registers of `$lanes` floats.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! registers {
    ($(#[$doc:meta])* $name:ident: [$register:ty; $count:literal] of $lanes:literal,
     $splat:path, $load:path, $store:path, |$x:ident, $factor:ident, $addend:ident| $mul_add:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(in crate::attention) struct $name([$register; $count]);

        impl Vector for $name {
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller's promise: the instruction set is there. The same for all others here.
                Self([unsafe { $splat(0.0) }; $count])
            }

            #[inline(always)]
            unsafe fn load(from: &[f32; LANES]) -> Self {
                let (from, _) = from.as_chunks::<$lanes>();
                // SAFETY: as above.
                let mut vector = unsafe { Self::zero() };
                for (register, from) in vector.0.iter_mut().zip(from) {
                    // SAFETY: as above; the address is that of as many floats as are read.
                    *register = unsafe { $load(from.as_ptr()) };
                }
                vector
            }

            #[inline(always)]
            unsafe fn store(self, to: &mut [f32; LANES]) {
                let (to, _) = to.as_chunks_mut::<$lanes>();
                for (to, register) in to.iter_mut().zip(self.0) {
                    // SAFETY: as above; the address is that of as many floats as are written.
                    unsafe { $store(to.as_mut_ptr(), register) };
                }
            }

            #[inline(always)]
            unsafe fn mul_add(mut self, factor: f32, addend: Self) -> Self {
                // SAFETY: as above.
                let $factor = unsafe { $splat(factor) };
                for ($x, $addend) in self.0.iter_mut().zip(addend.0) {
                    // SAFETY: as above.
                    *$x = unsafe { $mul_add };
                }
                self
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;

    registers! {
        /// Two registers of AVX2 with FMA.
        Avx2: [__m256; 2] of 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps,
        |x, factor, addend| _mm256_fmadd_ps(*x, factor, addend)
    }

    registers! {
        /// One register of AVX-512 F.
        Avx512: [__m512; 1] of 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps,
        |x, factor, addend| _mm512_fmadd_ps(*x, factor, addend)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::*;

    registers! {
        /// Four registers of 64-bit Arm.
        Neon: [float32x4_t; 4] of 4, vdupq_n_f32, vld1q_f32, vst1q_f32,
        |x, factor, addend| vfmaq_f32(addend, *x, factor)
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use arm::Neon;
