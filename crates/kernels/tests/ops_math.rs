//! The elementary functions against the system's f64 ones, and at every level against the plain one.

use pomar_kernels::math::{exp_f32, exp_f64, ln_f64, pow_f64, sigmoid, silu, sin_cos_f64};
use pomar_kernels::{Level, by_level};

by_level! {
    fn all_f32(x: &[f32], out: &mut [[f32; 3]]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = [exp_f32(x), sigmoid(x), silu(x)];
        }
    }

    fn all_f64(x: &[f64], out: &mut [[f64; 5]]) {
        for (out, &x) in out.iter_mut().zip(x) {
            let (sin, cos) = sin_cos_f64(x);
            *out = [exp_f64(x), ln_f64(x), pow_f64(x, -0.37), sin, cos];
        }
    }
}

/// Distance in units in the last place of the exact result (of the smallest normal number at least).
fn ulps(got: f32, exact: f64) -> f64 {
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    (f64::from(got) - exact).abs() / (exponent - 23.0).exp2()
}

/// f32 numbers of every size and sign, some thousand per power of two near 1.
fn f32_samples() -> Vec<f32> {
    let bits = (0..=u32::MAX).step_by(40_009).map(f32::from_bits).filter(|x| x.is_finite());
    let dense = (-100_000..=100_000).map(|i| i as f32 * 1e-3);
    bits.chain(dense).collect()
}

#[test]
fn exp_f32_is_within_two_ulps() {
    let mut worst = 0.0f64;
    for x in f32_samples() {
        let exact = f64::from(x).exp();
        let got = exp_f32(x);
        if exact > f64::from(f32::MAX) {
            assert!(got == f32::INFINITY || exact < 3.403e38, "exp({x}) = {got}");
        } else if exact < f64::from(f32::MIN_POSITIVE) {
            assert!(got == 0.0 || got == f32::MIN_POSITIVE, "exp({x}) = {got}");
        } else if got != 0.0 || exact > 1.000_01 * f64::from(f32::MIN_POSITIVE) {
            worst = worst.max(ulps(got, exact));
        }
    }
    println!("exp_f32: {worst:.3} ulp");
    assert!(worst <= 2.0, "{worst} ulp");
}

#[test]
fn exp_at_the_edges() {
    assert_eq!(exp_f32(0.0), 1.0);
    assert_eq!(exp_f32(-0.0), 1.0);
    assert_eq!(exp_f32(f32::NEG_INFINITY).to_bits(), 0);
    assert_eq!(exp_f32(f32::MIN).to_bits(), 0);
    assert_eq!(exp_f32(-104.0).to_bits(), 0);
    assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
    assert_eq!(exp_f32(88.8), f32::INFINITY);
    assert!(exp_f32(88.7).is_finite());
    assert!(exp_f32(f32::NAN).is_nan());
    assert_eq!(exp_f64(f64::NEG_INFINITY).to_bits(), 0);
    assert_eq!(exp_f64(-800.0).to_bits(), 0);
    assert_eq!(exp_f64(800.0), f64::INFINITY);
    assert!(exp_f64(709.7).is_finite());
    assert!(exp_f64(f64::NAN).is_nan());
    assert!(silu(f32::NAN).is_nan());
    assert_eq!(silu(-200.0), 0.0);
    assert_eq!(silu(200.0), 200.0);
    assert_eq!(sigmoid(-200.0), 0.0);
    assert_eq!(sigmoid(200.0), 1.0);
}

#[test]
fn silu_and_sigmoid_are_close() {
    for x in f32_samples().into_iter().filter(|x| x.abs() < 80.0) {
        let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
        assert!(ulps(sigmoid(x), exact) <= 2.5, "sigmoid({x})");
        let exact = exact * f64::from(x);
        assert!(exact.abs() < 1e-36 || ulps(silu(x), exact) <= 3.0, "silu({x})");
    }
}

#[test]
fn f64_functions_are_close() {
    for i in -70_000..70_000 {
        let x = f64::from(i) * 0.010_01;
        assert!((exp_f64(x) / x.exp() - 1.0).abs() < 1e-15, "exp({x})");
    }
    for i in 1..200_000 {
        let x = (f64::from(i) * 0.007 - 700.0).exp();
        let error = (ln_f64(x) - x.ln()).abs();
        assert!(error <= 5e-16 * x.ln().abs().max(1e-3), "ln({x}): {error}");
    }
    for x in [0.5f64, 0.999, 1.0, 1.001, 2.0, f64::MIN_POSITIVE, f64::MAX] {
        assert!((ln_f64(x) - x.ln()).abs() <= 3e-16 * x.ln().abs(), "ln({x})");
    }
    assert_eq!(ln_f64(0.0), f64::NEG_INFINITY);
    assert_eq!(ln_f64(f64::INFINITY), f64::INFINITY);
    assert!(ln_f64(-1.0).is_nan() && ln_f64(f64::NAN).is_nan());
}

#[test]
fn powers_for_inverse_frequencies_are_close() {
    for theta in [1e4f64, 5e5, 1e6, 1e7] {
        for i in 0..128 {
            let exponent = -f64::from(i) / 128.0;
            let exact = theta.powf(exponent);
            assert!((pow_f64(theta, exponent) / exact - 1.0).abs() < 1e-14, "{theta}^{exponent}");
        }
    }
}

#[test]
fn sine_and_cosine_are_close_up_to_2_to_the_30() {
    let mut worst = 0.0f64;
    for i in -40_000i32..40_000 {
        for x in
            [f64::from(i) * 1e-4, f64::from(i) * std::f64::consts::FRAC_PI_4, f64::from(i) * 26_843.545_6]
        {
            let (sin, cos) = sin_cos_f64(x);
            worst = worst.max((sin - x.sin()).abs()).max((cos - x.cos()).abs());
        }
    }
    println!("sin_cos_f64: {worst:.2e}");
    assert!(worst < 1e-15, "{worst}");
    assert_eq!(sin_cos_f64(0.0), (0.0, 1.0));
    assert!(sin_cos_f64(f64::INFINITY).0.is_nan());
}

#[test]
fn every_level_gives_the_same_bits() {
    let x = f32_samples();
    let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).filter(|x| x.abs() < 1e9).collect();
    let run = |level| {
        let mut narrow_out = vec![[0.0f32; 3]; x.len()];
        let mut wide_out = vec![[0.0f64; 5]; wide.len()];
        all_f32(level, &x, &mut narrow_out);
        all_f64(level, &wide, &mut wide_out);
        // Which NaN it is does not matter.
        let narrow = narrow_out.into_iter().flatten().map(|y| if y.is_nan() { 1 } else { y.to_bits() });
        let wide = wide_out.into_iter().flatten().map(|y| if y.is_nan() { 1 } else { y.to_bits() });
        (narrow.collect::<Vec<_>>(), wide.collect::<Vec<_>>())
    };
    let plain = run(Level::Plain);
    for level in Level::supported() {
        assert!(run(level) == plain, "{level} differs from plain");
    }
}
