//! Root mean square normalisation (Zhang and Sennrich, 2019).

use crate::lanes::{LANES, fold};
use crate::{by_level, pool::Pool};

/// Elements per task: a few microseconds of work.
const GRAIN: usize = 16 * 1024;

/// `out[row] = x[row] / sqrt(mean(x[row]^2) + eps) * weight` for every row of `weight.len()` elements.
///
/// `x` and `out` are `[rows, dim]`, `weight` is `[dim]`. A row is a token's hidden state, or one head of one
/// token.
///
/// # Panics
///
/// When `weight` is empty, `x` isn't whole rows of it, or `out` has another length than `x`.
pub fn rms_norm(pool: &Pool, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let dim = weight.len();
    assert_whole_rows(x.len(), dim);
    assert_eq!(x.len(), out.len(), "rms_norm: lengths of x and out");
    let step = dim * GRAIN.div_ceil(dim);
    pool.run_chunks(out, step, &|index, out| {
        let x = &x[index * step..][..out.len()];
        for (x, out) in x.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
            norm_row(pool.level(), x, weight, eps, out);
        }
    });
}

/// [`rms_norm`] with `out` the same memory as `x`; the bits are the same.
///
/// # Panics
///
/// When `weight` is empty or `x` isn't whole rows of it.
pub fn rms_norm_in_place(pool: &Pool, x: &mut [f32], weight: &[f32], eps: f32) {
    let dim = weight.len();
    assert_whole_rows(x.len(), dim);
    pool.run_chunks(x, dim * GRAIN.div_ceil(dim), &|_, x| {
        for x in x.chunks_exact_mut(dim) {
            norm_row_in_place(pool.level(), x, weight, eps);
        }
    });
}

fn assert_whole_rows(len: usize, dim: usize) {
    assert!(dim > 0 && len.is_multiple_of(dim), "rms_norm: {len} elements are not rows of {dim}");
}

by_level! {
    fn norm_row(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let factor = inverse_rms(x, eps);
        for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
            *out = x * factor * w;
        }
    }

    fn norm_row_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
        let factor = inverse_rms(x, eps);
        for (x, w) in x.iter_mut().zip(weight) {
            *x = *x * factor * w;
        }
    }
}

/// `1 / sqrt(mean(x^2) + eps)`
#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] = block[lane].mul_add(block[lane], lanes[lane]);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = x.mul_add(*x, *lane);
    }
    let mean = fold(lanes, |a, b| a + b) / x.len() as f32;
    1.0 / (mean + eps).sqrt()
}
