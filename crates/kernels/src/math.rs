//! Elementary functions as fixed sequences of IEEE operations.
//!
//! The functions of the system's math library differ from platform to platform in their last bits. These
//! don't: each is a range reduction and a polynomial in fused steps, without branches, so that a loop over an
//! array of them becomes vector code inside [`by_level!`](crate::by_level) (all are `inline(always)` for
//! that).

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E};

/// 1.5 * 2^23: adding and subtracting it rounds an f32 below 2^22 to the nearest integer, ties to even.
const ROUND_F32: f32 = 12_582_912.0;
/// 1.5 * 2^52: the same for an f64 below 2^51.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

/// ln 2 minus its nearest f32.
const LN_2_LOW_F32: f32 = -1.904_654_3e-9;
/// ln 2 minus its nearest f64.
const LN_2_LOW_F64: f64 = 2.319_046_813_846_299_6e-17;
/// pi / 2 minus its nearest f64.
const FRAC_PI_2_LOW: f64 = 6.123_233_995_736_766e-17;

/// `e^x` within 1.1 units in the last place (of all f32 numbers, measured).
///
/// Results below the smallest normal number (`x < -87.33655`) are 0, `x > 88.73` gives infinity, NaN gives
/// NaN.
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    const LOWEST: f32 = -87.336_54;
    const HIGHEST: f32 = 89.0;
    // Minimax on +-ln(2)/2 of (e^r - 1 - r) / r^2: 0.17 half units in the last place of e^r.
    const C: [f32; 5] = [0.5, 0.166_665_77, 0.041_666_556, 0.008_363_233, 0.001_392_625];

    let bounded = if x > HIGHEST { HIGHEST } else { x };
    let bounded = if bounded < LOWEST { LOWEST } else { bounded };
    let shifted = bounded.mul_add(std::f32::consts::LOG2_E, ROUND_F32);
    let n = shifted - ROUND_F32;
    let r = n.mul_add(-std::f32::consts::LN_2, bounded);
    let r = n.mul_add(-LN_2_LOW_F32, r);
    let q = C[4].mul_add(r, C[3]).mul_add(r, C[2]).mul_add(r, C[1]).mul_add(r, C[0]);
    let y = q.mul_add(r * r, r) + 1.0;

    // 2^n in two factors: n = 128 has no f32 of its own.
    let n = shifted.to_bits().wrapping_sub(ROUND_F32.to_bits()) as i32;
    let half = n >> 1;
    let y = y * power_of_two_f32(half) * power_of_two_f32(n.wrapping_sub(half));
    if x < LOWEST { 0.0 } else { y }
}

/// 2^n for -126 <= n <= 127.
#[inline(always)]
fn power_of_two_f32(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The logistic function `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp_f32(-x))
}

/// `x * sigmoid(x)`, the activation of SwiGLU (Elfwing et al., 2017).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp_f32(-x))
}

/// `e^x` with a relative error of about 1e-16 * (1 + |result's exponent| / 1000).
///
/// Results below the smallest normal number (`x < -708.39`) are 0, `x > 709.79` gives infinity, NaN gives
/// NaN.
#[inline(always)]
pub fn exp_f64(x: f64) -> f64 {
    const LOWEST: f64 = -708.396_418_532_264_1;
    const HIGHEST: f64 = 710.0;

    let bounded = if x > HIGHEST { HIGHEST } else { x };
    let bounded = if bounded < LOWEST { LOWEST } else { bounded };
    let shifted = bounded.mul_add(LOG2_E, ROUND_F64);
    let n = shifted - ROUND_F64;
    let r = n.mul_add(-LN_2, bounded);
    let r = n.mul_add(-LN_2_LOW_F64, r);
    // Taylor to r^13: the next term is 4e-18 on +-ln(2)/2.
    let mut y = INVERSE_FACTORIAL[13];
    for k in (0..13).rev() {
        y = y.mul_add(r, INVERSE_FACTORIAL[k]);
    }

    let n = shifted.to_bits().wrapping_sub(ROUND_F64.to_bits()) as i64;
    let half = n >> 1;
    let y = y * power_of_two_f64(half) * power_of_two_f64(n.wrapping_sub(half));
    if x < LOWEST { 0.0 } else { y }
}

/// 2^n for -1022 <= n <= 1023.
#[inline(always)]
fn power_of_two_f64(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) as u64) << 52)
}

/// The natural logarithm within about 2e-16 relative (absolute near 1).
///
/// Zero and subnormal numbers give minus infinity, negative numbers NaN.
#[inline(always)]
pub fn ln_f64(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x < f64::MIN_POSITIVE {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    // x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
    const SQRT_HALF_BITS: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let offset = x.to_bits().wrapping_sub(SQRT_HALF_BITS) as i64;
    let exponent = offset >> 52;
    let m = f64::from_bits(x.to_bits().wrapping_sub((exponent << 52) as u64));
    // ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172: the first term left out is 1e-18.
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut series = 1.0f64 / 23.0;
    for k in (1..11).rev() {
        series = series.mul_add(square, 1.0 / f64::from(2 * k + 1));
    }
    let e = exponent as f64;
    let tail = (series * square).mul_add(2.0 * s, e * LN_2_LOW_F64);
    e.mul_add(LN_2, 2.0 * s + tail)
}

/// `base^exponent` for a positive base, with a relative error of about 2e-16 * (1 + |exponent * ln base|).
#[inline(always)]
pub fn pow_f64(base: f64, exponent: f64) -> f64 {
    exp_f64(exponent * ln_f64(base))
}

/// `(sin x, cos x)` within 1e-15 for |x| up to 2^30 (Cody and Waite's reduction, exact in its first fused
/// step).
///
/// Beyond 2^30 the results stay in -1..1 and lose accuracy; infinity and NaN give NaN.
#[inline(always)]
pub fn sin_cos_f64(x: f64) -> (f64, f64) {
    let shifted = x.mul_add(FRAC_2_PI, ROUND_F64);
    let quarters = shifted - ROUND_F64;
    let r = quarters.mul_add(-FRAC_PI_2, x);
    let r = quarters.mul_add(-FRAC_PI_2_LOW, r);

    // Taylor to r^15 and r^16: the next terms are 5e-17 and 2e-18 on +-pi/4.
    let minus_square = -(r * r);
    let mut sine = INVERSE_FACTORIAL[15];
    let mut cosine = INVERSE_FACTORIAL[16];
    for k in (1..8).rev() {
        sine = sine.mul_add(minus_square, INVERSE_FACTORIAL[2 * k - 1]);
        cosine = cosine.mul_add(minus_square, INVERSE_FACTORIAL[2 * k]);
    }
    let sine = sine * r;
    let cosine = cosine.mul_add(minus_square, 1.0);

    let quadrant = shifted.to_bits();
    let (s, c) = if quadrant & 1 == 0 { (sine, cosine) } else { (cosine, sine) };
    let s = if quadrant & 2 == 0 { s } else { -s };
    let c = if (quadrant + 1) & 2 == 0 { c } else { -c };
    (s, c)
}

/// `1 / k!`
const INVERSE_FACTORIAL: [f64; 17] = {
    let mut table = [1.0; 17];
    let mut factorial = 1.0;
    let mut k = 1;
    while k < 17 {
        factorial *= k as f64;
        table[k] = 1.0 / factorial;
        k += 1;
    }
    table
};
