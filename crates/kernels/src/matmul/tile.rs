//! The kernels: one panel of 16 rows times one tile of tokens, over a range of columns.
//!
//! They are written once, over the operations of [`Isa`], and follow the order of arithmetic that
//! [`matmul`](super) defines.

use std::marker::PhantomData;
use std::ops::Range;

use super::isa::{Isa, Kernel};
use crate::activations::{QuantTile, SUMS, TILE};
use crate::format::{BLOCK, Format};
use crate::pack::{LINE, Line, PANEL, QuantLayout};

/// Bytes that software prefetch runs ahead of the codes when a single token makes memory the limit.
const PREFETCH: usize = 6 * 1024;

/// The sums of a tile: 16 rows for each token.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct TileSums(pub(super) [[f32; PANEL]; TILE]);

impl TileSums {
    pub(super) const ZERO: TileSums = TileSums([[0.0; PANEL]; TILE]);

    /// # Safety
    /// As for the operations of [`Isa`].
    #[inline(always)]
    unsafe fn set<L: Isa, const T: usize>(&mut self, values: [L::Floats; T]) {
        for (value, row) in values.into_iter().zip(&mut self.0) {
            // SAFETY: 16 floats, at a multiple of 64 bytes as the type is aligned; the rest is the caller's.
            unsafe { L::store(value, row.as_mut_ptr()) };
        }
    }
}

/// A quantised layout as a type, so that each gets its own compiled kernel.
pub(super) trait Layout {
    /// What it looks like in memory.
    const LAYOUT: QuantLayout;
}

/// Names a type for the layout of a format.
macro_rules! layouts {
    ($($name:ident: $format:ident),+ $(,)?) => {$(
        pub(super) struct $name;

        impl Layout for $name {
            const LAYOUT: QuantLayout = match QuantLayout::of(Format::$format) {
                Some(layout) => layout,
                None => panic!("not a quantised format"),
            };
        }
    )+};
}

layouts! {
    Nibbles: Q4_0,
    NibblesMin: Q4_1,
    Bytes: Q8_0,
    BytesMin: Q5_1,
    NibblesWideMin: Q4_K,
    BytesWideMin: Q5_K,
    BytesWideHalves: Q6_K,
}

/// Quantised panel times quantised tile of `T` tokens.
pub(super) struct QuantKernel<'a, S, const T: usize> {
    panel: &'a [Line],
    x: QuantTile<'a>,
    /// Blocks of the matrix.
    blocks: usize,
    /// Blocks to sum.
    range: Range<usize>,
    sums: &'a mut TileSums,
    layout: PhantomData<S>,
}

impl<'a, S: Layout, const T: usize> QuantKernel<'a, S, T> {
    /// # Panics
    /// The panel or the tile is too short for its shape.
    #[inline(always)]
    pub(super) fn new(
        panel: &'a [Line],
        x: QuantTile<'a>,
        blocks: usize,
        range: Range<usize>,
        sums: &'a mut TileSums,
    ) -> Self {
        let bytes = blocks * (S::LAYOUT.code_bytes() + S::LAYOUT.scales_bytes());
        assert!(range.end <= blocks && bytes <= panel.len() * LINE);
        assert!(T <= TILE && x.codes.len() == blocks * T * BLOCK && x.scales.len() == blocks * T);
        assert!(x.offsets.len() == blocks * T && x.negated_sums.len() == blocks * T * SUMS);
        QuantKernel { panel, x, blocks, range, sums, layout: PhantomData }
    }
}

impl<S: Layout, const T: usize> QuantKernel<'_, S, T> {
    /// Scales (or minima) `index` of a block.
    #[inline(always)]
    unsafe fn scales<L: Isa>(scales: *const u8, index: usize) -> L::Floats {
        // SAFETY: inside the block's scales, which are aligned to their own size; the rest is the caller's.
        unsafe {
            let scales = scales.add(index * S::LAYOUT.scale_bytes());
            if S::LAYOUT.wide_scales { L::load(scales.cast()) } else { L::load_f16(scales.cast()) }
        }
    }

    /// The sum to start from for each token, so that the zero point of the codes is taken out: `part` 0 for a
    /// whole block, 1 and 2 for its halves.
    #[inline(always)]
    unsafe fn start<L: Isa>(negated_sums: *const i32, part: usize) -> [L::Ints; T] {
        let zero = if S::LAYOUT.bits == 4 { S::LAYOUT.zero } else { L::ZERO8 };
        // SAFETY: `SUMS` parts of `T` numbers, by the caller.
        let mut start = unsafe { [L::splat_int(0); T] };
        if zero != 0 {
            for (t, start) in start.iter_mut().enumerate() {
                // SAFETY: as above.
                *start = unsafe { L::splat_int(*negated_sums.add(part * T + t) * zero) };
            }
        }
        start
    }
}

impl<S: Layout, const T: usize> Kernel for QuantKernel<'_, S, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Isa>(self) {
        let layout = S::LAYOUT;
        let panel = self.panel.as_ptr().cast::<u8>();
        // SAFETY: `new` checked that panel and tile hold `blocks` blocks, and `range` lies within them.
        unsafe {
            let all_scales = panel.add(self.blocks * layout.code_bytes());
            let mut sums = [L::splat(0.0); T];
            let mut minima = [L::splat(0.0); T];
            for block in self.range {
                let codes = panel.add(block * layout.code_bytes());
                let scales = all_scales.add(block * layout.scales_bytes());
                let x = self.x.codes.as_ptr().add(block * BLOCK * T);
                let x_scales = self.x.scales.as_ptr().add(block * T);
                let negated_sums = self.x.negated_sums.as_ptr().add(block * SUMS * T);
                if T == 1 {
                    for line in 0..(layout.code_bytes() + layout.scales_bytes()).div_ceil(LINE) {
                        L::prefetch(codes.wrapping_add(PREFETCH + line * LINE));
                    }
                }

                if layout.halves {
                    for half in 0..2 {
                        let start = Self::start::<L>(negated_sums, 1 + half);
                        let codes = codes.add(half * layout.code_bytes() / 2);
                        let dots = L::dots8::<T, 4>(codes, x.add(half * BLOCK / 2), start);
                        let scale = Self::scales::<L>(scales, half);
                        for t in 0..T {
                            let scale = L::mul(scale, L::splat(*x_scales.add(t)));
                            sums[t] = L::mul_add(L::to_floats(dots[t]), scale, sums[t]);
                        }
                    }
                } else {
                    let start = Self::start::<L>(negated_sums, 0);
                    let dots = if layout.bits == 4 {
                        L::dots4::<T>(codes, x, start)
                    } else {
                        L::dots8::<T, 8>(codes, x, start)
                    };
                    let scale = Self::scales::<L>(scales, 0);
                    for t in 0..T {
                        let scale = L::mul(scale, L::splat(*x_scales.add(t)));
                        sums[t] = L::mul_add(L::to_floats(dots[t]), scale, sums[t]);
                    }
                }
                if layout.minimum {
                    let x_offsets = self.x.offsets.as_ptr().add(block * T);
                    let minimum = Self::scales::<L>(scales, 1);
                    for (t, sum) in minima.iter_mut().enumerate() {
                        *sum = L::mul_add(minimum, L::splat(*x_offsets.add(t)), *sum);
                    }
                }
            }
            if layout.minimum {
                for t in 0..T {
                    sums[t] = L::add(sums[t], minima[t]);
                }
            }
            self.sums.set::<L, T>(sums);
        }
    }
}

/// How 16 float weights are read.
pub(super) trait FloatWeights {
    /// Bytes of one weight.
    const WIDTH: usize;

    /// 16 weights from `from`, an aligned address of as many.
    ///
    /// # Safety
    /// As for the loads of [`Isa`].
    unsafe fn load<L: Isa>(from: *const u8) -> L::Floats;
}

/// Weights in single precision.
pub(super) struct Single;
/// Weights in half precision.
pub(super) struct Half;
/// Weights in bfloat16.
pub(super) struct Brain;

impl FloatWeights for Single {
    const WIDTH: usize = 4;

    #[inline(always)]
    unsafe fn load<L: Isa>(from: *const u8) -> L::Floats {
        // SAFETY: the caller's.
        unsafe { L::load(from.cast()) }
    }
}

impl FloatWeights for Half {
    const WIDTH: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Isa>(from: *const u8) -> L::Floats {
        // SAFETY: the caller's.
        unsafe { L::load_f16(from.cast()) }
    }
}

impl FloatWeights for Brain {
    const WIDTH: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Isa>(from: *const u8) -> L::Floats {
        // SAFETY: the caller's.
        unsafe { L::load_bf16(from.cast()) }
    }
}

/// Float panel times float tile of `T` tokens.
pub(super) struct FloatKernel<'a, W, const T: usize> {
    panel: &'a [Line],
    x: &'a [f32],
    /// Columns to sum.
    range: Range<usize>,
    sums: &'a mut TileSums,
    weights: PhantomData<W>,
}

impl<'a, W: FloatWeights, const T: usize> FloatKernel<'a, W, T> {
    /// # Panics
    /// The panel or the tile is too short for its shape.
    #[inline(always)]
    pub(super) fn new(
        panel: &'a [Line],
        x: &'a [f32],
        cols: usize,
        range: Range<usize>,
        sums: &'a mut TileSums,
    ) -> Self {
        assert!(range.end <= cols && cols * PANEL * W::WIDTH <= panel.len() * LINE);
        assert!(T <= TILE && x.len() == cols * T);
        FloatKernel { panel, x, range, sums, weights: PhantomData }
    }
}

impl<W: FloatWeights, const T: usize> Kernel for FloatKernel<'_, W, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Isa>(self) {
        let panel = self.panel.as_ptr().cast::<u8>();
        // SAFETY: `new` checked that panel and tile hold the columns of `range`.
        unsafe {
            let mut sums = [L::splat(0.0); T];
            let mut start = self.range.start;
            while start < self.range.end {
                let end = self.range.end.min(start + BLOCK);
                let mut block = [L::splat(0.0); T];
                for col in start..end {
                    let weights = panel.add(col * PANEL * W::WIDTH);
                    if T == 1 {
                        L::prefetch(weights.wrapping_add(PREFETCH));
                    }
                    let weights = W::load::<L>(weights);
                    let x = self.x.as_ptr().add(col * T);
                    for (t, sum) in block.iter_mut().enumerate() {
                        *sum = L::mul_add(weights, L::splat(*x.add(t)), *sum);
                    }
                }
                for t in 0..T {
                    sums[t] = L::add(sums[t], block[t]);
                }
                start = end;
            }
            self.sums.set::<L, T>(sums);
        }
    }
}
