//! Matrix products: every format at every level, batch and cut gives the same bits, and the right numbers.

use std::sync::LazyLock;

use crate::matrix::{Matrix, random_floats, random_matrix};
use pomar_kernels::pool::Pool;
use pomar_kernels::{
    Activations, Format, Level, PackedMatrix, dequantize_rows, fixed_to_f32, matmul, matmul_fixed,
};
use proptest::prelude::*;

/// A pool of three threads for each level of this processor.
static POOLS: LazyLock<Vec<Pool>> =
    LazyLock::new(|| Level::supported().map(|level| Pool::with_level(3, level)).collect());

/// One thread, plain Rust: the reference.
fn plain_pool() -> Pool {
    Pool::with_level(1, Level::Plain)
}

/// A product with the threads and at the level of a pool.
fn product(pool: &Pool, matrix: &PackedMatrix, x: &[f32], tokens: usize) -> Vec<f32> {
    let mut activations = Activations::new();
    activations.load(pool, x, tokens, matrix.cols(), matrix.activation_kind());
    let mut out = vec![f32::NAN; tokens * matrix.rows()];
    matmul(pool, matrix, &activations, &mut out);
    out
}

/// The fixed form of a product.
fn fixed(pool: &Pool, matrix: &PackedMatrix, x: &[f32], tokens: usize, granule: usize) -> Vec<i64> {
    let mut activations = Activations::new();
    activations.load(pool, x, tokens, matrix.cols(), matrix.activation_kind());
    let mut out = vec![-1; tokens * matrix.rows()];
    matmul_fixed(pool, matrix, &activations, granule, &mut out);
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Columns `start..end` of `x`, `[tokens, cols]`.
fn columns(x: &[f32], cols: usize, start: usize, end: usize) -> Vec<f32> {
    x.chunks(cols).flat_map(|row| &row[start..end]).copied().collect()
}

/// What the product of unrounded numbers is, and a bound for how far the kernels may be from it.
fn reference(matrix: &Matrix, x: &[f32], tokens: usize) -> Vec<(f64, f64)> {
    let Matrix { format, rows, cols, bytes } = matrix;
    let mut weights = vec![0.0; rows * cols];
    dequantize_rows(*format, bytes, &mut weights).unwrap();
    let mut out = Vec::new();
    for t in 0..tokens {
        let x = &x[t * cols..][..*cols];
        for row in weights.chunks(*cols) {
            let (mut sum, mut bound) = (0.0, 0.0);
            for (w, x) in row.chunks(32).zip(x.chunks(32)) {
                let largest = x.iter().fold(0f64, |largest, x| largest.max(f64::from(x.abs())));
                for (&w, &x) in w.iter().zip(x) {
                    let (w, x) = (f64::from(w), f64::from(x));
                    sum += w * x;
                    // Half a step of the activation's code, and some roundings of either side.
                    let step = if format.is_quantized() { largest / 127.0 * 0.5001 } else { 0.0 };
                    bound += w.abs() * step + 3e-6 * (w * x).abs();
                    // A minimum is added apart from the scaled codes, which may cancel it.
                    bound += if format.is_quantized() { 1e-5 * largest } else { 0.0 };
                }
            }
            out.push((sum, bound + 1e-6));
        }
    }
    out
}

fn shape(format: Format) -> impl Strategy<Value = (usize, usize, usize, u64)> {
    let blocks = 1..(640 / format.block_len()).clamp(3, 70);
    (1..50usize, blocks, 1..20usize, any::<u64>())
        .prop_map(move |(rows, blocks, tokens, seed)| (rows, blocks * format.block_len(), tokens, seed))
}

fn any_shape() -> impl Strategy<Value = (Format, (usize, usize, usize, u64))> {
    prop::sample::select(&Format::ALL[..]).prop_flat_map(|format| (Just(format), shape(format)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(target_arch = "aarch64") { 48 } else { 300 }))]

    #[test]
    fn levels_threads_and_batches_give_the_same_bits((format, (rows, cols, tokens, seed)) in any_shape()) {
        let matrix = random_matrix(format, rows, cols, seed);
        let x = random_floats(tokens * cols, seed ^ 1);
        let one = plain_pool();
        let packed = matrix.pack(&one, 0..cols);
        prop_assert_eq!(packed.rows(), rows);
        let plain = product(&one, &packed, &x, tokens);
        let granule = if format.is_quantized() { 64 } else { 50 };
        let plain_fixed = fixed(&one, &packed, &x, tokens, granule);
        for pool in POOLS.iter() {
            prop_assert_eq!(bits(&product(pool, &packed, &x, tokens)), bits(&plain), "{}", pool.level());
            for (t, x) in x.chunks(cols).enumerate() {
                let single = product(pool, &packed, x, 1);
                let expected = bits(&plain[t * rows..][..rows]);
                prop_assert_eq!(bits(&single), expected, "{} token {}", pool.level(), t);
            }
            prop_assert_eq!(&fixed(pool, &packed, &x, tokens, granule), &plain_fixed, "{}", pool.level());
        }
    }

    #[test]
    fn products_are_right((format, (rows, cols, tokens, seed)) in any_shape()) {
        let matrix = random_matrix(format, rows, cols, seed);
        let x = random_floats(tokens * cols, seed ^ 1);
        let pool = Pool::new(1);
        let packed = matrix.pack(&pool, 0..cols);
        let reference = reference(&matrix, &x, tokens);
        let out = product(&pool, &packed, &x, tokens);
        let sums = fixed(&pool, &packed, &x, tokens, 32);
        let mut from_fixed = vec![0.0; out.len()];
        fixed_to_f32(&sums, &mut from_fixed);
        for ((out, from_fixed), (exact, bound)) in out.iter().zip(from_fixed).zip(reference) {
            prop_assert!((f64::from(*out) - exact).abs() <= bound, "{} for {} +- {}", out, exact, bound);
            let off = (f64::from(from_fixed) - exact).abs();
            prop_assert!(off <= bound, "{} for {} +- {}", from_fixed, exact, bound);
        }
    }

    #[test]
    fn rows_and_columns_can_be_cut(
        (format, (rows, cols, tokens, seed)) in any_shape(),
        row_cut in 0.0..1.0,
        col_cut in 0.0..1.0,
    ) {
        let matrix = random_matrix(format, rows, cols, seed);
        let x = random_floats(tokens * cols, seed ^ 1);
        let pool = Pool::new(2);
        let whole = matrix.pack(&pool, 0..cols);

        // Rows: the outputs of the parts are the outputs of the whole.
        let cut = (row_cut * rows as f64) as usize;
        let out = product(&pool, &whole, &x, tokens);
        for rows_kept in [0..cut, cut..rows] {
            let part = matrix.rows(rows_kept.clone()).pack(&pool, 0..cols);
            let part = product(&pool, &part, &x, tokens);
            for (whole, part) in out.chunks(rows).zip(part.chunks(rows_kept.len().max(1))) {
                prop_assert_eq!(bits(part), bits(&whole[rows_kept.clone()]));
            }
        }

        // Columns: the fixed sums of the parts add up.
        let granule = if format.is_quantized() { 32 } else { 24 };
        let cut = (col_cut * (cols / granule) as f64) as usize * granule;
        let mut sums = fixed(&pool, &whole, &x, tokens, granule);
        for kept in [0..cut, cut..cols] {
            let part = matrix.pack(&pool, kept.clone());
            let x = columns(&x, cols, kept.start, kept.end);
            for (sum, part) in sums.iter_mut().zip(fixed(&pool, &part, &x, tokens, granule)) {
                *sum = sum.wrapping_sub(part);
            }
        }
        prop_assert!(sums.iter().all(|&left| left == 0));
    }
}

#[test]
fn the_largest_codes_do_not_overflow() {
    let pool = plain_pool();
    for format in Format::ALL.into_iter().filter(|format| format.is_quantized()) {
        let cols = 512;
        for byte in [0x7f, 0x80, 0xff, 0x00] {
            let mut matrix = random_matrix(format, 16, cols, 1);
            matrix.fill_codes(byte);
            let packed = matrix.pack(&pool, 0..cols);
            for value in [1.0, -1.0] {
                let x = vec![value; cols];
                let plain = product(&pool, &packed, &x, 1);
                for (out, (exact, bound)) in plain.iter().zip(reference(&matrix, &x, 1)) {
                    assert!(
                        (f64::from(*out) - exact).abs() <= bound,
                        "{format} {out} for {exact} +- {bound}"
                    );
                }
                for pool in POOLS.iter() {
                    assert_eq!(
                        bits(&product(pool, &packed, &x, 1)),
                        bits(&plain),
                        "{format} {}",
                        pool.level()
                    );
                }
            }
        }
    }
}

#[test]
fn a_value_that_is_not_finite_shows_in_every_output() {
    let pool = Pool::new(1);
    for format in Format::ALL {
        let matrix = random_matrix(format, 16, 256, 3).pack(&pool, 0..256);
        for value in [f32::NAN, f32::INFINITY] {
            let mut x = random_floats(256, 4);
            x[77] = value;
            for pool in POOLS.iter() {
                let out = product(pool, &matrix, &x, 1);
                assert!(out.iter().all(|out| !out.is_finite()), "{format} {} {value}", pool.level());
                let sums = fixed(pool, &matrix, &x, 1, 256);
                assert!(sums.iter().all(|&sum| sum == i64::MIN), "{format} {} {value}", pool.level());
            }
        }
    }
}

#[test]
fn tiny_and_zero_activations_give_zero() {
    let pool = Pool::new(1);
    let matrix = random_matrix(Format::Q4_1, 16, 64, 3).pack(&pool, 0..64);
    for value in [0.0, -0.0, 1e-42, f32::MIN_POSITIVE] {
        for pool in POOLS.iter() {
            let out = product(pool, &matrix, &[value; 64], 1);
            assert!(out.iter().all(|&out| out == 0.0), "{} {value}", pool.level());
        }
    }
}

#[test]
fn empty_shapes_are_fine() {
    let pool = Pool::new(2);
    let matrix = random_matrix(Format::Q8_0, 3, 64, 1);
    let none = matrix.pack(&pool, 32..32);
    assert_eq!(product(&pool, &none, &[], 2), [0.0; 6]);
    assert_eq!(product(&pool, &matrix.pack(&pool, 0..64), &[], 0), []);
    let no_rows = matrix.rows(0..0).pack(&pool, 0..64);
    assert_eq!(product(&pool, &no_rows, &[0.5; 64], 1), []);
}
