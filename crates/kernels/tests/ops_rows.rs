//! Norm, rope, element-wise operations and softmax: against f64, and with equal bits at every level and
//! thread count.

use pomar_kernels::pool::Pool;
use pomar_kernels::random::uniform;
use pomar_kernels::rope::{RopeStyle, RopeTable, rope};
use pomar_kernels::{Level, elementwise, norm, softmax};

/// Numbers in -2..2.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| uniform(seed, i) * 4.0 - 2.0).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Runs `f` with the plain level on one thread and demands the same bits of every level, on 1 to 3 threads.
fn same_bits(what: &str, f: impl Fn(&Pool) -> Vec<f32>) -> Vec<f32> {
    let plain = f(&Pool::with_level(1, Level::Plain));
    for level in Level::supported() {
        for threads in 1..=3 {
            let got = f(&Pool::with_level(threads, level));
            assert!(bits(&got) == bits(&plain), "{what}: {level} with {threads} threads differs from plain");
        }
    }
    plain
}

fn assert_close(what: &str, got: &[f32], exact: impl Iterator<Item = f64>, bound: f64) {
    let exact: Vec<f64> = exact.collect();
    assert_eq!(got.len(), exact.len(), "{what}");
    for (i, (&got, exact)) in got.iter().zip(exact).enumerate() {
        let error = (f64::from(got) - exact).abs();
        assert!(error <= bound * (1.0 + exact.abs()), "{what}: element {i} is {got}, not {exact}");
    }
}

#[test]
fn rms_norm_is_right_and_the_same_everywhere() {
    for (rows, dim) in [(1, 1), (3, 7), (5, 16), (40, 576), (2, 4096), (70, 24), (9, 64), (3, 1000)] {
        let (x, weight) = (numbers(1, rows * dim), numbers(2, dim));
        let out = same_bits("rms_norm", |pool| {
            let mut out = vec![f32::NAN; x.len()];
            norm::rms_norm(pool, &x, &weight, 1e-5, &mut out);
            out
        });
        let in_place = same_bits("rms_norm_in_place", |pool| {
            let mut out = x.clone();
            norm::rms_norm_in_place(pool, &mut out, &weight, 1e-5);
            out
        });
        assert_eq!(bits(&out), bits(&in_place));

        let exact = x.chunks(dim).flat_map(|x| {
            let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / dim as f64;
            let factor = 1.0 / (mean + 1e-5).sqrt();
            x.iter()
                .zip(&weight)
                .map(move |(&x, &w)| f64::from(x) * factor * f64::from(w))
                .collect::<Vec<_>>()
        });
        assert_close("rms_norm", &out, exact, 1e-6);

        // A row alone has the bits it has among others.
        let mut alone = vec![0.0; dim];
        norm::rms_norm(&Pool::new(1), &x[x.len() - dim..], &weight, 1e-5, &mut alone);
        assert_eq!(bits(&alone), bits(&out[x.len() - dim..]));
    }
}

#[test]
fn the_sum_of_squares_has_sixteen_lanes_and_a_tree() {
    let x = numbers(3, 53);
    let mut lanes = [0.0f32; 16];
    for (i, x) in x.iter().enumerate() {
        lanes[i % 16] = x.mul_add(*x, lanes[i % 16]);
    }
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    let factor = 1.0 / (lanes[0] / 53.0 + 1e-6).sqrt();
    let exact: Vec<f32> = x.iter().map(|x| x * factor * 1.0).collect();
    let mut out = vec![0.0; 53];
    norm::rms_norm(&Pool::new(1), &x, &[1.0; 53], 1e-6, &mut out);
    assert_eq!(bits(&out), bits(&exact));
}

#[test]
fn elementwise_operations_are_right_and_the_same_everywhere() {
    for len in [0, 1, 15, 576, 40_000] {
        let (x, y) = (numbers(4, len), numbers(5, len));
        let pairs = || x.iter().zip(&y).map(|(&x, &y)| (f64::from(x), f64::from(y)));

        let out = same_bits("add_assign", |pool| {
            let mut out = x.clone();
            elementwise::add_assign(pool, &mut out, &y);
            out
        });
        assert_close("add_assign", &out, pairs().map(|(x, y)| x + y), 1e-7);

        let out = same_bits("scale", |pool| {
            let mut out = x.clone();
            elementwise::scale(pool, &mut out, 0.3);
            out
        });
        assert_close("scale", &out, pairs().map(|(x, _)| x * f64::from(0.3f32)), 1e-7);

        let out = same_bits("silu_mul", |pool| {
            let mut out = vec![f32::NAN; len];
            elementwise::silu_mul(pool, &x, &y, &mut out);
            out
        });
        assert_close("silu_mul", &out, pairs().map(|(x, y)| x / (1.0 + (-x).exp()) * y), 4e-7);
    }
    let (x, bias) = (numbers(6, 300 * 100), numbers(7, 100));
    let out = same_bits("add_bias", |pool| {
        let mut out = x.clone();
        elementwise::add_bias(pool, &mut out, &bias);
        out
    });
    let exact = x.iter().enumerate().map(|(i, &x)| f64::from(x) + f64::from(bias[i % 100]));
    assert_close("add_bias", &out, exact, 1e-7);
}

#[test]
fn rope_turns_pairs_and_passes_the_rest() {
    let positions = [0u32, 1, 2, 77, 4095, 131_071, 1 << 30];
    for (heads, dim, rotary) in [(3, 64, 64), (2, 24, 16), (1, 128, 128), (700, 80, 20), (2, 8, 0)] {
        for style in [RopeStyle::Half, RopeStyle::Interleaved] {
            let pairs = rotary / 2;
            let inv_freq: Vec<f64> = (0..pairs).map(|i| 1e4f64.powf(-(i as f64) / pairs as f64)).collect();
            let x = numbers(8, positions.len() * heads * dim);
            let mut table = RopeTable::new();
            table.fill(&positions, &inv_freq, 1.25);
            if rotary == 0 {
                // No pairs, no rows: there is nothing to turn, and `rope` is not for such a model.
                assert_eq!((table.tokens(), table.pairs()), (0, 0));
                continue;
            }
            let out = same_bits("rope", |pool| {
                let mut out = x.clone();
                rope(pool, &mut out, heads, dim, &table, style);
                out
            });
            let mut exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            for (head, exact) in exact.chunks_mut(dim).enumerate() {
                for (i, freq) in inv_freq.iter().enumerate() {
                    let (sin, cos) = (f64::from(positions[head / heads]) * freq).sin_cos();
                    let (a, b) = match style {
                        RopeStyle::Half => (i, i + pairs),
                        RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                    };
                    let (x, y) = (exact[a], exact[b]);
                    exact[a] = 1.25 * (x * cos - y * sin);
                    exact[b] = 1.25 * (y * cos + x * sin);
                }
            }
            assert_close("rope", &out, exact.into_iter(), 4e-7);
        }
    }
}

#[test]
fn a_rope_table_can_be_filled_again_with_fewer_rows() {
    let mut table = RopeTable::new();
    table.fill(&[1, 2, 3], &[1.0, 0.1, 0.01, 0.001], 1.0);
    table.fill(&[3], &[1.0, 0.1], 1.0);
    assert_eq!((table.tokens(), table.pairs()), (1, 2));
    let mut x = [1.0, 0.0, 0.0, 0.0];
    rope(&Pool::new(1), &mut x, 1, 4, &table, RopeStyle::Half);
    assert_close("rope", &x, [3f64.cos(), 0.0, 3f64.sin(), 0.0].into_iter(), 1e-7);
}

#[test]
fn softmax_is_right_and_the_same_everywhere() {
    for len in [1, 2, 15, 16, 17, 1000, 49_152] {
        let x: Vec<f32> = numbers(9, len).iter().map(|x| x * 10.0).collect();
        let run = |level| {
            let mut out = x.clone();
            softmax::softmax_in_place(level, &mut out, 0.7);
            let lse = softmax::log_sum_exp(level, &x);
            (bits(&out), lse.to_bits(), softmax::max(level, &x).to_bits(), softmax::argmax(level, &x))
        };
        let plain = run(Level::Plain);
        for level in Level::supported() {
            assert!(run(level) == plain, "{level} differs from plain");
        }

        let exp = |x: f32| (f64::from(x) / f64::from(0.7f32)).exp();
        let sum: f64 = x.iter().map(|&x| exp(x)).sum();
        for (&x, got) in x.iter().zip(&plain.0) {
            let (got, exact) = (f64::from(f32::from_bits(*got)), exp(x) / sum);
            // The argument of exp is rounded, so the error grows with its size.
            let bound = 2e-7 * (2.0 + f64::from(x - f32::from_bits(plain.2)).abs() / 0.7);
            assert!((got - exact).abs() <= bound * exact, "{got}, not {exact}");
        }
        let exact = x.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        assert!((f64::from_bits(plain.1) - exact).abs() < 1e-14 * exact.abs().max(1.0));
        assert_eq!(f32::from_bits(plain.2), x.iter().copied().fold(f32::MIN, f32::max));
    }
}

#[test]
fn argmax_takes_the_lowest_index_and_passes_over_nan() {
    for level in Level::supported() {
        let argmax = |x: &[f32]| softmax::argmax(level, x);
        assert_eq!(argmax(&[]), None);
        assert_eq!(argmax(&[f32::NAN]), None);
        assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), Some(0));
        let mut x = vec![1.0; 100];
        assert_eq!(argmax(&x), Some(0));
        x[0] = f32::NAN;
        x[37] = 2.0;
        x[69] = 2.0;
        assert_eq!(argmax(&x), Some(37));
        x[99] = f32::INFINITY;
        assert_eq!(argmax(&x), Some(99));
        assert_eq!(softmax::max(level, &[]), f32::NEG_INFINITY);
        assert_eq!(softmax::log_sum_exp(level, &[]), f64::NEG_INFINITY);
        let mut masked = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, 0.0];
        softmax::softmax_in_place(level, &mut masked, 1.0);
        assert_eq!(masked, [0.0, 0.5, 0.0, 0.5]);
    }
}
