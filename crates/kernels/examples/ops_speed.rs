//! How fast the operations are. Prints; asserts nothing, since machines differ.
//!
//!     cargo run --release -p pomar-kernels --example ops_speed

use std::hint::black_box;
use std::time::Instant;

use pomar_kernels::attention::{AttentionRow, AttentionScratch, AttentionShape, KvPages, PAGE, attention};
use pomar_kernels::pool::Pool;
use pomar_kernels::{Level, elementwise, norm, softmax};

/// Median seconds of `runs` calls.
fn median(runs: usize, mut f: impl FnMut()) -> f64 {
    f();
    let time = |_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    let mut times: Vec<f64> = (0..runs).map(time).collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

fn main() {
    pool_dispatch();
    rows();
    attention_speed();
}

fn pool_dispatch() {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let seconds = median(101, || (0..1000).for_each(|_| pool.run(threads, &|_| {}))) / 1000.0;
        println!("pool, {threads} threads, one empty task each: {:.0} ns", seconds * 1e9);
    }
}

fn rows() {
    for level in Level::supported() {
        let pool = Pool::with_level(1, level);
        for dim in [576, 4096] {
            let (x, weight, mut out) = (vec![0.5; dim], vec![1.0; dim], vec![0.0; dim]);
            let seconds = median(101, || {
                (0..100).for_each(|_| norm::rms_norm(&pool, black_box(&x), &weight, 1e-5, &mut out));
            });
            println!("{level}: rms_norm of {dim}: {:.0} ns", seconds * 1e7);
        }
        let (x, y, mut out) = (vec![0.5; 1536], vec![1.0; 1536], vec![0.0; 1536]);
        let seconds = median(101, || {
            (0..100).for_each(|_| elementwise::silu_mul(&pool, black_box(&x), &y, &mut out));
        });
        println!("{level}: silu_mul of 1536: {:.0} ns", seconds * 1e7);
        let logits: Vec<f32> = (0..49_152).map(|i| (i % 97) as f32 * 0.1).collect();
        let mut work = logits.clone();
        let seconds = median(51, || {
            work.copy_from_slice(&logits);
            softmax::softmax_in_place(level, &mut work, 1.0);
        });
        println!("{level}: softmax of 49152: {:.1} us", seconds * 1e6);
        let seconds = median(51, || {
            black_box(softmax::argmax(level, black_box(&logits)));
        });
        println!("{level}: argmax of 49152: {:.1} us", seconds * 1e6);
        let seconds = median(51, || {
            black_box(softmax::log_sum_exp(level, black_box(&logits)));
        });
        println!("{level}: log_sum_exp of 49152: {:.1} us", seconds * 1e6);
    }
}

/// Median seconds of attention for `tokens` tokens that end a context of `context`.
fn attend(pool: &Pool, heads: usize, kv_heads: usize, head_dim: usize, context: usize, tokens: usize) -> f64 {
    let kv_of_head: Vec<usize> = (0..heads).map(|head| head * kv_heads / heads).collect();
    let shape = AttentionShape { head_dim, kv_heads, kv_of_head: &kv_of_head, scale: 0.125, window: None };
    let table: Vec<u32> = (0..context.div_ceil(PAGE) as u32).rev().collect();
    let cache: Vec<f32> = (0..table.len() * shape.page_len()).map(|i| (i % 89) as f32 * 0.01).collect();
    let values = cache.clone();
    let rows: Vec<_> =
        (context - tokens..context).map(|position| AttentionRow { table: &table, position }).collect();
    let q = vec![0.3; tokens * heads * head_dim];
    let mut out = vec![0.0; q.len()];
    let mut scratch = AttentionScratch::new();
    median(if tokens == 1 { 51 } else { 5 }, || {
        let pages = KvPages { keys: &cache, values: &values };
        attention(pool, &mut scratch, &shape, pages, &q, &rows, &mut out);
    })
}

fn attention_speed() {
    let levels = Level::supported().filter(|&level| level == Level::Neon || level != Level::Plain);
    for level in levels {
        for threads in [1, 2] {
            let pool = Pool::with_level(threads, level);
            for (heads, kv_heads, head_dim) in [(9, 3, 64), (32, 8, 128), (8, 8, 64), (16, 2, 128)] {
                let context = 4096;
                let seconds = attend(&pool, heads, kv_heads, head_dim, context, 1);
                let bytes = (2 * 4 * context * kv_heads * head_dim) as f64;
                let tokens = 512;
                let prefill = attend(&pool, heads, kv_heads, head_dim, 1024, tokens);
                let pairs = (tokens * (1024 - tokens) + tokens * (tokens + 1) / 2) as f64;
                let flops = pairs * (heads * head_dim * 4) as f64;
                println!(
                    "{level}, {threads} threads, {heads} heads on {kv_heads} of {head_dim}: \
                     decode at 4096 {:.0} us = {:.1} GB/s; prefill 512..1024 {:.1} ms = {:.1} GFLOP/s",
                    seconds * 1e6,
                    bytes / seconds * 1e-9,
                    prefill * 1e3,
                    flops / prefill * 1e-9,
                );
            }
        }
    }
}
