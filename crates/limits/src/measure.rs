//! One figure after the other.

use crate::{AtThreads, Host, Limits};
use pomar_kernels::{Activations, Format, PackedMatrix, Part, matmul, pool::Pool, stream};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// Told before each figure and after the last: figures that are done, and all.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// Figures per number of threads.
const FIGURES: usize = 4;

/// Bytes that no cache holds.
const COLD_BYTES: usize = 512 << 20;

/// Rows and columns of the weights in products: the shape of an attention projection of a model of 7 billion.
const SIDE: usize = 4096;

/// Tokens in products: a chunk of a prompt.
const TOKENS: usize = 256;

/// Kernels that are started for one timing.
const STARTS: u32 = 100;

/// Measures this machine with 1, 2, 4... threads and with all cores, `patience` for each figure; longer where one timing
/// takes longer.
pub fn measure(patience: Duration, progress: Progress<'_>) -> Limits {
    let host = Host::this();
    let counts = thread_counts(host.cores);
    let words = vec![0x5555_5555_u32; COLD_BYTES / 4];
    let all = FIGURES * counts.len();
    let mut done = 0;
    let mut figure = |measured: &mut dyn FnMut() -> f64| {
        progress(done, all);
        done += 1;
        measured()
    };
    let at = |threads: usize| {
        let pool = Pool::new(threads);
        AtThreads {
            threads,
            read: figure(&mut || reading(&pool, &words, patience)),
            int8: figure(&mut || products(&pool, Format::Q8_0, patience)),
            f32: figure(&mut || products(&pool, Format::BF16, patience)),
            start: figure(&mut || start(&pool, patience)),
        }
    };
    let threads = counts.into_iter().map(at).collect();
    progress(all, all);
    Limits { host, threads }
}

fn thread_counts(cores: usize) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1), |count| Some(2 * count));
    doubled.take_while(|count| *count < cores).chain([cores]).collect()
}

/// Seconds of the shortest call.
fn best(patience: Duration, mut call: impl FnMut()) -> f64 {
    call();
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    while best.is_infinite() || begin.elapsed() < patience {
        let started = Instant::now();
        call();
        best = best.min(started.elapsed().as_secs_f64());
    }
    best.max(1e-9)
}

/// Bytes/s of reading all words.
fn reading(pool: &Pool, words: &[u32], patience: Duration) -> f64 {
    let seconds = best(patience, || {
        black_box(stream::read(pool, words));
    });
    (4 * words.len()) as f64 / seconds
}

/// Operations/s of a product with weights in `format`.
fn products(pool: &Pool, format: Format, patience: Duration) -> f64 {
    let row_bytes = SIDE / format.block_len() * format.block_bytes();
    // Codes and scales of 0x3c bytes are numbers of ordinary size in both formats that are measured.
    let bytes = vec![0x3c; SIDE * row_bytes];
    let part = Part { format, rows: SIDE, cols: SIDE, bytes: &bytes, keep: 0..SIDE };
    let matrix = PackedMatrix::pack(pool, part).expect("whole blocks of numbers");
    let x: Vec<f32> = (0..TOKENS * SIDE).map(|i| (i % 255) as f32 / 128.0 - 1.0).collect();
    let mut activations = Activations::new();
    activations.load(pool, &x, TOKENS, SIDE, matrix.activation_kind());
    let mut out = vec![0.0; TOKENS * SIDE];
    let seconds = best(patience, || matmul(pool, &matrix, &activations, black_box(&mut out)));
    (2 * TOKENS * SIDE * SIDE) as f64 / seconds
}

/// Seconds to start all threads on nothing and wait for them. With one thread, the cost of the call.
fn start(pool: &Pool, patience: Duration) -> f64 {
    let tasks = pool.threads();
    let seconds = best(patience, || {
        (0..STARTS).for_each(|_| {
            pool.run(tasks, &|task| {
                black_box(task);
            })
        });
    });
    seconds / f64::from(STARTS)
}

#[cfg(test)]
mod tests {
    use super::thread_counts;

    #[test]
    fn all_cores_come_last_and_once() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(8), [1, 2, 4, 8]);
    }
}
