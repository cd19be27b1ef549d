//! Attention of one tile: some consecutive tokens of a sequence, and the query heads of one key-value head.
//!
//! Pair `p` of a tile is token `p / group` with head `p % group` of the group. The scores of the whole
//! context are kept (`[pages, pairs, PAGE]`), so there are two passes over the cache and nothing is ever
//! rescaled: keys to scores, then, after the softmax, values to outputs.

use std::iter::once;
use std::ops::Range;

use super::page::{score_page, weigh_page, with_pairs};
use super::vector::{self, Vector};
use super::{AttentionRow, AttentionShape, KvPages, PAGE};
use crate::disjoint::Disjoint;
use crate::lanes::{LANES, fold, larger};
use crate::level::Level;
use crate::math::exp_f32;

pub(super) struct Tile<'a> {
    pub(super) shape: &'a AttentionShape<'a>,
    pub(super) pages: KvPages<'a>,
    /// The call's queries, `[rows, heads, head_dim]`.
    pub(super) q: &'a [f32],
    /// The tile's rows: consecutive positions, one table.
    pub(super) rows: &'a [AttentionRow<'a>],
    /// The number of the tile's first row in the call.
    pub(super) first_row: usize,
    pub(super) kv: usize,
    /// How many query heads read `kv`. At least 1.
    pub(super) group: usize,
}

/// Computes the tile's outputs with the instructions of `level`, which this processor must have.
///
/// `out` is the call's, `[rows, heads, head_dim]`; nobody else may be using this tile's part of it.
pub(super) fn attend(level: Level, tile: &Tile<'_>, scratch: &mut Vec<f32>, out: &Disjoint<'_, f32>) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn avx2(tile: &Tile<'_>, scratch: &mut Vec<f32>, out: &Disjoint<'_, f32>) {
        // SAFETY: the instructions are enabled here.
        unsafe { attend_with::<vector::Avx2, 1>(tile, scratch, out) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    fn avx512(tile: &Tile<'_>, scratch: &mut Vec<f32>, out: &Disjoint<'_, f32>) {
        // SAFETY: the instructions are enabled here.
        unsafe { attend_with::<vector::Avx512, 2>(tile, scratch, out) }
    }

    assert!(level.is_supported(), "{level} is not supported by this processor");
    match level {
        // SAFETY: the assertion above found these instructions on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(tile, scratch, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(tile, scratch, out) },
        // SAFETY: every 64-bit Arm processor has these instructions, and code for it may always use them.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { attend_with::<vector::Neon, 1>(tile, scratch, out) },
        // SAFETY: needs no instructions of its own.
        _ => unsafe { attend_with::<vector::Plain, 1>(tile, scratch, out) },
    }
}

/// [`attend`] with `N` vectors of lanes, and `4 * N` pairs, at a time: as many sums as there are registers
/// for.
///
/// # Safety
///
/// The instructions of `V` must be there and enabled.
#[inline(always)]
unsafe fn attend_with<V: Vector, const N: usize>(
    tile: &Tile<'_>,
    scratch: &mut Vec<f32>,
    out: &Disjoint<'_, f32>,
) {
    let buffers = Buffers::cut(tile, scratch);
    pack_queries(tile, 4 * N, buffers.q);
    // SAFETY: the caller's promise.
    unsafe { score::<V, N>(tile, buffers.q, buffers.scores) };
    softmax(tile, buffers.scores, buffers.inverse);
    // SAFETY: the caller's promise.
    unsafe { weigh_values::<V, N>(tile, buffers.scores, buffers.acc) };
    write(tile, buffers.acc, buffers.inverse, out);
}

/// A tile's working memory. Each part starts on a cache line.
struct Buffers<'a> {
    /// `[pairs / M][head_dim, M]`: scaled queries, those that are computed together interleaved.
    q: &'a mut [f32],
    /// `[pages, pairs, PAGE]`: scores, then their exponentials.
    scores: &'a mut [f32],
    /// `[pairs]`: one over the sum of the exponentials.
    inverse: &'a mut [f32],
    /// `[pairs, head_dim]`
    acc: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    fn cut(tile: &Tile<'_>, scratch: &'a mut Vec<f32>) -> Self {
        const LINE: usize = 64 / size_of::<f32>();
        let heads = tile.pairs() * tile.shape.head_dim;
        let lens = [heads, tile.page_range().len() * tile.pairs() * PAGE, tile.pairs(), heads];
        let lens = lens.map(|len| len.next_multiple_of(LINE));
        let needed = lens.iter().sum::<usize>() + LINE;
        if scratch.len() < needed {
            scratch.resize(needed, 0.0);
        }
        let start = scratch.as_ptr().align_offset(64).min(LINE);
        let (q, rest) = scratch[start..].split_at_mut(lens[0]);
        let (scores, rest) = rest.split_at_mut(lens[1]);
        let (inverse, rest) = rest.split_at_mut(lens[2]);
        Self { q, scores, inverse, acc: &mut rest[..heads] }
    }
}

impl Tile<'_> {
    fn pairs(&self) -> usize {
        self.rows.len() * self.group
    }

    /// The position of the tile's row `i` and what it sees.
    fn visible(&self, i: usize) -> Range<usize> {
        self.shape.visible(self.rows[i].position)
    }

    fn last(&self) -> usize {
        self.rows.len() - 1
    }

    /// The pages, by their place in the table, that some row of the tile sees.
    fn page_range(&self) -> Range<usize> {
        self.visible(0).start / PAGE..self.rows[self.last()].position / PAGE + 1
    }

    /// Where page `index` of the table begins in keys and in values, and where its end is.
    #[inline(always)]
    fn page(&self, index: usize) -> Range<usize> {
        let len = self.shape.head_dim * PAGE;
        let start = (self.rows[0].table[index] as usize * self.shape.kv_heads + self.kv) * len;
        start..start + len
    }

    /// Where each pair's head begins in the call's `q` and `out`.
    fn heads(&self) -> impl Iterator<Item = usize> {
        let heads = self.shape.kv_of_head.len();
        let rows = self.first_row..self.first_row + self.rows.len();
        rows.flat_map(move |row| {
            self.shape.heads_of(self.kv).map(move |head| (row * heads + head) * self.shape.head_dim)
        })
    }
}

/// Cuts `pairs` in pieces of at most `most`.
#[inline(always)]
fn pieces(pairs: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    pairs.clone().step_by(most).map(move |start| start..pairs.end.min(start + most))
}

/// Writes the scaled queries, `[head_dim, M]` for each piece of `M` pairs (at most `most`).
fn pack_queries(tile: &Tile<'_>, most: usize, packed: &mut [f32]) {
    let dim = tile.shape.head_dim;
    for (pair, start) in tile.heads().enumerate() {
        let first = pair - pair % most;
        let width = (tile.pairs() - first).min(most);
        let places = packed[first * dim..].iter_mut().skip(pair - first).step_by(width);
        for (place, q) in places.zip(&tile.q[start..start + dim]) {
            *place = q * tile.shape.scale;
        }
    }
}

/// All scores of all pairs with all positions of the tile's pages, those that no row sees included.
///
/// # Safety
///
/// As [`attend_with`].
#[inline(always)]
unsafe fn score<V: Vector, const N: usize>(tile: &Tile<'_>, q: &[f32], scores: &mut [f32]) {
    let dim = tile.shape.head_dim;
    for (index, scores) in tile.page_range().zip(scores.chunks_exact_mut(tile.pairs() * PAGE)) {
        let keys = &tile.pages.keys[tile.page(index)];
        for piece in pieces(0..tile.pairs(), 4 * N) {
            let q = &q[piece.start * dim..piece.end * dim];
            let scores = &mut scores[piece.start * PAGE..piece.end * PAGE];
            // SAFETY: the caller's promise.
            unsafe { with_pairs!(piece.len(), score_page::<V, N, _>(q, keys, scores)) };
        }
    }
}

/// Turns the scores that each pair sees into exponentials, the others into zeros.
#[inline(always)]
fn softmax(tile: &Tile<'_>, scores: &mut [f32], inverse: &mut [f32]) {
    let first = tile.page_range().start * PAGE;
    let stride = tile.pairs() * PAGE;
    for (pair, inverse) in inverse[..tile.pairs()].iter_mut().enumerate() {
        let seen = tile.visible(pair / tile.group);
        let pages = scores[pair * PAGE..].chunks_mut(stride);
        let mut max = [f32::NEG_INFINITY; LANES];
        for (position, page) in (first..).step_by(PAGE).zip(pages) {
            mask(&mut page[..PAGE], position, &seen);
            for half in page[..PAGE].as_chunks::<LANES>().0 {
                for lane in 0..LANES {
                    max[lane] = larger(max[lane], half[lane]);
                }
            }
        }
        let max = fold(max, larger);
        let mut sum = [0.0f32; LANES];
        for page in scores[pair * PAGE..].chunks_mut(stride) {
            for half in page[..PAGE].as_chunks_mut::<LANES>().0 {
                for lane in 0..LANES {
                    half[lane] = exp_f32(half[lane] - max);
                    sum[lane] += half[lane];
                }
            }
        }
        *inverse = 1.0 / fold(sum, |a, b| a + b);
    }
}

/// Sets what is not in `seen` to minus infinity, in the scores of the page that begins at `position`.
#[inline(always)]
fn mask(page: &mut [f32], position: usize, seen: &Range<usize>) {
    if seen.start <= position && position + PAGE <= seen.end {
        return;
    }
    for (score, position) in page.iter_mut().zip(position..) {
        if !seen.contains(&position) {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Sums the values of what each pair sees into `acc`, in the order of positions.
///
/// What all rows see is done for all pairs at once. The few positions before and after that only some rows
/// see are done row by row: a value that a row doesn't see never meets its sums, not even as a zero's factor.
///
/// # Safety
///
/// As [`attend_with`].
#[inline(always)]
unsafe fn weigh_values<V: Vector, const N: usize>(tile: &Tile<'_>, weights: &[f32], acc: &mut [f32]) {
    acc.fill(0.0);
    let common = tile.visible(tile.last()).start..tile.visible(0).end;
    let after = common.start.max(common.end);
    let pairs_of = |row| row * tile.group..(row + 1) * tile.group;
    let seen = |row| (pairs_of(row), tile.visible(row));
    let rows = 0..tile.rows.len();
    let first = rows.clone().map(seen).map(|(pairs, seen)| (pairs, seen.start..common.start.min(seen.end)));
    let last = rows.map(seen).map(|(pairs, seen)| (pairs, after..seen.end));
    for (pairs, positions) in first.chain(once((0..tile.pairs(), common.clone()))).chain(last) {
        if !positions.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { weigh_positions::<V, N>(tile, pairs, positions, weights, acc) };
        }
    }
}

/// [`weigh_values`] for some pairs and positions.
///
/// # Safety
///
/// As [`attend_with`].
#[inline(always)]
unsafe fn weigh_positions<V: Vector, const N: usize>(
    tile: &Tile<'_>,
    pairs: Range<usize>,
    positions: Range<usize>,
    weights: &[f32],
    acc: &mut [f32],
) {
    let dim = tile.shape.head_dim;
    let pages = tile.page_range();
    for index in positions.start / PAGE..positions.end.div_ceil(PAGE) {
        let start = positions.start.max(index * PAGE) - index * PAGE;
        let end = positions.end.min((index + 1) * PAGE) - index * PAGE;
        let values = &tile.pages.values[tile.page(index)][start * dim..end * dim];
        let weights = &weights[(index - pages.start) * tile.pairs() * PAGE..];
        for piece in pieces(pairs.clone(), 4 * N) {
            let weights = &weights[piece.start * PAGE + start..piece.end * PAGE];
            let acc = &mut acc[piece.start * dim..piece.end * dim];
            // SAFETY: the caller's promise.
            unsafe { with_pairs!(piece.len(), weigh_page::<V, N, _>(weights, values, dim, acc)) };
        }
    }
}

#[inline(always)]
fn write(tile: &Tile<'_>, acc: &[f32], inverse: &[f32], out: &Disjoint<'_, f32>) {
    let dim = tile.shape.head_dim;
    for ((start, acc), inverse) in tile.heads().zip(acc.chunks_exact(dim)).zip(inverse) {
        // SAFETY: the tiles of a call differ in rows or in key-value head, so no two write the same row and
        // head.
        let out = unsafe { out.part(start..start + dim) };
        for (out, acc) in out.iter_mut().zip(acc) {
            *out = acc * inverse;
        }
    }
}
