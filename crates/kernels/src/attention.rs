//! Causal attention over a paged cache of keys and values.
//!
//! A page holds [`PAGE`] positions of one layer. Keys lie transposed in it (`[head_dim, PAGE]`), so that the
//! lanes of a `q . k` are positions and no sum ever crosses lanes; values lie as they come (`[PAGE,
//! head_dim]`), so that the lanes of `p . v` are elements of the output. Both sums are then sequential and
//! fused: over the head dimension, and over the positions in order. The sum of the softmax has 16 lanes, by
//! position. None of this depends on what else is in the call, so neither do the bits.
//!
//! The work is cut in tiles: consecutive tokens of one sequence, and the query heads that read one key-value
//! head (`tile.rs`). A page that is in the processor's cache serves all of them, which makes a prompt compute
//! bound.

use std::sync::{Mutex, PoisonError};

use crate::disjoint::Disjoint;
use crate::pool::Pool;

use tile::{Tile, attend};

mod page;
mod tile;
mod vector;

/// Positions per page.
pub const PAGE: usize = 32;

/// The (token, head) pairs that a tile holds, unless one token alone has more heads on a key-value head.
const TILE_PAIRS: usize = 16;

/// What is the same for all rows of a call.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape<'a> {
    /// Elements of a query, key or value head.
    pub head_dim: usize,
    /// Key-value heads in the cache.
    pub kv_heads: usize,
    /// For each query head, the key-value head it reads. A shard may hold part of a group, so this is not
    /// always `head / group`.
    pub kv_of_head: &'a [usize],
    /// Factor on `q . k`, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// With `Some(w)`, the query at position `i` sees the keys at `i - w + 1 ..= i` only. At least 1.
    pub window: Option<usize>,
}

/// One token of a step.
#[derive(Clone, Copy, Debug)]
pub struct AttentionRow<'a> {
    /// The page numbers of the token's sequence, in the order of positions.
    ///
    /// Rows of one sequence should be neighbours and share one slice: they then share the reading of the
    /// cache.
    pub table: &'a [u32],
    /// The token's position in its sequence.
    pub position: usize,
}

/// One layer's cache.
#[derive(Clone, Copy, Debug)]
pub struct KvPages<'a> {
    /// `[pages, kv_heads, head_dim, PAGE]`
    pub keys: &'a [f32],
    /// `[pages, kv_heads, PAGE, head_dim]`
    pub values: &'a [f32],
}

/// Memory that [`attention`] reuses from call to call.
///
/// It grows to what the largest call needed: per thread, about `4 * max(16, heads per key-value head)` bytes
/// per position of context (8 MiB at 131072 positions).
#[derive(Debug, Default)]
pub struct AttentionScratch {
    tiles: Vec<(usize, usize)>,
    threads: Vec<Mutex<Vec<f32>>>,
}

impl AttentionScratch {
    /// Scratch that is empty until its first use.
    pub fn new() -> Self {
        Self::default()
    }
}

impl AttentionShape<'_> {
    /// Elements of keys, and of values, that one page of one layer takes.
    pub fn page_len(&self) -> usize {
        self.kv_heads * self.head_dim * PAGE
    }

    /// The positions that the query at `position` sees.
    fn visible(&self, position: usize) -> std::ops::Range<usize> {
        let end = position + 1;
        end.saturating_sub(self.window.unwrap_or(end))..end
    }

    /// The most query heads that read the same key-value head.
    fn largest_group(&self) -> usize {
        (0..self.kv_heads).map(|kv| self.heads_of(kv).count()).max().unwrap_or(0)
    }

    /// The query heads that read key-value head `kv`.
    fn heads_of(&self, kv: usize) -> impl Iterator<Item = usize> {
        (0..self.kv_of_head.len()).filter(move |&head| self.kv_of_head[head] == kv)
    }

    fn check(&self, keys: &[f32], values: &[f32], rows: &[AttentionRow<'_>]) {
        assert!(self.window != Some(0), "attention: a window of 0 sees nothing");
        assert!(self.kv_of_head.iter().all(|&kv| kv < self.kv_heads), "attention: kv_of_head names no head");
        assert_eq!(keys.len(), values.len(), "attention: lengths of keys and values");
        let pages = keys.len().checked_div(self.page_len()).unwrap_or(0);
        for row in rows {
            let used = row.table.get(..=row.position / PAGE);
            let Some(used) = used else { panic!("attention: no page for position {}", row.position) };
            assert!(
                used.iter().all(|&page| (page as usize) < pages),
                "attention: a page is not in the cache"
            );
        }
    }
}

/// Writes keys and values (`k` and `v`, each `[rows, kv_heads, head_dim]`) to their places in the cache.
///
/// `keys` and `values` are laid out as in [`KvPages`]. Only the pages of the rows' positions need to exist.
///
/// # Panics
///
/// When a length doesn't fit the shape, or a row's page is not in its table or not in the cache.
pub fn write_kv(
    shape: &AttentionShape<'_>,
    keys: &mut [f32],
    values: &mut [f32],
    k: &[f32],
    v: &[f32],
    rows: &[AttentionRow<'_>],
) {
    let dim = shape.head_dim;
    assert_eq!(k.len(), rows.len() * shape.kv_heads * dim, "write_kv: elements of k");
    assert_eq!(v.len(), k.len(), "write_kv: elements of v");
    let heads = k.chunks_exact(dim).zip(v.chunks_exact(dim));
    for (i, (k, v)) in heads.enumerate() {
        let (row, kv) = (rows[i / shape.kv_heads], i % shape.kv_heads);
        let page = row.table[row.position / PAGE] as usize;
        let slot = row.position % PAGE;
        let start = (page * shape.kv_heads + kv) * dim * PAGE;
        for (place, &k) in keys[start..][..dim * PAGE].chunks_exact_mut(PAGE).zip(k) {
            place[slot] = k;
        }
        values[start + slot * dim..][..dim].copy_from_slice(v);
    }
}

/// `out = softmax(scale * q . K) V` for every row and query head, each row seeing its own sequence up to
/// itself.
///
/// `q` and `out` are `[rows, heads, head_dim]`. The keys and values of all rows are in the cache already
/// ([`write_kv`]). What lies in places that no row sees is not used, whatever it is.
///
/// # Panics
///
/// When a length doesn't fit the shape, a row needs a page that is not in its table or not in the cache, or
/// the window is 0.
pub fn attention(
    pool: &Pool,
    scratch: &mut AttentionScratch,
    shape: &AttentionShape<'_>,
    pages: KvPages<'_>,
    q: &[f32],
    rows: &[AttentionRow<'_>],
    out: &mut [f32],
) {
    let len = rows.len() * shape.kv_of_head.len() * shape.head_dim;
    assert_eq!(q.len(), len, "attention: elements of q");
    assert_eq!(out.len(), len, "attention: elements of out");
    if len == 0 {
        return;
    }
    shape.check(pages.keys, pages.values, rows);

    scratch.threads.resize_with(pool.threads().max(scratch.threads.len()), Mutex::default);
    cut_tiles(&mut scratch.tiles, rows, TILE_PAIRS / shape.largest_group());
    let (tiles, threads) = (&scratch.tiles, &scratch.threads);
    let out = Disjoint::new(out);
    // Tiles of one key-value head follow each other, so that they find its pages in the cache.
    pool.run_indexed(shape.kv_heads * tiles.len(), &|thread, task| {
        let (kv, (first_row, len)) = (task / tiles.len(), tiles[task % tiles.len()]);
        let group = shape.heads_of(kv).count();
        if group == 0 {
            return;
        }
        let tile = Tile { shape, pages, q, rows: &rows[first_row..][..len], first_row, kv, group };
        let mut scratch = threads[thread].lock().unwrap_or_else(PoisonError::into_inner);
        attend(pool.level(), &tile, &mut scratch, &out);
    });
}

/// Cuts `rows` into runs (first row, rows) of at most `most` consecutive positions of one sequence.
fn cut_tiles(tiles: &mut Vec<(usize, usize)>, rows: &[AttentionRow<'_>], most: usize) {
    tiles.clear();
    for (i, row) in rows.iter().enumerate() {
        if let Some((start, len)) = tiles.last_mut() {
            let first = &rows[*start];
            let goes_on = std::ptr::eq(first.table, row.table) && row.position == first.position + *len;
            if goes_on && *len < most {
                *len += 1;
                continue;
            }
        }
        tiles.push((i, 1));
    }
}
