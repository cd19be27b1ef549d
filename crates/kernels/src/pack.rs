//! Weight matrices in the layout that the kernels read.
//!
//! Rows are taken 16 at a time: such a *panel* fills one vector of 16 floats, or of 16 times 4 codes, and an
//! output row is a lane. So a product needs no sum across lanes, and one broadcast of an activation serves 16
//! rows. The number of rows is padded to a multiple of 16 with zeros.
//!
//! A panel of a quantised matrix holds, for its 16 rows, first the codes of all blocks of 32 columns, then
//! the scales of all blocks, each in the order in which a product reads them:
//!
//! - codes of 8 bits: 8 lines of 64 bytes a block; line `l` has columns `4l..4l + 4` of row 0, then of row 1,
//!   ...
//! - codes of 4 bits: 4 lines a block; line `l` has columns `4l..` in the low and `16 + 4l..` in the high
//!   nibbles.
//! - scales: 16 numbers a block, f16 where the file has f16, else f32 (two times 16 in Q6_K, for the two
//!   halves of a block), then 16 minima if the format has minima.
//!
//! A panel of a float matrix holds 16 numbers for column 0, 16 for column 1, and so on, in the width of the
//! file.

use std::ops::Range;

use half::f16;
use thiserror::Error;

use crate::activations::ActivationKind;
use crate::format::{BLOCK, Block, Format, FormatError};
use crate::pool::Pool;

/// Rows of a panel: lanes of a vector.
pub(crate) const PANEL: usize = 16;

/// Bytes of a cache line, and of the widest vector.
pub(crate) const LINE: usize = 64;

/// What is added to a code of 8 bits to store it: 128 for x86, whose dot products take unsigned weights;
/// nothing for Arm.
pub(crate) const BIAS: u8 = if cfg!(target_arch = "x86_64") { 128 } else { 0 };

/// The bytes of one cache line, aligned.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; LINE]);

/// A matrix as a file holds it, and the part of its columns that is wanted.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// How `bytes` are to be read.
    pub format: Format,
    /// Output rows in `bytes`.
    pub rows: usize,
    /// Columns of a whole row in `bytes`.
    pub cols: usize,
    /// `rows` times [`Format::row_bytes`]`(cols)` bytes, row after row.
    pub bytes: &'a [u8],
    /// The columns to keep. Cut at multiples of 32 in quantised formats, anywhere in the others.
    pub keep: Range<usize>,
}

/// Why a matrix can't be packed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PackError {
    /// Rows of this length don't exist in the format.
    #[error("a matrix of {rows} rows: {source}")]
    Row {
        /// Rows of the matrix.
        rows: usize,
        /// What is wrong with each.
        source: FormatError,
    },
    /// The bytes are not those of such a matrix.
    #[error("a {format} matrix of {rows} x {cols} takes {expected} bytes, but {actual} were given")]
    Length {
        /// The format.
        format: Format,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        cols: usize,
        /// Bytes it takes.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// The matrix can't be addressed, neither in the file nor packed.
    #[error("a {format} matrix of {rows} x {cols} is more than this machine can address")]
    TooLarge {
        /// The format.
        format: Format,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        cols: usize,
    },
    /// The columns to keep are not columns of the matrix.
    #[error("columns {start}..{end} of a matrix that has {cols}")]
    Outside {
        /// First column asked for.
        start: usize,
        /// Column after the last one asked for.
        end: usize,
        /// Columns of the matrix.
        cols: usize,
    },
    /// A block of 32 columns shares a scale and stays whole.
    #[error("columns {start}..{end} of a {format} matrix: cut at multiples of 32")]
    Unaligned {
        /// The format.
        format: Format,
        /// First column asked for.
        start: usize,
        /// Column after the last one asked for.
        end: usize,
    },
}

/// How the blocks of a quantised format look when packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuantLayout {
    /// Bits of a code: 4 or 8.
    pub(crate) bits: usize,
    /// What is added to a code of 4 bits to store it. (Codes of 8 bits have [`BIAS`].)
    pub(crate) zero: i32,
    /// Whether there is a minimum for each block.
    pub(crate) minimum: bool,
    /// Whether each half of a block has its own scale.
    pub(crate) halves: bool,
    /// Whether scales are f32; otherwise f16.
    pub(crate) wide_scales: bool,
}

impl QuantLayout {
    /// The layout of `format`, `None` for floats.
    pub(crate) const fn of(format: Format) -> Option<QuantLayout> {
        let bytes = QuantLayout { bits: 8, zero: 0, minimum: false, halves: false, wide_scales: false };
        Some(match format {
            Format::F32 | Format::F16 | Format::BF16 => return None,
            Format::Q4_0 => QuantLayout { bits: 4, zero: 8, ..bytes },
            Format::Q4_1 => QuantLayout { bits: 4, minimum: true, ..bytes },
            Format::Q5_0 | Format::Q8_0 => bytes,
            Format::Q5_1 => QuantLayout { minimum: true, ..bytes },
            Format::Q4_K => QuantLayout { bits: 4, minimum: true, wide_scales: true, ..bytes },
            Format::Q5_K => QuantLayout { minimum: true, wide_scales: true, ..bytes },
            Format::Q6_K => QuantLayout { halves: true, wide_scales: true, ..bytes },
        })
    }

    /// Bytes of the codes of one block of a panel.
    pub(crate) const fn code_bytes(self) -> usize {
        PANEL * BLOCK * self.bits / 8
    }

    /// Bytes of 16 scales.
    pub(crate) const fn scale_bytes(self) -> usize {
        PANEL * if self.wide_scales { 4 } else { 2 }
    }

    /// Bytes of the scales and minima of one block of a panel.
    pub(crate) const fn scales_bytes(self) -> usize {
        self.scale_bytes() * (1 + self.halves as usize + self.minimum as usize)
    }

    /// Bytes of one block of a panel.
    const fn block_bytes(self) -> usize {
        self.code_bytes() + self.scales_bytes()
    }
}

/// A weight matrix `[rows, cols]` ready for [`matmul`](crate::matmul::matmul).
#[derive(Debug)]
pub struct PackedMatrix {
    format: Format,
    rows: usize,
    cols: usize,
    /// Lines of one panel.
    panel_lines: usize,
    lines: Vec<Line>,
}

impl PackedMatrix {
    /// Packs the kept columns of `part`.
    ///
    /// # Errors
    /// The shape, the bytes and the columns to keep don't fit each other: see [`PackError`].
    pub fn pack(pool: &Pool, part: Part<'_>) -> Result<PackedMatrix, PackError> {
        let Part { format, rows, cols, bytes, keep } = part;
        let row_bytes = format.row_bytes(cols).map_err(|source| PackError::Row { rows, source })?;
        let too_large = PackError::TooLarge { format, rows, cols };
        let Some(expected) = rows.checked_mul(row_bytes) else {
            return Err(too_large);
        };
        if bytes.len() != expected {
            return Err(PackError::Length { format, rows, cols, expected, actual: bytes.len() });
        }
        let (start, end) = (keep.start, keep.end);
        if start > end || end > cols {
            return Err(PackError::Outside { start, end, cols });
        }
        if format.is_quantized() && !(start.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK)) {
            return Err(PackError::Unaligned { format, start, end });
        }

        let kept = end - start;
        let panel_lines = match QuantLayout::of(format) {
            Some(layout) => (kept / BLOCK).checked_mul(layout.block_bytes()),
            None => kept.checked_mul(PANEL * format.block_bytes()),
        };
        let panel_lines = panel_lines.map(|bytes| bytes.div_ceil(LINE));
        let total = panel_lines.and_then(|lines| lines.checked_mul(rows.div_ceil(PANEL)));
        let (Some(panel_lines), Some(total)) = (panel_lines, total) else {
            return Err(too_large);
        };

        let mut matrix =
            PackedMatrix { format, rows, cols: kept, panel_lines, lines: vec![Line([0; LINE]); total] };
        if panel_lines > 0 {
            let layout = QuantLayout::of(format);
            pool.run_chunks(&mut matrix.lines, panel_lines, &|panel, lines| {
                let rows = bytes.chunks_exact(row_bytes).skip(panel * PANEL).take(PANEL);
                for (lane, row) in rows.enumerate() {
                    match layout {
                        Some(layout) => pack_blocks(format, layout, row, &keep, lane, lines),
                        None => pack_floats(format, row, &keep, lane, lines),
                    }
                }
            });
        }
        Ok(matrix)
    }

    /// Output rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: the length of the kept range.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The format that the matrix was packed from.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes of memory that the matrix takes.
    pub fn bytes(&self) -> usize {
        self.lines.len() * LINE
    }

    /// The form in which this matrix wants its activations.
    pub fn activation_kind(&self) -> ActivationKind {
        if self.format.is_quantized() { ActivationKind::Int8 } else { ActivationKind::F32 }
    }

    /// Groups of 16 rows, the last one padded.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// The bytes of panel `panel`.
    pub(crate) fn panel(&self, panel: usize) -> &[Line] {
        &self.lines[panel * self.panel_lines..][..self.panel_lines]
    }
}

/// Writes one row of a quantised matrix into lane `lane` of its panel.
fn pack_blocks(
    format: Format,
    layout: QuantLayout,
    row: &[u8],
    keep: &Range<usize>,
    lane: usize,
    panel: &mut [Line],
) {
    let blocks = keep.len() / BLOCK;
    for index in 0..blocks {
        let block = Block::read(format, row, keep.start / BLOCK + index);
        pack_codes(layout, &block.codes, lane, &mut panel[index * layout.code_bytes() / LINE..]);

        let mut at = blocks * layout.code_bytes() + index * layout.scales_bytes();
        let first = &block.scales[..1 + usize::from(layout.halves)];
        for &scale in first.iter().chain(&block.minimum) {
            if layout.wide_scales {
                put(panel, at + lane * 4, scale.to_ne_bytes());
            } else {
                // Exact: the number was a half in the file.
                put(panel, at + lane * 2, f16::from_f32(scale).to_ne_bytes());
            }
            at += layout.scale_bytes();
        }
    }
}

fn pack_codes(layout: QuantLayout, codes: &[i8; BLOCK], lane: usize, lines: &mut [Line]) {
    if layout.bits == 4 {
        let nibble = |code: i8| (i32::from(code) + layout.zero) as u8 & 15;
        for i in 0..BLOCK / 2 {
            lines[i / 4].0[lane * 4 + i % 4] = nibble(codes[i]) | nibble(codes[i + BLOCK / 2]) << 4;
        }
    } else {
        for (i, &code) in codes.iter().enumerate() {
            lines[i / 4].0[lane * 4 + i % 4] = (code as u8).wrapping_add(BIAS);
        }
    }
}

/// Writes one row of a float matrix into lane `lane` of its panel.
fn pack_floats(format: Format, row: &[u8], keep: &Range<usize>, lane: usize, panel: &mut [Line]) {
    let width = format.block_bytes();
    let kept = &row[keep.start * width..keep.end * width];
    for (col, bytes) in kept.chunks_exact(width).enumerate() {
        let at = (col * PANEL + lane) * width;
        panel[at / LINE].0[at % LINE..][..width].copy_from_slice(bytes);
    }
}

/// Writes `bytes` at byte `at`; they never cross the end of a line.
fn put<const N: usize>(lines: &mut [Line], at: usize, bytes: [u8; N]) {
    lines[at / LINE].0[at % LINE..][..N].copy_from_slice(&bytes);
}
