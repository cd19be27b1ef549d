//! The activations of a matrix product, prepared once and shared by all matrices that they are multiplied
//! with.
//!
//! Quantised weights take activations of 8 bits: every 32 along the row share a scale `amax / 127`, whatever
//! the format of the weights, so that a row may be cut at any multiple of 32. Float weights take them as they
//! are.
//!
//! Tokens are kept in tiles of 8, with tiles of 4, 2 and 1 for the rest, because the kernels compute a tile
//! at a time and are compiled for these widths. In a tile everything is in the order in which a kernel walks
//! along the columns: the codes of block 0 of each token, then those of block 1, and so on; floats lie column
//! by column, each with its value for every token of the tile.

use std::ops::Range;

use crate::by_level;
use crate::disjoint::Disjoint;
use crate::format::BLOCK;
use crate::pool::Pool;

/// Tokens that a kernel computes at a time.
pub(crate) const TILE: usize = 8;

/// Numbers that a task prepares, about: less is not worth waking a thread for.
const TASK_NUMBERS: usize = 8192;

/// The form of activations that a matrix wants: see [`PackedMatrix::activation_kind`].
///
/// [`PackedMatrix::activation_kind`]: crate::pack::PackedMatrix::activation_kind
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivationKind {
    /// Signed codes of 8 bits with a scale per 32, for quantised weights.
    Int8,
    /// Plain f32, for float weights.
    #[default]
    F32,
}

/// A batch of activations `[tokens, cols]`, loaded as often as one likes without a new allocation.
#[derive(Debug, Default)]
pub struct Activations {
    kind: ActivationKind,
    tokens: usize,
    cols: usize,
    /// Per tile and block: 32 codes of each token.
    codes: Vec<i8>,
    /// Per tile and block: the scale of each token.
    scales: Vec<f32>,
    /// Per tile and block: scale times sum of codes, of each token. This is what a weight's minimum is
    /// multiplied by.
    offsets: Vec<f32>,
    /// Per tile and block: minus the sum of codes of each token, then the same for the first 16 and for the
    /// last 16 codes. A multiple of it takes the zero point of the weights out of a product.
    negated_sums: Vec<i32>,
    /// Per tile and column: the value of each token.
    floats: Vec<f32>,
}

/// Sums kept for each block: of the whole and of either half.
pub(crate) const SUMS: usize = 3;

/// One tile of quantised activations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantTile<'a> {
    pub(crate) codes: &'a [i8],
    pub(crate) scales: &'a [f32],
    pub(crate) offsets: &'a [f32],
    pub(crate) negated_sums: &'a [i32],
}

impl Activations {
    /// Empty buffers.
    pub fn new() -> Self {
        Activations::default()
    }

    /// Prepares `x`, `[tokens, cols]` row-major, for matrices that want `kind`.
    ///
    /// A block of 32 with a value that is not finite makes every product that it enters NaN.
    ///
    /// # Panics
    /// `x` is not `tokens * cols` long, or `cols` is no multiple of 32 when the kind is
    /// [`ActivationKind::Int8`].
    pub fn load(&mut self, pool: &Pool, x: &[f32], tokens: usize, cols: usize, kind: ActivationKind) {
        assert_eq!(Some(x.len()), tokens.checked_mul(cols), "{tokens} tokens of {cols} activations");
        (self.kind, self.tokens, self.cols) = (kind, tokens, cols);
        match kind {
            ActivationKind::Int8 => self.load_int8(pool, x),
            ActivationKind::F32 => self.load_f32(pool, x),
        }
    }

    fn load_int8(&mut self, pool: &Pool, x: &[f32]) {
        let (tokens, cols) = (self.tokens, self.cols);
        assert!(cols.is_multiple_of(BLOCK), "{cols} activations are no whole blocks of {BLOCK}");
        let blocks = cols / BLOCK;
        self.codes.resize(tokens * cols, 0);
        self.scales.resize(tokens * blocks, 0.0);
        self.offsets.resize(tokens * blocks, 0.0);
        self.negated_sums.resize(tokens * blocks * SUMS, 0);
        let codes = Disjoint::new(&mut self.codes);
        let scales = Disjoint::new(&mut self.scales);
        let offsets = Disjoint::new(&mut self.offsets);
        let negated_sums = Disjoint::new(&mut self.negated_sums);

        for_spans(pool, tokens, blocks, BLOCK, &|tile, span| {
            let (first, width) = (tile.start, tile.len());
            let out = first * blocks + span.start * width..first * blocks + span.end * width;
            // SAFETY: a task's (tile, span) is its own, and different ones map to different ranges.
            let mut out = unsafe {
                Span {
                    width,
                    codes: codes.part(out.start * BLOCK..out.end * BLOCK),
                    scales: scales.part(out.clone()),
                    offsets: offsets.part(out.clone()),
                    negated_sums: negated_sums.part(out.start * SUMS..out.end * SUMS),
                }
            };
            for token in 0..width {
                let row = &x[(first + token) * cols..][span.start * BLOCK..span.end * BLOCK];
                quantize(pool.level(), row, token, &mut out);
            }
        });
    }

    fn load_f32(&mut self, pool: &Pool, x: &[f32]) {
        let (tokens, cols) = (self.tokens, self.cols);
        self.floats.resize(tokens * cols, 0.0);
        let floats = Disjoint::new(&mut self.floats);
        for_spans(pool, tokens, cols, 1, &|tile, span| {
            let (first, width) = (tile.start, tile.len());
            // SAFETY: as in `load_int8`.
            let out =
                unsafe { floats.part(first * cols + span.start * width..first * cols + span.end * width) };
            transpose(pool.level(), &x[first * cols + span.start..], cols, width, out);
        });
    }

    /// The form that was loaded.
    pub fn kind(&self) -> ActivationKind {
        self.kind
    }

    /// Rows of the batch.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Values of each token.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The quantised tile of tokens `tokens`.
    pub(crate) fn quant_tile(&self, tokens: &Range<usize>) -> QuantTile<'_> {
        let blocks = self.cols / BLOCK;
        let range = tokens.start * blocks..tokens.end * blocks;
        QuantTile {
            codes: &self.codes[range.start * BLOCK..range.end * BLOCK],
            scales: &self.scales[range.clone()],
            offsets: &self.offsets[range.clone()],
            negated_sums: &self.negated_sums[range.start * SUMS..range.end * SUMS],
        }
    }

    /// The floats of the tile of tokens `tokens`.
    pub(crate) fn float_tile(&self, tokens: &Range<usize>) -> &[f32] {
        &self.floats[tokens.start * self.cols..tokens.end * self.cols]
    }
}

/// Cuts tokens, from a multiple of [`TILE`] on, into the tiles that they are kept in.
pub(crate) fn tiles(tokens: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut next = tokens.start;
    std::iter::from_fn(move || {
        let left = tokens.end - next;
        let width = if left >= TILE { TILE } else { 1 << left.checked_ilog2()? };
        next += width;
        Some(next - width..next)
    })
}

/// Runs `f(tokens of a tile, span of units)` for every tile and for spans that cover its `units` of
/// `unit_len` numbers.
fn for_spans(
    pool: &Pool,
    tokens: usize,
    units: usize,
    unit_len: usize,
    f: &(dyn Fn(Range<usize>, Range<usize>) + Sync),
) {
    let span = (TASK_NUMBERS / unit_len / tokens.clamp(1, TILE)).max(1);
    let spans = units.div_ceil(span);
    let groups = tokens.div_ceil(TILE);
    let task = |index: usize| {
        let (first, start) = (index / spans * TILE, index % spans * span);
        for tile in tiles(first..tokens.min(first + TILE)) {
            f(tile, start..units.min(start + span));
        }
    };
    match groups * spans {
        1 => task(0),
        tasks => pool.run(tasks, &task),
    }
}

/// 1.5 * 2^23: adding it to a number below 2^22 leaves the nearest integer (ties to even) in the low bits.
const ROUND: f32 = 12_582_912.0;

/// The largest magnitude of a code.
const LARGEST: f32 = 127.0;

/// Below this `amax`, `127 / amax` could overflow; such a block counts as zero.
const SMALLEST: f32 = f32::MIN_POSITIVE * 128.0;

/// Some consecutive blocks of a quantised tile of `width` tokens.
struct Span<'a> {
    width: usize,
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    offsets: &'a mut [f32],
    negated_sums: &'a mut [i32],
}

/// 32 activations as codes.
struct Quantized {
    codes: [i8; BLOCK],
    scale: f32,
    sums: [i32; 2],
}

#[inline(always)]
fn quantize_block(x: &[f32; BLOCK]) -> Quantized {
    // Magnitudes compare like their bits, and infinity and NaN are the largest of all.
    let mut largest = 0;
    for value in x {
        largest = largest.max(value.to_bits() & 0x7fff_ffff);
    }
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        return Quantized { codes: [0; BLOCK], scale: f32::NAN, sums: [0; 2] };
    }
    let (scale, inverse) =
        if largest < SMALLEST { (0.0, 0.0) } else { (largest / LARGEST, LARGEST / largest) };
    let mut codes = [0; BLOCK];
    let mut sums = [0; 2];
    for (i, (&x, place)) in x.iter().zip(&mut codes).enumerate() {
        let rounded = (x * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
        let code = rounded.clamp(-127, 127);
        *place = code as i8;
        sums[i / 16] += code;
    }
    Quantized { codes, scale, sums }
}

by_level! {
    /// Quantises whole blocks of token `token` into its places in a tile.
    fn quantize(x: &[f32], token: usize, out: &mut Span<'_>) {
        let width = out.width;
        for (index, x) in x.as_chunks::<BLOCK>().0.iter().enumerate() {
            let block = quantize_block(x);
            let at = index * width + token;
            out.codes[at * BLOCK..][..BLOCK].copy_from_slice(&block.codes);
            out.scales[at] = block.scale;
            let sum = block.sums[0] + block.sums[1];
            out.offsets[at] = block.scale * sum as f32;
            let sums = &mut out.negated_sums[index * width * SUMS..][..width * SUMS];
            sums[token] = -sum;
            sums[width + token] = -block.sums[0];
            sums[2 * width + token] = -block.sums[1];
        }
    }

    /// Turns `width` rows, `stride` apart, into columns of `width`: as many as `out` has room for.
    fn transpose(x: &[f32], stride: usize, width: usize, out: &mut [f32]) {
        if width == 1 {
            return out.copy_from_slice(&x[..out.len()]);
        }
        for (col, out) in out.chunks_exact_mut(width).enumerate() {
            for (token, out) in out.iter_mut().enumerate() {
                *out = x[token * stride + col];
            }
        }
    }
}
