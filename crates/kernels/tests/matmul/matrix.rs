//! Random matrices in every format.

use std::ops::Range;

use half::{bf16, f16};
use pomar_kernels::pool::Pool;
use pomar_kernels::{Format, PackedMatrix, Part};

/// A matrix as a file would hold it.
pub(super) struct Matrix {
    /// Its format.
    pub(super) format: Format,
    /// Its rows.
    pub(super) rows: usize,
    /// Its columns.
    pub(super) cols: usize,
    /// Its bytes, row after row.
    pub(super) bytes: Vec<u8>,
}

impl Matrix {
    /// Packs columns `keep`.
    pub(super) fn pack(&self, pool: &Pool, keep: Range<usize>) -> PackedMatrix {
        let Matrix { format, rows, cols, ref bytes } = *self;
        PackedMatrix::pack(pool, Part { format, rows, cols, bytes, keep }).unwrap()
    }

    /// Some of the rows.
    pub(super) fn rows(&self, rows: Range<usize>) -> Matrix {
        let row_bytes = self.format.row_bytes(self.cols).unwrap();
        let bytes = self.bytes[rows.start * row_bytes..rows.end * row_bytes].to_vec();
        Matrix { rows: rows.len(), bytes, ..*self }
    }

    /// Fills everything with one byte but the scales in half precision, which become 1.
    pub(super) fn fill_codes(&mut self, byte: u8) {
        self.bytes.fill(byte);
        self.set_scales(|| 1.0);
    }

    /// Sets the scales (and minima) in half precision of all blocks.
    fn set_scales(&mut self, mut scale: impl FnMut() -> f32) {
        let at: &[usize] = match self.format {
            Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
            Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
            Format::Q6_K => &[208],
            Format::F32 | Format::F16 | Format::BF16 => &[],
        };
        for block in self.bytes.chunks_mut(self.format.block_bytes()) {
            for &at in at {
                block[at..at + 2].copy_from_slice(&f16::from_f32(scale()).to_le_bytes());
            }
        }
    }
}

/// A small generator (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    /// 64 random bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number in -1..1.
    pub(super) fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }
}

/// Numbers of different magnitudes, below 4.
pub(super) fn random_floats(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| random.float() * 2f32.powi((random.bits() % 8) as i32 - 5)).collect()
}

/// A matrix with random codes and scales.
pub(super) fn random_matrix(format: Format, rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut random = Random(seed);
    let bytes: Vec<u8> = match format {
        Format::F32 => (0..rows * cols).flat_map(|_| random.float().to_le_bytes()).collect(),
        Format::F16 => (0..rows * cols).flat_map(|_| f16::from_f32(random.float()).to_le_bytes()).collect(),
        Format::BF16 => (0..rows * cols).flat_map(|_| bf16::from_f32(random.float()).to_le_bytes()).collect(),
        _ => (0..rows * format.row_bytes(cols).unwrap()).map(|_| random.bits() as u8).collect(),
    };
    let mut matrix = Matrix { format, rows, cols, bytes };
    matrix.set_scales(|| random.float() / 16.0);
    matrix
}
