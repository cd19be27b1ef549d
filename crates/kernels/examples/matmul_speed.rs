//! Measures matrix products: memory throughput with one token, and arithmetic throughput with many.
//!
//! `cargo run --release -p pomar-kernels --example matmul_speed [format or number of threads]...` prints a
//! table:
//!
//! - `warm` and `cold`, GB/s of packed weights with one token: the same matrix again and again, and matrices
//!   that take turns and don't fit the caches together;
//! - `8` and `512`, GOP/s with so many tokens, two operations for each multiplication.
//!
//! Each figure is the best of many short timings, so that it means something on a machine that is not quite
//! idle.

use std::time::{Duration, Instant};

use pomar_kernels::pool::Pool;
use pomar_kernels::{Activations, Format, PackedMatrix, Part, level, matmul};

/// Time spent on each figure.
const PATIENCE: Duration = Duration::from_millis(300);

/// The length of one timing, about; a longer call is timed alone.
const WINDOW: Duration = Duration::from_millis(1);

/// Bytes of weights that no cache holds.
const COLD_BYTES: usize = 600 << 20;

const SHAPES: [(usize, usize); 4] = [(4096, 4096), (1536, 576), (576, 1536), (576, 576)];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut threads: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if threads.is_empty() {
        threads = vec![1, 2];
    }
    let named: Vec<_> =
        Format::ALL.into_iter().filter(|format| words.iter().any(|word| word == format.name())).collect();
    let formats = if named.is_empty() { &Format::ALL[..] } else { &named };

    println!("level {}", level());
    println!("format  threads  rows x cols     warm     cold        8      512");
    for threads in threads {
        let pool = Pool::new(threads);
        for &format in formats {
            for (rows, cols) in SHAPES.into_iter().filter(|(_, cols)| cols % format.block_len() == 0) {
                measure(&pool, format, rows, cols);
            }
        }
    }
}

fn measure(pool: &Pool, format: Format, rows: usize, cols: usize) {
    let matrix = packed(pool, format, rows, cols);
    let bytes = matrix.bytes();
    let speed = |tokens| (tokens * rows * cols * 2) as f64 / time(pool, &[&matrix], tokens) / 1e9;
    let others: Vec<_> = (1..COLD_BYTES.div_ceil(bytes)).map(|_| packed(pool, format, rows, cols)).collect();
    let all: Vec<_> = others.iter().chain([&matrix]).collect();
    println!(
        "{:7} {:7}  {:>11} {:8.1} {:8.1} {:8.0} {:8.0}",
        format.name(),
        pool.threads(),
        format!("{rows}x{cols}"),
        bytes as f64 / time(pool, &[&matrix], 1) / 1e9,
        bytes as f64 / time(pool, &all, 1) / 1e9,
        speed(8),
        speed(512),
    );
}

/// Seconds for a product of one of the matrices, which take turns.
fn time(pool: &Pool, matrices: &[&PackedMatrix], tokens: usize) -> f64 {
    let (rows, cols) = (matrices[0].rows(), matrices[0].cols());
    let x: Vec<f32> = (0..tokens * cols).map(|i| (i % 255) as f32 / 128.0 - 1.0).collect();
    let mut activations = Activations::new();
    activations.load(pool, &x, tokens, cols, matrices[0].activation_kind());
    let mut out = vec![0.0; tokens * rows];

    let mut matrices = matrices.iter().cycle();
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let mut calls = 0;
        let window = Instant::now();
        while calls == 0 || window.elapsed() < WINDOW {
            if let Some(matrix) = matrices.next() {
                matmul(pool, matrix, &activations, &mut out);
            }
            calls += 1;
        }
        best = best.min(window.elapsed().as_secs_f64() / f64::from(calls));
    }
    best
}

fn packed(pool: &Pool, format: Format, rows: usize, cols: usize) -> PackedMatrix {
    let row_bytes = format.row_bytes(cols).unwrap_or_else(|error| panic!("{error}"));
    // Bytes below 64 are no infinity and no NaN in any format.
    let mut bytes: Vec<u8> = (0..rows * row_bytes).map(|i| ((i * 2_654_435_761) >> 11 & 63) as u8).collect();
    if !format.is_quantized() {
        // Near 0.03: products of random bits would be subnormal now and then, which is slow and never
        // happens.
        bytes.chunks_mut(format.block_bytes()).for_each(|weight| weight[weight.len() - 1] = 0x3d);
    }
    let part = Part { format, rows, cols, bytes: &bytes, keep: 0..cols };
    PackedMatrix::pack(pool, part).unwrap_or_else(|error| panic!("{error}"))
}
