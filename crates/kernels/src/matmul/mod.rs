//! Products of a packed weight matrix and a batch of activations.
//!
//! # The arithmetic, exactly
//!
//! An output is the sum over the columns of one row for one token. Its bits depend on the row's weights, the
//! token's activations and (in the fixed form) the granule, and on nothing else. Columns count from the first
//! one kept.
//!
//! **Quantised weights.** Columns go in blocks of 32. With `w` the integer codes of a weight block, zero
//! point taken off, `d` its scale and `m` its minimum; `c` the codes of an activation block and `e` its
//! scale:
//!
//! ```text
//! dot  = sum of w[i] * c[i]                      exact, in integers
//! sum  = fma(f32(dot), d * e, sum)               from 0, block after block
//! mins = fma(m, e * f32(sum of c[i]), mins)      from 0, block after block, in formats with minima
//! out  = sum + mins
//! ```
//!
//! Q6_K has a scale for each half of a block, and takes the step of `sum` for the first, then for the second
//! half.
//!
//! **Float weights.** Columns go in blocks of 32, the last one may be shorter. `part = fma(w[i], x[i], part)`
//! from 0 within a block, then `sum = sum + part`, from 0, block after block. Weights of 16 bits are widened
//! first, exactly.
//!
//! **Fixed form** ([`matmul_fixed`]). Columns go in granules, the last one may be shorter. Each granule is
//! summed as above, turned into fixed point by [`to_fixed`](crate::fixed::to_fixed), and added as integers
//! with wrap-around. A matrix that is cut between granules therefore has parts whose outputs add up to the
//! output of the whole, bit by bit.
//!
//! # How it is computed
//!
//! [`pack`](crate::pack) lays weights out so that an output row is a lane,
//! [`activations`](crate::activations) lays tokens out in tiles. `tile` holds the kernels for one panel of
//! rows and one tile of tokens, written over the operations of `isa`, which `plain`, `avx2`, `avx512` and
//! `neon` implement. This file cuts a product into such pieces.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod isa;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
mod tile;

use std::ops::Range;

use crate::activations::{Activations, TILE, tiles};
use crate::disjoint::Disjoint;
use crate::fixed::add_fixed;
use crate::format::{BLOCK, Format};
use crate::level::Level;
use crate::pack::{PANEL, PackedMatrix};
use crate::pool::Pool;
use isa::Isa;
use plain::Plain;
use tile::{
    Brain, Bytes, BytesMin, BytesWideHalves, BytesWideMin, FloatKernel, FloatWeights, Half, Layout, Nibbles,
    NibblesMin, NibblesWideMin, QuantKernel, Single, TileSums,
};

/// Multiplies: `out[t, r]` is the product of row `r` of `weights` and token `t` of `x`.
///
/// `x` is `[tokens, cols]`, loaded as [`PackedMatrix::activation_kind`] says; `out` is `[tokens, rows]`.
///
/// # Panics
/// The shapes or the kind of activations don't fit, or the processor doesn't support the pool's level.
pub fn matmul(pool: &Pool, weights: &PackedMatrix, x: &Activations, out: &mut [f32]) {
    check(weights, x, out.len());
    let out = Output::Floats(Disjoint::new(out));
    Product { weights, x, out }.run(pool);
}

/// As [`matmul`], with the columns summed in granules of `granule` that add up as integers: the form for a
/// matrix whose columns are spread over ranks. `out` is overwritten with sums in steps of 2^-32: see
/// [`fixed`](crate::fixed).
///
/// # Panics
/// The shapes or the kind of activations don't fit, `granule` is 0, or it is no multiple of 32 for quantised
/// weights.
pub fn matmul_fixed(pool: &Pool, weights: &PackedMatrix, x: &Activations, granule: usize, out: &mut [i64]) {
    check(weights, x, out.len());
    let unit = if weights.format().is_quantized() { BLOCK } else { 1 };
    assert!(
        granule > 0 && granule.is_multiple_of(unit),
        "a granule of {granule} columns is not made of {unit}s"
    );
    let out = Output::Fixed(Disjoint::new(out), granule);
    Product { weights, x, out }.run(pool);
}

fn check(weights: &PackedMatrix, x: &Activations, outputs: usize) {
    assert_eq!(weights.cols(), x.cols(), "columns of the weights, and of the activations");
    assert_eq!(weights.activation_kind(), x.kind(), "activations loaded for the weights' format");
    assert_eq!(x.tokens() * weights.rows(), outputs, "an output for each token and row");
}

/// Where sums go: `[tokens, rows]`.
enum Output<'a> {
    Floats(Disjoint<'a, f32>),
    /// With the columns of a granule.
    Fixed(Disjoint<'a, i64>, usize),
}

/// Bytes of activations that stay in a core's second-level cache while panels of weights pass by.
const TOKEN_BLOCK_BYTES: usize = 512 * 1024;

/// Bytes of weights that pass by a tile of tokens, which stays in the first-level cache, and return from the
/// second-level cache for the next tile.
const PANEL_GROUP_BYTES: usize = 256 * 1024;

/// Bytes of weights below which a task is not worth splitting further for an even load.
const TASK_BYTES: usize = 128 * 1024;

/// One call of [`matmul`] or [`matmul_fixed`].
struct Product<'a> {
    weights: &'a PackedMatrix,
    x: &'a Activations,
    out: Output<'a>,
}

impl Product<'_> {
    fn run(&self, pool: &Pool) {
        let level = pool.level();
        assert!(level.is_supported(), "{level} is not supported by this processor");
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => self.run_with::<avx512::Avx512>(pool),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => self.run_with::<avx2::Avx2>(pool),
            #[cfg(target_arch = "aarch64")]
            Level::Neon if std::arch::is_aarch64_feature_detected!("dotprod") => {
                self.run_with::<neon::Neon<true>>(pool)
            }
            #[cfg(target_arch = "aarch64")]
            Level::Neon => self.run_with::<neon::Neon<false>>(pool),
            _ => self.run_with::<Plain>(pool),
        }
    }

    /// Cuts the product into blocks of tokens times ranges of panels. `L` is supported.
    fn run_with<L: Isa>(&self, pool: &Pool) {
        let (tokens, panels) = (self.x.tokens(), self.weights.panels());
        if tokens == 0 || panels == 0 {
            return;
        }
        let token_bytes =
            self.weights.cols().max(1) * if self.weights.format().is_quantized() { 1 } else { 4 };
        let token_block =
            (TOKEN_BLOCK_BYTES / token_bytes).clamp(TILE, tokens.next_multiple_of(TILE)) / TILE * TILE;
        let token_blocks = tokens.div_ceil(token_block);

        let threads = pool.threads();
        let worthwhile = self.weights.bytes() * tokens.min(token_block) / TASK_BYTES;
        let ranges = if threads == 1 { 1 } else { worthwhile.clamp(threads, threads * 4).min(panels) };
        let task = |index: usize| {
            let (block, range) = (index / ranges, index % ranges);
            let first = block * token_block;
            let tokens = first..tokens.min(first + token_block);
            self.run_block::<L>(tokens, range * panels / ranges..(range + 1) * panels / ranges);
        };
        match ranges * token_blocks {
            1 => task(0),
            tasks => pool.run(tasks, &task),
        }
    }

    /// Computes the outputs of some whole tiles of tokens and some panels.
    fn run_block<L: Isa>(&self, tokens: Range<usize>, panels: Range<usize>) {
        let panel_bytes = self.weights.bytes() / self.weights.panels();
        let group = (PANEL_GROUP_BYTES / panel_bytes.max(1)).max(1);
        for first in panels.clone().step_by(group) {
            for tile in tiles(tokens.clone()) {
                for panel in first..panels.end.min(first + group) {
                    match &self.out {
                        Output::Floats(out) => self.put_floats::<L>(panel, tile.clone(), out),
                        Output::Fixed(out, granule) => {
                            self.put_fixed::<L>(panel, tile.clone(), out, *granule)
                        }
                    }
                }
            }
        }
    }

    fn put_floats<L: Isa>(&self, panel: usize, tile: Range<usize>, out: &Disjoint<'_, f32>) {
        let mut sums = TileSums::ZERO;
        self.sum::<L>(panel, &tile, 0..self.weights.cols(), &mut sums);
        for (token, sums) in tile.zip(&sums.0) {
            // SAFETY: panel and tile belong to one task only, and so do their outputs.
            let out = unsafe { out.part(self.outputs(panel, token)) };
            out.copy_from_slice(&sums[..out.len()]);
        }
    }

    fn put_fixed<L: Isa>(&self, panel: usize, tile: Range<usize>, out: &Disjoint<'_, i64>, granule: usize) {
        let cols = self.weights.cols();
        for token in tile.clone() {
            // SAFETY: as in `put_floats`.
            unsafe { out.part(self.outputs(panel, token)) }.fill(0);
        }
        for start in (0..cols).step_by(granule) {
            let mut sums = TileSums::ZERO;
            self.sum::<L>(panel, &tile, start..cols.min(start.saturating_add(granule)), &mut sums);
            for (token, sums) in tile.clone().zip(&sums.0) {
                // SAFETY: as in `put_floats`.
                let out = unsafe { out.part(self.outputs(panel, token)) };
                add_fixed(L::LEVEL, sums, out);
            }
        }
    }

    /// Where the rows of a panel go for one token.
    fn outputs(&self, panel: usize, token: usize) -> Range<usize> {
        let rows = self.weights.rows();
        let (first, last) = (panel * PANEL, rows.min(panel * PANEL + PANEL));
        token * rows + first..token * rows + last
    }

    /// Sums columns `cols` of one panel for one tile.
    fn sum<L: Isa>(&self, panel: usize, tile: &Range<usize>, cols: Range<usize>, sums: &mut TileSums) {
        let piece = Piece { product: self, panel, tile, cols, sums };
        match self.weights.format() {
            Format::F32 => piece.floats::<L, Single>(),
            Format::F16 => piece.floats::<L, Half>(),
            Format::BF16 => piece.floats::<L, Brain>(),
            Format::Q4_0 => piece.quant::<L, Nibbles>(),
            Format::Q4_1 => piece.quant::<L, NibblesMin>(),
            Format::Q5_0 | Format::Q8_0 => piece.quant::<L, Bytes>(),
            Format::Q5_1 => piece.quant::<L, BytesMin>(),
            Format::Q4_K => piece.quant::<L, NibblesWideMin>(),
            Format::Q5_K => piece.quant::<L, BytesWideMin>(),
            Format::Q6_K => piece.quant::<L, BytesWideHalves>(),
        }
    }
}

/// One panel times one tile over some columns.
struct Piece<'a> {
    product: &'a Product<'a>,
    panel: usize,
    tile: &'a Range<usize>,
    cols: Range<usize>,
    sums: &'a mut TileSums,
}

/// Calls a method with the number of tokens as a constant.
macro_rules! by_width {
    ($width:expr, $self:ident.$method:ident::<$level:ty, $kind:ty>()) => {
        match $width {
            1 => $self.$method::<$level, $kind, 1>(),
            2 => $self.$method::<$level, $kind, 2>(),
            4 => $self.$method::<$level, $kind, 4>(),
            _ => $self.$method::<$level, $kind, TILE>(),
        }
    };
}

impl Piece<'_> {
    fn quant<L: Isa, S: Layout>(self) {
        by_width!(self.tile.len(), self.quant_width::<L, S>())
    }

    fn quant_width<L: Isa, S: Layout, const T: usize>(self) {
        let Product { weights, x, .. } = self.product;
        let range = self.cols.start / BLOCK..self.cols.end / BLOCK;
        let (panel, x) = (weights.panel(self.panel), x.quant_tile(self.tile));
        // SAFETY: `Product::run` checked that the processor has the level.
        unsafe { L::with(QuantKernel::<S, T>::new(panel, x, weights.cols() / BLOCK, range, self.sums)) }
    }

    fn floats<L: Isa, W: FloatWeights>(self) {
        by_width!(self.tile.len(), self.floats_width::<L, W>())
    }

    fn floats_width<L: Isa, W: FloatWeights, const T: usize>(self) {
        let Product { weights, x, .. } = self.product;
        let (panel, x) = (weights.panel(self.panel), x.float_tile(self.tile));
        // SAFETY: as above.
        unsafe { L::with(FloatKernel::<W, T>::new(panel, x, weights.cols(), self.cols, self.sums)) }
    }
}
