//! Attention of one tile: some consecutive tokens of a sequence, and the query heads of one key-value head.
//!
//! Pair `p` of a tile is token `p / group` with head `p % group` of the group. The scores of the whole context are
//! kept (`[pages, pairs, PAGE]`), so there are two passes over the cache and nothing is ever rescaled: keys to
//! scores, then, after the softmax, values to outputs.
//!
//! Both passes take a few pairs at a time (`M`, at most `W / 4`) against `W` lanes: `M * W` sums stay in registers.

use std::ops::Range;

use super::{AttentionRow, AttentionShape, KvPages, PAGE};
use crate::by_level;
use crate::lanes::{LANES, fold, larger};
use crate::math::exp_f32;
use crate::pool::Disjoint;

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

by_level! {
    /// Computes the tile's outputs with `W` lanes.
    ///
    /// `out` is the call's, `[rows, heads, head_dim]`; nobody else may be using this tile's part of it.
    pub(super) fn attend<const W: usize>(tile: &Tile<'_>, scratch: &mut Vec<f32>, out: &Disjoint<'_, f32>) {
        let buffers = Buffers::cut(tile, scratch);
        pack_queries::<W>(tile, buffers.q);
        score::<W>(tile, buffers.q, buffers.scores);
        softmax(tile, buffers.scores, buffers.inverse);
        weigh_values::<W>(tile, buffers.scores, buffers.acc);
        write(tile, buffers.acc, buffers.inverse, out);
    }
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
        let lens = [
            heads,
            tile.page_range().len() * tile.pairs() * PAGE,
            tile.pairs(),
            heads,
        ];
        let lens = lens.map(|len| len.next_multiple_of(LINE));
        let needed = lens.iter().sum::<usize>() + LINE;
        if scratch.len() < needed {
            scratch.resize(needed, 0.0);
        }
        let start = scratch.as_ptr().align_offset(64).min(LINE);
        let (q, rest) = scratch[start..].split_at_mut(lens[0]);
        let (scores, rest) = rest.split_at_mut(lens[1]);
        let (inverse, rest) = rest.split_at_mut(lens[2]);
        Self {
            q,
            scores,
            inverse,
            acc: &mut rest[..heads],
        }
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
            self.shape
                .heads_of(self.kv)
                .map(move |head| (row * heads + head) * self.shape.head_dim)
        })
    }
}

/// Calls `$function::<M, …>` with the constant `M` that equals `$pairs` (1 to 8).
macro_rules! with_pairs {
    ($pairs:expr, $function:ident::<_, $width:ident>($($argument:expr),* $(,)?)) => {
        match $pairs {
            1 => $function::<1, $width>($($argument),*),
            2 => $function::<2, $width>($($argument),*),
            3 => $function::<3, $width>($($argument),*),
            4 => $function::<4, $width>($($argument),*),
            5 => $function::<5, $width>($($argument),*),
            6 => $function::<6, $width>($($argument),*),
            7 => $function::<7, $width>($($argument),*),
            _ => $function::<8, $width>($($argument),*),
        }
    };
}

/// Cuts `pairs` in pieces of at most `W / 4`.
#[inline(always)]
fn pieces<const W: usize>(pairs: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let most = W / 4;
    pairs
        .clone()
        .step_by(most)
        .map(move |start| start..pairs.end.min(start + most))
}

fn pack_queries<const W: usize>(tile: &Tile<'_>, packed: &mut [f32]) {
    let dim = tile.shape.head_dim;
    for (pair, start) in tile.heads().enumerate() {
        let first = pair - pair % (W / 4);
        let width = (tile.pairs() - first).min(W / 4);
        let places = packed[first * dim..].iter_mut().skip(pair - first).step_by(width);
        for (place, q) in places.zip(&tile.q[start..start + dim]) {
            *place = q * tile.shape.scale;
        }
    }
}

/// All scores of all pairs with all positions of the tile's pages, those that no row sees included.
#[inline(always)]
fn score<const W: usize>(tile: &Tile<'_>, q: &[f32], scores: &mut [f32]) {
    let dim = tile.shape.head_dim;
    for (index, scores) in tile
        .page_range()
        .zip(scores.chunks_exact_mut(tile.pairs() * PAGE))
    {
        let keys = &tile.pages.keys[tile.page(index)];
        for piece in pieces::<W>(0..tile.pairs()) {
            let q = &q[piece.start * dim..piece.end * dim];
            let scores = &mut scores[piece.start * PAGE..piece.end * PAGE];
            with_pairs!(piece.len(), score_page::<_, W>(q, keys, scores));
        }
    }
}

/// `scores[m][position] = sum of q[d][m] * keys[d][position]` over `d` in order.
#[inline(always)]
fn score_page<const M: usize, const W: usize>(q: &[f32], keys: &[f32], scores: &mut [f32]) {
    let (q, _) = q.as_chunks::<M>();
    let (keys, _) = keys.as_chunks::<PAGE>();
    for start in (0..PAGE).step_by(W) {
        let mut sums = [[0.0f32; W]; M];
        for (q, keys) in q.iter().zip(keys) {
            let keys: &[f32; W] = keys[start..].first_chunk().expect("W divides PAGE");
            for m in 0..M {
                for lane in 0..W {
                    sums[m][lane] = keys[lane].mul_add(q[m], sums[m][lane]);
                }
            }
        }
        for (scores, sums) in scores.chunks_exact_mut(PAGE).zip(&sums) {
            scores[start..start + W].copy_from_slice(sums);
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
/// What all rows see is done for all pairs at once. The few positions before and after that only some rows see are
/// done row by row: a value that a row doesn't see never meets its sums, not even as a zero's factor.
#[inline(always)]
fn weigh_values<const W: usize>(tile: &Tile<'_>, weights: &[f32], acc: &mut [f32]) {
    acc.fill(0.0);
    let common = tile.visible(tile.last()).start..tile.visible(0).end;
    for row in 0..tile.rows.len() {
        let seen = tile.visible(row);
        let before = seen.start..common.start.min(seen.end);
        weigh_positions::<W>(
            tile,
            row * tile.group..(row + 1) * tile.group,
            before,
            weights,
            acc,
        );
    }
    weigh_positions::<W>(tile, 0..tile.pairs(), common.clone(), weights, acc);
    for row in 0..tile.rows.len() {
        let seen = tile.visible(row);
        let after = common.end.max(common.start).max(seen.start)..seen.end;
        weigh_positions::<W>(
            tile,
            row * tile.group..(row + 1) * tile.group,
            after,
            weights,
            acc,
        );
    }
}

#[inline(always)]
fn weigh_positions<const W: usize>(
    tile: &Tile<'_>,
    pairs: Range<usize>,
    positions: Range<usize>,
    weights: &[f32],
    acc: &mut [f32],
) {
    if positions.is_empty() {
        return;
    }
    let dim = tile.shape.head_dim;
    let first_page = tile.page_range().start;
    for index in positions.start / PAGE..=(positions.end - 1) / PAGE {
        let start = positions.start.max(index * PAGE) - index * PAGE;
        let end = positions.end.min((index + 1) * PAGE) - index * PAGE;
        let values = &tile.pages.values[tile.page(index)][start * dim..end * dim];
        let weights = &weights[(index - first_page) * tile.pairs() * PAGE..][..tile.pairs() * PAGE];
        for piece in pieces::<W>(pairs.clone()) {
            let weights = &weights[piece.start * PAGE + start..piece.end * PAGE];
            let acc = &mut acc[piece.start * dim..piece.end * dim];
            with_pairs!(piece.len(), weigh_page::<_, W>(weights, values, dim, acc));
        }
    }
}

/// `acc[m][d] += weights[m][position] * values[position][d]` over positions in order.
///
/// `weights` begins at the first position, with `PAGE` from one `m` to the next.
#[inline(always)]
fn weigh_page<const M: usize, const W: usize>(weights: &[f32], values: &[f32], dim: usize, acc: &mut [f32]) {
    let weights: [&[f32]; M] = std::array::from_fn(|m| &weights[m * PAGE..]);
    let mut d = 0;
    while d + W <= dim {
        weigh_lanes::<M, W>(&weights, values, dim, d, W, acc);
        d += W;
    }
    while d + LANES <= dim {
        weigh_lanes::<M, LANES>(&weights, values, dim, d, LANES, acc);
        d += LANES;
    }
    if d < dim {
        weigh_lanes::<M, LANES>(&weights, values, dim, d, dim - d, acc);
    }
}

/// [`weigh_page`] for the elements `d..d + len` of the heads; `len <= W`.
#[inline(always)]
fn weigh_lanes<const M: usize, const W: usize>(
    weights: &[&[f32]; M],
    values: &[f32],
    dim: usize,
    d: usize,
    len: usize,
    acc: &mut [f32],
) {
    let mut sums = [[0.0f32; W]; M];
    for (sums, acc) in sums.iter_mut().zip(acc.chunks_exact(dim)) {
        sums[..len].copy_from_slice(&acc[d..d + len]);
    }
    for (position, values) in values.chunks_exact(dim).enumerate() {
        let mut lanes = [0.0f32; W];
        lanes[..len].copy_from_slice(&values[d..d + len]);
        for m in 0..M {
            let weight = weights[m][position];
            for lane in 0..W {
                sums[m][lane] = lanes[lane].mul_add(weight, sums[m][lane]);
            }
        }
    }
    for (sums, acc) in sums.iter().zip(acc.chunks_exact_mut(dim)) {
        acc[d..d + len].copy_from_slice(&sums[..len]);
    }
}

#[inline(always)]
fn write(tile: &Tile<'_>, acc: &[f32], inverse: &[f32], out: &Disjoint<'_, f32>) {
    let dim = tile.shape.head_dim;
    for ((start, acc), inverse) in tile.heads().zip(acc.chunks_exact(dim)).zip(inverse) {
        // SAFETY: the tiles of a call differ in rows or in key-value head, so no two write the same row and head.
        let out = unsafe { out.slice(start, dim) };
        for (out, acc) in out.iter_mut().zip(acc) {
            *out = acc * inverse;
        }
    }
}
