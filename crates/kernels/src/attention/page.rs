//! The inner loops of attention: one page against `M` pairs (of token and query head).
//!
//! `M` sums times `N` vectors of lanes stay in registers while a loop runs. Lanes are positions for the scores and
//! elements of the head for the outputs, so what `M` and `N` are shows in the time and not in the bits.

use super::PAGE;
use super::vector::Vector;
use crate::lanes::LANES;

/// Calls `$function::<V, N, M>` with the constant `M` that equals `$pairs`: 1 to `4 * N`, for `N` of 1 or 2.
macro_rules! with_pairs {
    ($pairs:expr, $function:ident::<$v:ident, $n:ident, _>($($argument:expr),* $(,)?)) => {
        match $pairs {
            1 => $function::<$v, $n, 1>($($argument),*),
            2 => $function::<$v, $n, 2>($($argument),*),
            3 => $function::<$v, $n, 3>($($argument),*),
            pairs if $n == 1 || pairs == 4 => $function::<$v, $n, 4>($($argument),*),
            5 => $function::<$v, $n, 5>($($argument),*),
            6 => $function::<$v, $n, 6>($($argument),*),
            7 => $function::<$v, $n, 7>($($argument),*),
            _ => $function::<$v, $n, 8>($($argument),*),
        }
    };
}

pub(super) use with_pairs;

/// `scores[m][position] = sum of q[d][m] * keys[d][position]` over `d` in order.
///
/// # Safety
///
/// The instructions of `V` must be there and enabled.
#[inline(always)]
pub(super) unsafe fn score_page<V: Vector, const N: usize, const M: usize>(
    q: &[f32],
    keys: &[f32],
    scores: &mut [f32],
) {
    let (q, _) = q.as_chunks::<M>();
    let (keys, _) = keys.as_chunks::<PAGE>();
    let (scores, _) = scores.as_chunks_mut::<PAGE>();
    for start in (0..PAGE).step_by(N * LANES) {
        // SAFETY: the caller's promise; the same for all below.
        let mut sums = [[unsafe { V::zero() }; N]; M];
        for (q, keys) in q.iter().zip(keys) {
            // SAFETY: as above.
            let keys: [V; N] = unsafe { load(&keys[start..]) };
            for m in 0..M {
                for n in 0..N {
                    // SAFETY: as above.
                    sums[m][n] = unsafe { keys[n].mul_add(q[m], sums[m][n]) };
                }
            }
        }
        for m in 0..M {
            // SAFETY: as above.
            unsafe { store(sums[m], &mut scores[m][start..]) };
        }
    }
}

/// The first `N` vectors of `from`.
///
/// # Safety
///
/// The instructions of `V` must be there and enabled.
#[inline(always)]
unsafe fn load<V: Vector, const N: usize>(from: &[f32]) -> [V; N] {
    let (from, _) = from.as_chunks();
    // SAFETY: the caller's promise.
    let mut vectors = [unsafe { V::zero() }; N];
    for n in 0..N {
        // SAFETY: as above.
        vectors[n] = unsafe { V::load(&from[n]) };
    }
    vectors
}

/// Writes `vectors` to the beginning of `to`.
///
/// # Safety
///
/// The instructions of `V` must be there and enabled.
#[inline(always)]
unsafe fn store<V: Vector, const N: usize>(vectors: [V; N], to: &mut [f32]) {
    let (to, _) = to.as_chunks_mut();
    for n in 0..N {
        // SAFETY: the caller's promise.
        unsafe { vectors[n].store(&mut to[n]) };
    }
}

/// `acc[m][d] += weights[m][position] * values[position][d]` over positions in order.
///
/// `weights` begins at the first position, with `PAGE` from one `m` to the next.
///
/// # Safety
///
/// The instructions of `V` must be there and enabled.
#[inline(always)]
pub(super) unsafe fn weigh_page<V: Vector, const N: usize, const M: usize>(
    weights: &[f32],
    values: &[f32],
    dim: usize,
    acc: &mut [f32],
) {
    let mut d = 0;
    while d + N * LANES <= dim {
        // SAFETY: the caller's promise, here and below.
        unsafe { weigh_lanes::<V, N, M>(weights, values, dim, d, acc) };
        d += N * LANES;
    }
    while d + LANES <= dim {
        // SAFETY: as above.
        unsafe { weigh_lanes::<V, 1, M>(weights, values, dim, d, acc) };
        d += LANES;
    }
    weigh_rest(weights, values, dim, d, acc);
}

/// [`weigh_page`] for the elements `d..d + N * LANES` of the heads.
///
/// # Safety
///
/// The instructions of `V` must be there and enabled.
#[inline(always)]
unsafe fn weigh_lanes<V: Vector, const N: usize, const M: usize>(
    weights: &[f32],
    values: &[f32],
    dim: usize,
    d: usize,
    acc: &mut [f32],
) {
    // SAFETY: the caller's promise; the same for all below.
    let mut sums = [[unsafe { V::zero() }; N]; M];
    for m in 0..M {
        // SAFETY: as above.
        sums[m] = unsafe { load(&acc[m * dim + d..]) };
    }
    // One bound for all weights, so that the loop has no checks.
    let weights = &weights[..(M - 1) * PAGE + values.len() / dim];
    for (position, values) in values.chunks_exact(dim).enumerate() {
        // SAFETY: as above.
        let values: [V; N] = unsafe { load(&values[d..]) };
        for m in 0..M {
            let weight = weights[m * PAGE + position];
            for n in 0..N {
                // SAFETY: as above.
                sums[m][n] = unsafe { values[n].mul_add(weight, sums[m][n]) };
            }
        }
    }
    for m in 0..M {
        // SAFETY: as above.
        unsafe { store(sums[m], &mut acc[m * dim + d..]) };
    }
}

/// [`weigh_page`] for the elements from `d` on, for head sizes that are not whole vectors.
#[inline(always)]
fn weigh_rest(weights: &[f32], values: &[f32], dim: usize, d: usize, acc: &mut [f32]) {
    if d == dim {
        return;
    }
    for (acc, weights) in acc.chunks_exact_mut(dim).zip(weights.chunks(PAGE)) {
        for (values, weight) in values.chunks_exact(dim).zip(weights) {
            for (acc, value) in acc[d..].iter_mut().zip(&values[d..]) {
                *acc = value.mul_add(*weight, *acc);
            }
        }
    }
}
