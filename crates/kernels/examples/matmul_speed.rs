//! Measures matrix products: memory throughput of one token, and arithmetic throughput of many.
//!
//! `cargo run --release -p pomar-kernels --example matmul_speed [threads...]` prints a table. One token reads every
//! weight once, so its figure is GB/s of packed weights; matrices are taken from a set that is larger than the caches
//! (`cold`) or used again and again (`warm`). Many tokens are limited by arithmetic: the figure is GOP/s, two
//! operations for each multiplication.

use std::time::Instant;

use pomar_kernels::pool::Pool;
use pomar_kernels::{Activations, Format, PackedMatrix, Part, level, matmul};

/// Seconds spent on each measurement, about.
const SECONDS: f64 = 0.3;

/// Bytes of weights that no cache holds.
const COLD_BYTES: usize = 600 << 20;

fn main() {
    let mut threads: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    if threads.is_empty() {
        threads = vec![1, 2];
    }
    println!("level {}", level());
    println!(
        "{:8} {:7} {:>12} {:>8} {:>12} {:>12}",
        "format", "threads", "rows x cols", "tokens", "us/call", "speed"
    );
    for threads in threads {
        let pool = Pool::new(threads);
        for format in [
            Format::Q4_1,
            Format::Q4_0,
            Format::Q8_0,
            Format::Q4_K,
            Format::Q6_K,
            Format::BF16,
            Format::F32,
        ] {
            for (rows, cols) in [(4096, 4096), (1536, 576), (576, 1536), (576, 576)] {
                if cols % format.block_len() == 0 {
                    measure(&pool, format, rows, cols);
                }
            }
        }
    }
}

fn measure(pool: &Pool, format: Format, rows: usize, cols: usize) {
    let matrix = packed(pool, format, rows, cols);
    let x: Vec<f32> = (0..512 * cols).map(|i| (i % 255) as f32 / 128.0 - 1.0).collect();
    let report = |tokens: usize, seconds: f64, speed: String| {
        println!(
            "{:8} {:7} {:>12} {:8} {:12.2} {:>12}",
            format.name(),
            pool.threads(),
            format!("{rows}x{cols}"),
            tokens,
            seconds * 1e6,
            speed
        );
    };

    let mut activations = Activations::new();
    for tokens in [1, 8, 512] {
        activations.load(pool, &x[..tokens * cols], tokens, cols, matrix.activation_kind());
        let mut out = vec![0.0; tokens * rows];
        let seconds = time(|| matmul(pool, &matrix, &activations, &mut out));
        let speed = if tokens == 1 {
            format!("{:.1} GB/s warm", matrix.bytes() as f64 / seconds / 1e9)
        } else {
            format!("{:.0} GOP/s", 2.0 * (tokens * rows * cols) as f64 / seconds / 1e9)
        };
        report(tokens, seconds, speed);
    }
    if rows == 4096 {
        let matrices: Vec<_> = (0..COLD_BYTES.div_ceil(matrix.bytes()))
            .map(|_| packed(pool, format, rows, cols))
            .collect();
        activations.load(pool, &x[..cols], 1, cols, matrix.activation_kind());
        let mut out = vec![0.0; rows];
        let seconds = time(|| {
            for matrix in &matrices {
                matmul(pool, matrix, &activations, &mut out);
            }
        }) / matrices.len() as f64;
        report(
            1,
            seconds,
            format!("{:.1} GB/s cold", matrix.bytes() as f64 / seconds / 1e9),
        );
    }
}

/// The best of several timings of `f`, in seconds a call.
fn time(mut f: impl FnMut()) -> f64 {
    let begin = Instant::now();
    f();
    let once = begin.elapsed().as_secs_f64();
    let calls = (SECONDS / 5.0 / once).clamp(1.0, 1e6) as usize;
    (0..5)
        .map(|_| {
            let begin = Instant::now();
            (0..calls).for_each(|_| f());
            begin.elapsed().as_secs_f64() / calls as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn packed(pool: &Pool, format: Format, rows: usize, cols: usize) -> PackedMatrix {
    let row_bytes = format.row_bytes(cols).unwrap_or_else(|error| panic!("{error}"));
    // Bytes below 64 are no infinity and no NaN in any format.
    let mut bytes: Vec<u8> = (0..rows * row_bytes)
        .map(|i| (i * 2_654_435_761 >> 11 & 63) as u8)
        .collect();
    if !format.is_quantized() {
        // Near 0.03: products of random bits would be subnormal now and then, which is slow and never happens.
        bytes
            .chunks_mut(format.block_bytes())
            .for_each(|weight| weight[weight.len() - 1] = 0x3d);
    }
    let part = Part {
        format,
        rows,
        cols,
        bytes: &bytes,
        keep: 0..cols,
    };
    PackedMatrix::pack(pool, part).unwrap_or_else(|error| panic!("{error}"))
}
