//! The number formats of weights: how a row of a matrix lies in a file.
//!
//! The block layouts are ggml's (`ggml-common.h` and `ggml-quants.c` of ggml-org/ggml are the specification).
//! A row is a sequence of blocks of 1, 32 or 256 numbers; nothing is shared between rows. Everything here
//! works from slices that come from files, so lengths are checked and no bit pattern can do harm.

use std::fmt;

use half::{bf16, f16};
use thiserror::Error;

/// Numbers per block in the units that the kernels work on, whatever the format in the file.
pub(crate) const BLOCK: usize = 32;

/// Numbers per block of the K-quants in a file.
const SUPER_BLOCK: usize = 256;

/// How the numbers of a weight matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(non_camel_case_types, reason = "ggml's names, which everyone knows")]
pub enum Format {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single-precision number.
    BF16,
    /// 32 codes of 4 bits, less 8, times a half-precision scale.
    Q4_0,
    /// 32 codes of 4 bits times a scale plus a minimum, both half precision.
    Q4_1,
    /// 32 codes of 5 bits, less 16, times a half-precision scale.
    Q5_0,
    /// 32 codes of 5 bits times a scale plus a minimum, both half precision.
    Q5_1,
    /// 32 signed codes of 8 bits times a half-precision scale.
    Q8_0,
    /// 256 codes of 4 bits; each 32 have a scale and a minimum of 6 bits, relative to two half-precision
    /// numbers.
    Q4_K,
    /// 256 codes of 5 bits; scales and minima as in [`Format::Q4_K`].
    Q5_K,
    /// 256 codes of 6 bits, less 32; each 16 have a signed scale of 8 bits, relative to a half-precision
    /// number.
    Q6_K,
}

/// Why bytes are not numbers of a format.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// Rows are stored in whole blocks.
    #[error("{count} numbers can't be stored as {format}, which packs them in blocks of {block}")]
    PartialBlock {
        /// The format.
        format: Format,
        /// Numbers asked for.
        count: usize,
        /// Numbers per block.
        block: usize,
    },
    /// The slice of bytes is too short or too long.
    #[error("{count} numbers in {format} take {expected} bytes, but {actual} were given")]
    Length {
        /// The format.
        format: Format,
        /// Numbers asked for.
        count: usize,
        /// Bytes they take.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// More bytes than an address can count.
    #[error("{count} numbers in {format} are more than this machine can address")]
    TooLarge {
        /// The format.
        format: Format,
        /// Numbers asked for.
        count: usize,
    },
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 11] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
    ];

    /// Numbers in one block of a row: rows hold a multiple of it.
    pub fn block_len(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::BF16 => 1,
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => BLOCK,
            Format::Q4_K | Format::Q5_K | Format::Q6_K => SUPER_BLOCK,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::BF16 => 2,
            Format::Q4_0 => 2 + 16,
            Format::Q4_1 => 4 + 16,
            Format::Q5_0 => 2 + 4 + 16,
            Format::Q5_1 => 4 + 4 + 16,
            Format::Q8_0 => 2 + 32,
            Format::Q4_K => 4 + 12 + 128,
            Format::Q5_K => 4 + 12 + 32 + 128,
            Format::Q6_K => 128 + 64 + 16 + 2,
        }
    }

    /// Bytes of a row of `cols` numbers.
    ///
    /// # Errors
    /// `cols` is no multiple of [`Format::block_len`], or the row is too long to address.
    pub fn row_bytes(self, cols: usize) -> Result<usize, FormatError> {
        let block = self.block_len();
        if !cols.is_multiple_of(block) {
            return Err(FormatError::PartialBlock { format: self, count: cols, block });
        }
        (cols / block)
            .checked_mul(self.block_bytes())
            .ok_or(FormatError::TooLarge { format: self, count: cols })
    }

    /// Whether numbers are codes with shared scales; otherwise each is a float of its own.
    pub fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// ggml's name, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::BF16 => "BF16",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q8_0 => "Q8_0",
            Format::Q4_K => "Q4_K",
            Format::Q5_K => "Q5_K",
            Format::Q6_K => "Q6_K",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Decodes whole rows (or any run of whole blocks): `out` gets every number of `bytes` as f32.
///
/// # Errors
/// `out` holds no whole number of blocks, or `bytes` is not exactly as long as `out` needs.
pub fn dequantize_rows(format: Format, bytes: &[u8], out: &mut [f32]) -> Result<(), FormatError> {
    let expected = format.row_bytes(out.len())?;
    if bytes.len() != expected {
        return Err(FormatError::Length { format, count: out.len(), expected, actual: bytes.len() });
    }
    if format.is_quantized() {
        for (index, out) in out.chunks_exact_mut(BLOCK).enumerate() {
            Block::read(format, bytes, index).dequantize(out);
        }
    } else {
        for (bytes, out) in bytes.chunks_exact(format.block_bytes()).zip(out) {
            *out = float(format, bytes);
        }
    }
    Ok(())
}

/// One number of an unquantised format from its 2 or 4 bytes.
fn float(format: Format, bytes: &[u8]) -> f32 {
    match format {
        Format::F16 => half_at(bytes, 0),
        Format::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        _ => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// 32 consecutive numbers of a row in the one form that all quantised formats share:
/// number `i` is `scales[i / 16] * codes[i] + minimum`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// The codes, zero point already taken off.
    pub(crate) codes: [i8; BLOCK],
    /// The scales of the first and the last 16 numbers (equal but in Q6_K).
    pub(crate) scales: [f32; 2],
    /// Added to every number; `None` in the formats that have none.
    pub(crate) minimum: Option<f32>,
}

impl Block {
    /// Reads the block that starts at number `32 * index` of `row`, which holds enough whole blocks of
    /// `format`.
    #[inline]
    pub(crate) fn read(format: Format, row: &[u8], index: usize) -> Block {
        let per_block = format.block_len() / BLOCK;
        let start = index / per_block * format.block_bytes();
        let bytes = &row[start..start + format.block_bytes()];
        let part = index % per_block;
        match format {
            Format::Q4_0 => {
                Block::uniform(half_at(bytes, 0), nibbles(&bytes[2..]).map(|code| code as i8 - 8))
            }
            Format::Q4_1 => Block::uniform(half_at(bytes, 0), nibbles(&bytes[4..]).map(|code| code as i8))
                .plus(half_at(bytes, 2)),
            Format::Q5_0 => {
                Block::uniform(half_at(bytes, 0), five_bits(&bytes[2..]).map(|code| code as i8 - 16))
            }
            Format::Q5_1 => Block::uniform(half_at(bytes, 0), five_bits(&bytes[4..]).map(|code| code as i8))
                .plus(half_at(bytes, 2)),
            Format::Q8_0 => Block::uniform(half_at(bytes, 0), std::array::from_fn(|i| bytes[2 + i] as i8)),
            Format::Q4_K => k_quant(bytes, part, k_nibbles(&bytes[16..], part).map(|code| code as i8)),
            Format::Q5_K => {
                let low = k_nibbles(&bytes[48..], part);
                k_quant(
                    bytes,
                    part,
                    std::array::from_fn(|i| (low[i] | (bytes[16 + i] >> part & 1) << 4) as i8),
                )
            }
            Format::Q6_K => q6_k(bytes, part),
            Format::F32 | Format::F16 | Format::BF16 => Block::default(),
        }
    }

    fn uniform(scale: f32, codes: [i8; BLOCK]) -> Block {
        Block { codes, scales: [scale; 2], minimum: None }
    }

    fn plus(self, minimum: f32) -> Block {
        Block { minimum: Some(minimum), ..self }
    }

    fn dequantize(&self, out: &mut [f32]) {
        for (i, (out, &code)) in out.iter_mut().zip(&self.codes).enumerate() {
            let scaled = self.scales[i / 16] * f32::from(code);
            *out = self.minimum.map_or(scaled, |minimum| scaled + minimum);
        }
    }
}

/// Codes of 4 bits: byte `i` holds number `i` below and number `i + 16` above.
fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|i| bytes[i % 16] >> (i / 16 * 4) & 15)
}

/// 4 bytes of fifth bits, number 0 lowest, before the nibbles.
fn five_bits(bytes: &[u8]) -> [u8; BLOCK] {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let low = nibbles(&bytes[4..]);
    std::array::from_fn(|i| low[i] | ((fifth >> i & 1) as u8) << 4)
}

/// Part `part` (0..8) of 128 bytes of nibbles: parts come in pairs, the even one below, the odd one above.
fn k_nibbles(bytes: &[u8], part: usize) -> [u8; BLOCK] {
    let start = part / 2 * BLOCK;
    let shift = part % 2 * 4;
    std::array::from_fn(|i| bytes[start + i] >> shift & 15)
}

/// The head shared by Q4_K and Q5_K: `d`, `dmin`, then 12 bytes with eight scales and eight minima of 6 bits.
/// The first four of each are the low 6 bits of bytes 0..4 and 4..8, whose upper bits complete the nibbles of
/// bytes 8..12.
fn k_quant(bytes: &[u8], part: usize, codes: [i8; BLOCK]) -> Block {
    let packed = &bytes[4..16];
    let (scale, minimum) = if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        let low = packed[part + 4];
        (low & 15 | packed[part - 4] >> 6 << 4, low >> 4 | packed[part] >> 6 << 4)
    };
    // Both products are exact: 11 bits times 6.
    let (scale, minimum) = (half_at(bytes, 0) * f32::from(scale), half_at(bytes, 2) * f32::from(minimum));
    Block::uniform(scale, codes).plus(-minimum)
}

/// 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, `d`. Each half of 128 numbers is four
/// parts: parts 0 and 1 are the low nibbles of its 64 bytes, parts 2 and 3 the high ones; part `p` has bits
/// `2p..2p + 2` above.
fn q6_k(bytes: &[u8], part: usize) -> Block {
    let (half, quarter) = (part / 4, part % 4);
    let low = &bytes[half * 64 + quarter % 2 * BLOCK..];
    let high = &bytes[128 + half * BLOCK..];
    let code = |i: usize| (low[i] >> (quarter / 2 * 4) & 15 | (high[i] >> (quarter * 2) & 3) << 4) as i8 - 32;
    let scale = |i: usize| half_at(bytes, 208) * f32::from(bytes[192 + part * 2 + i] as i8);
    Block { codes: std::array::from_fn(code), scales: [scale(0), scale(1)], minimum: None }
}
