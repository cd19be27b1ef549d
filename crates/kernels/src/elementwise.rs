//! Operations that treat each element by itself.

use crate::math::silu;
use crate::{by_level, pool::Pool};

/// Elements per task, so that a task lasts some microseconds.
const GRAIN: usize = 16 * 1024;
/// The same for operations with an `exp`.
const EXP_GRAIN: usize = 4 * 1024;

/// `x += y`, for residual connections.
///
/// # Panics
///
/// When the lengths differ.
pub fn add_assign(pool: &Pool, x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "add_assign: lengths of x and y");
    pool.run_chunks(x, GRAIN, &|index, x| add_part(pool.level(), x, &y[index * GRAIN..]));
}

/// Adds `bias` (`[dim]`) to every row of `x` (`[rows, dim]`).
///
/// # Panics
///
/// When `bias` is empty or `x` isn't whole rows of it.
pub fn add_bias(pool: &Pool, x: &mut [f32], bias: &[f32]) {
    let dim = bias.len();
    assert!(dim > 0 && x.len().is_multiple_of(dim), "add_bias: {} elements are not rows of {dim}", x.len());
    pool.run_chunks(x, dim * GRAIN.div_ceil(dim), &|_, x| {
        for row in x.chunks_exact_mut(dim) {
            add_part(pool.level(), row, bias);
        }
    });
}

/// `x *= factor`
pub fn scale(pool: &Pool, x: &mut [f32], factor: f32) {
    pool.run_chunks(x, GRAIN, &|_, x| scale_part(pool.level(), x, factor));
}

/// `out = silu(gate) * up`, the gate of SwiGLU (Shazeer, 2020).
///
/// # Panics
///
/// When the lengths differ.
pub fn silu_mul(pool: &Pool, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert_eq!(gate.len(), out.len(), "silu_mul: lengths of gate and out");
    assert_eq!(up.len(), out.len(), "silu_mul: lengths of up and out");
    pool.run_chunks(out, EXP_GRAIN, &|index, out| {
        let start = index * EXP_GRAIN;
        silu_mul_part(pool.level(), &gate[start..], &up[start..], out);
    });
}

by_level! {
    fn add_part(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }

    fn scale_part(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }

    fn silu_mul_part(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((out, &gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = silu(gate) * up;
        }
    }
}
