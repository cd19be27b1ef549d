//! Bits written down once: every machine must find the same, whatever its processor and system.

use pomar_kernels::attention::{
    AttentionRow, AttentionScratch, AttentionShape, KvPages, PAGE, attention, write_kv,
};
use pomar_kernels::math::{ln_f64, pow_f64};
use pomar_kernels::pool::Pool;
use pomar_kernels::random::uniform;
use pomar_kernels::rope::{RopeStyle, RopeTable, rope};
use pomar_kernels::{Level, elementwise, norm, softmax};

fn numbers(seed: u64, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| uniform(seed, i) * 4.0 - 2.0).collect()
}

/// FNV-1a over the bits.
fn hash(x: &[f32]) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    x.iter().flat_map(|x| x.to_bits().to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, step)
}

/// Norm, rope, attention, gate and softmax one after the other, like a small layer.
fn layer(level: Level) -> Vec<f32> {
    let pool = Pool::with_level(2, level);
    let (tokens, heads, dim) = (45, 6, 24);
    let mut x = numbers(1, tokens * heads * dim);
    norm::rms_norm_in_place(&pool, &mut x, &numbers(2, heads * dim), 1e-5);

    let inv_freq: Vec<f64> = (0..10).map(|i| pow_f64(5e5, -f64::from(i) / 10.0)).collect();
    let positions: Vec<u32> = (0..tokens as u32).collect();
    let mut table = RopeTable::new();
    table.fill(&positions, &inv_freq, ln_f64(3.0) as f32);
    rope(&pool, &mut x, heads, dim, &table, RopeStyle::Half);
    let mut k = numbers(3, tokens * 2 * dim);
    rope(&pool, &mut k, 2, dim, &table, RopeStyle::Interleaved);

    let kv_of_head = [0, 0, 0, 0, 1, 1];
    let shape =
        AttentionShape { head_dim: dim, kv_heads: 2, kv_of_head: &kv_of_head, scale: 0.3, window: Some(40) };
    let rows: Vec<_> = (0..tokens).map(|position| AttentionRow { table: &[1, 0], position }).collect();
    let mut keys = vec![f32::NAN; 2 * 2 * dim * PAGE];
    let mut values = keys.clone();
    write_kv(&shape, &mut keys, &mut values, &k, &numbers(4, k.len()), &rows);
    let mut out = vec![0.0; x.len()];
    let pages = KvPages { keys: &keys, values: &values };
    attention(&pool, &mut AttentionScratch::new(), &shape, pages, &x, &rows, &mut out);

    let mut gated = vec![0.0; x.len()];
    elementwise::silu_mul(&pool, &x, &out, &mut gated);
    softmax::softmax_in_place(level, &mut gated, 0.8);
    out.extend(gated);
    out.push(softmax::log_sum_exp(level, &x) as f32);
    out
}

#[test]
fn a_layer_has_these_bits() {
    for level in Level::supported() {
        let hash = hash(&layer(level));
        assert_eq!(hash, 0x06a3_f670_299b_064c, "{level}: {hash:#018x}");
    }
}
