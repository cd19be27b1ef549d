//! The inner loop: `c -= a * b`, column-major, where `a` is tall and narrow and `b` short and wide.
//!
//! A tile of [`ROWS`] by [`COLUMNS`] of the product is summed up in registers while a strip of `a` and four columns of
//! `b` pass by, both packed so that they are read in order. The loops have fixed lengths, so the compiler turns
//! them into vector instructions.

/// Two vectors of four by four columns: eight sums, enough to keep two multiply-add units busy, and what passes by still
/// has room in the sixteen registers of AVX2.
const ROWS: usize = 8;
const COLUMNS: usize = 4;

/// A matrix cut into strips of [`ROWS`] rows, each stored column by column; the last one is filled up with zeros.
#[derive(Default)]
pub(crate) struct Strips {
    values: Vec<f64>,
    columns: usize,
}

impl Strips {
    /// Packs the matrix whose columns these are.
    pub(crate) fn pack<'a>(&mut self, rows: usize, columns: impl ExactSizeIterator<Item = &'a [f64]>) {
        self.columns = columns.len();
        let strip = ROWS * self.columns;
        self.values.clear();
        self.values.resize(rows.div_ceil(ROWS) * strip, 0.0);
        for (index, column) in columns.enumerate() {
            for (values, packed) in column.chunks(ROWS).zip(self.values.chunks_mut(strip)) {
                packed[index * ROWS..][..values.len()].copy_from_slice(values);
            }
        }
    }
}

/// Subtracts `a * b` from the rows from `below` on of each of `columns`, which are `height` long; `b` stands in the rows
/// of the same columns just above.
pub(crate) fn subtract_product(columns: &mut [f64], height: usize, below: usize, a: &Strips) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: this processor has both, as just asked.
        return unsafe { subtract_with_fma(columns, height, below, a) };
    }
    subtract::<{ cfg!(target_arch = "aarch64") }>(columns, height, below, a);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn subtract_with_fma(columns: &mut [f64], height: usize, below: usize, a: &Strips) {
    subtract::<true>(columns, height, below, a);
}

#[inline(always)]
fn subtract<const FUSED: bool>(columns: &mut [f64], height: usize, below: usize, a: &Strips) {
    let mut b = vec![[0.0; COLUMNS]; a.columns];
    for four in columns.chunks_mut(COLUMNS * height) {
        for (j, column) in four.chunks(height).enumerate() {
            for (packed, value) in b.iter_mut().zip(&column[below - a.columns..below]) {
                packed[j] = *value;
            }
        }
        for (index, strip) in a.values.chunks_exact(ROWS * a.columns).enumerate() {
            let tile = product::<FUSED>(strip, &b);
            for (column, sums) in four.chunks_mut(height).zip(&tile) {
                for (value, sum) in column[below..].iter_mut().skip(index * ROWS).zip(sums) {
                    *value -= sum;
                }
            }
        }
    }
}

/// One tile, column by column.
#[inline(always)]
fn product<const FUSED: bool>(strip: &[f64], b: &[[f64; COLUMNS]]) -> [[f64; ROWS]; COLUMNS] {
    let mut tile = [[0.0; ROWS]; COLUMNS];
    for (a, b) in strip.as_chunks::<ROWS>().0.iter().zip(b) {
        for (sums, b) in tile.iter_mut().zip(b) {
            for (sum, a) in sums.iter_mut().zip(a) {
                *sum = if FUSED { a.mul_add(*b, *sum) } else { *sum + a * b };
            }
        }
    }
    tile
}
