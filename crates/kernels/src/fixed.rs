//! Sums that don't care how they are grouped: 64-bit fixed point in steps of 2^-32.
//!
//! Float addition is not associative, so a sum that is split over machines would depend on the split. Partial
//! sums that cross such a border are rounded once to a multiple of 2^-32 and added as integers from there.
//! The range is +-2^31; a value outside, or NaN, becomes [`i64::MIN`], which is what `vcvtps2qq` gives.

use crate::by_level;
use crate::level::{Level, level};

/// Steps per unit, as a power of two.
pub const FRACTION_BITS: u32 = 32;

const STEPS: f32 = (1u64 << FRACTION_BITS) as f32;

/// 2^63, the first float too large for an i64.
const LIMIT: f32 = 9_223_372_036_854_775_808.0;

/// `value` in steps, to nearest, ties to even; [`i64::MIN`] when it is NaN or out of range.
#[inline(always)]
pub fn to_fixed(value: f32) -> i64 {
    let steps = (value * STEPS).round_ties_even();
    let valid = (-LIMIT..LIMIT).contains(&steps);
    if valid { steps as i64 } else { i64::MIN }
}

/// Adds `values` to `sums`, wrapping.
pub(crate) fn add_fixed(level: Level, values: &[f32], sums: &mut [i64]) {
    add(level, values, sums);
}

/// Below this, [`to_fixed_small`] is exact: 2^51 steps.
const SMALL: f32 = (1u64 << (51 - FRACTION_BITS)) as f32;

/// 1.5 * 2^52: an f64 of this size has units of 1, so adding it rounds to nearest, ties to even.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// [`to_fixed`] for values below [`SMALL`], in operations that every instruction set has for whole vectors.
#[inline(always)]
fn to_fixed_small(value: f32) -> i64 {
    let shifted = f64::from(value) * f64::from(STEPS) + ROUND;
    (shifted.to_bits() as i64).wrapping_sub(ROUND.to_bits() as i64)
}

by_level! {
    fn add(values: &[f32], sums: &mut [i64]) {
        let all_small = values.iter().fold(true, |small, value| small & (value.abs() < SMALL));
        if all_small {
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(to_fixed_small(value));
            }
        } else {
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(to_fixed(value));
            }
        }
    }

    fn convert(sums: &[i64], out: &mut [f32]) {
        for (out, &sum) in out.iter_mut().zip(sums) {
            *out = from_fixed(sum);
        }
    }
}

/// The float nearest to `sum` steps as the kernels define it: `sum` to the nearest f64, times 2^-32 (exact),
/// to the nearest f32; ties to even each time.
#[inline(always)]
pub fn from_fixed(sum: i64) -> f32 {
    (sum as f64 * (1.0 / (1u64 << FRACTION_BITS) as f64)) as f32
}

/// Turns sums back into floats: [`from_fixed`] of each.
///
/// # Panics
/// The slices differ in length.
pub fn fixed_to_f32(sums: &[i64], out: &mut [f32]) {
    assert_eq!(sums.len(), out.len(), "one float for each sum");
    convert(level(), sums, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_take_the_quick_way_to_the_same_steps() {
        let mut bits = 1u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = f32::from_bits(bits);
            if value.abs() < SMALL {
                assert_eq!(to_fixed_small(value), to_fixed(value), "{value}");
            }
        }
        let step = 2f32.powi(-32);
        for value in [0.5, 1.5, 2.5, -0.5, -1.5, -2.5].map(|steps| steps * step) {
            assert_eq!(to_fixed_small(value), to_fixed(value), "{value}");
        }
    }

    #[test]
    fn rounds_to_even_and_marks_what_does_not_fit() {
        let step = 2f32.powi(-32);
        for (value, steps) in [
            (0.0, 0),
            (-0.0, 0),
            (step, 1),
            (1.5 * step, 2),
            (2.5 * step, 2),
            (-0.5 * step, 0),
            (-1.0, -(1 << 32)),
            (-2_147_483_648.0, i64::MIN),
            (2_147_483_520.0, 9_223_371_487_098_961_920),
            (2_147_483_648.0, i64::MIN),
            (f32::INFINITY, i64::MIN),
            (f32::NEG_INFINITY, i64::MIN),
            (f32::NAN, i64::MIN),
        ] {
            assert_eq!(to_fixed(value), steps, "{value}");
            for level in Level::supported() {
                // Longer than a vector, so that the compiled loop and its tail are both seen.
                let (values, mut sums) = ([value; 19], [7; 19]);
                add_fixed(level, &values, &mut sums);
                assert_eq!(sums, [7i64.wrapping_add(steps); 19], "{value} at {level}");
            }
        }
    }

    #[test]
    fn converts_back() {
        let mut out = [0.0; 4];
        fixed_to_f32(&[1 << 32, -(3 << 31), 1, i64::MIN], &mut out);
        assert_eq!(out, [1.0, -1.5, 2f32.powi(-32), -2_147_483_648.0]);
    }
}
