//! Rotary position embedding (Su et al., 2021).
//!
//! Each pair of a head's first `rotary dim` elements is a point in the plane, turned by `position *
//! inv_freq[pair]`.

use crate::math::sin_cos_f64;
use crate::{by_level, level, pool::Pool};

/// Elements per task, so that a task lasts some microseconds.
const GRAIN: usize = 16 * 1024;

/// Which elements of a head form pair `i` of `pairs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `i` and `i + pairs`: GPT-NeoX, and every checkpoint in Hugging Face layout.
    Half,
    /// `2i` and `2i + 1`: the paper's, GPT-J's, and Llama's in GGUF files.
    Interleaved,
}

/// Cosines and sines of one step: one row per token, one column per pair.
#[derive(Clone, Debug, Default)]
pub struct RopeTable {
    pairs: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// An empty table; [`fill`](Self::fill) gives it rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of tokens the table was filled for.
    pub fn tokens(&self) -> usize {
        self.cos.len().checked_div(self.pairs).unwrap_or(0)
    }

    /// Half the rotary dimension.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Computes the rows of tokens at `positions`, reusing the memory of earlier steps.
    ///
    /// `inv_freq` (radians per position) has one entry per pair. Angles and their functions are f64, rounded
    /// once after the multiplication by `attention_factor` (1, except for YaRN and its kind).
    pub fn fill(&mut self, positions: &[u32], inv_freq: &[f64], attention_factor: f32) {
        self.pairs = inv_freq.len();
        let len = positions.len() * self.pairs;
        self.cos.resize(len, 0.0);
        self.sin.resize(len, 0.0);
        if len == 0 {
            return;
        }
        let rows = self.cos.chunks_exact_mut(self.pairs).zip(self.sin.chunks_exact_mut(self.pairs));
        for (&position, (cos, sin)) in positions.iter().zip(rows) {
            fill_row(level(), f64::from(position), inv_freq, f64::from(attention_factor), cos, sin);
        }
    }

    fn row(&self, token: usize) -> (&[f32], &[f32]) {
        let start = token * self.pairs;
        (&self.cos[start..][..self.pairs], &self.sin[start..][..self.pairs])
    }
}

/// Turns every head of `x` (`[tokens, heads, head_dim]`) in place, token `t` by row `t` of `table`.
///
/// Elements from `2 * table.pairs()` on pass through.
///
/// # Panics
///
/// When the rotary dimension is larger than `head_dim`, or `x` is not `table.tokens()` rows.
pub fn rope(pool: &Pool, x: &mut [f32], heads: usize, head_dim: usize, table: &RopeTable, style: RopeStyle) {
    let row = heads * head_dim;
    assert!(2 * table.pairs <= head_dim, "rope: {} pairs don't fit a head of {head_dim}", table.pairs);
    assert_eq!(x.len(), table.tokens() * row, "rope: elements of {} tokens of {row}", table.tokens());
    if x.is_empty() {
        return;
    }
    let tokens = GRAIN.div_ceil(row);
    pool.run_chunks(x, tokens * row, &|index, x| {
        for (i, x) in x.chunks_exact_mut(row).enumerate() {
            let (cos, sin) = table.row(index * tokens + i);
            match style {
                RopeStyle::Half => turn_halves(pool.level(), x, head_dim, cos, sin),
                RopeStyle::Interleaved => turn_neighbours(pool.level(), x, head_dim, cos, sin),
            }
        }
    });
}

by_level! {
    fn fill_row(position: f64, inv_freq: &[f64], factor: f64, cos: &mut [f32], sin: &mut [f32]) {
        for ((freq, cos), sin) in inv_freq.iter().zip(cos).zip(sin) {
            let (s, c) = sin_cos_f64(position * freq);
            *cos = (c * factor) as f32;
            *sin = (s * factor) as f32;
        }
    }

    fn turn_halves(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
        for head in x.chunks_exact_mut(head_dim) {
            let (first, second) = head.split_at_mut(cos.len());
            for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = turn(*a, *b, cos, sin);
            }
        }
    }

    fn turn_neighbours(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
        for head in x.chunks_exact_mut(head_dim) {
            let (pairs, _) = head.as_chunks_mut::<2>();
            for (([a, b], &cos), &sin) in pairs.iter_mut().zip(cos).zip(sin) {
                (*a, *b) = turn(*a, *b, cos, sin);
            }
        }
    }
}

#[inline(always)]
fn turn(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a.mul_add(cos, -(b * sin)), b.mul_add(cos, a * sin))
}
