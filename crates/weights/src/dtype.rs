//! Element types: how many elements a block holds and how many bytes it takes.

use std::fmt;

/// How the elements of a tensor are stored.
///
/// A *block* is the smallest piece that can be cut out: one element for plain types, 32 or 256 consecutive
/// elements of the innermost dimension for ggml's quantised types. All numbers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of an `F32`.
    BF16,
    /// IEEE 754 binary64.
    F64,
    /// OCP 8-bit float, 4 exponent and 3 mantissa bits.
    F8E4M3,
    /// OCP 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2,
    /// OCP 8-bit power-of-two scale.
    F8E8M0,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// One byte, 0 or 1.
    Bool,
    /// ggml: 32 elements; f16 scale, 4-bit codes.
    Q4_0,
    /// ggml: 32 elements; f16 scale, f16 minimum, 4-bit codes.
    Q4_1,
    /// ggml: 32 elements; f16 scale, 5-bit codes (fifth bits apart).
    Q5_0,
    /// ggml: 32 elements; f16 scale, f16 minimum, 5-bit codes (fifth bits apart).
    Q5_1,
    /// ggml: 32 elements; f16 scale, 8-bit codes.
    Q8_0,
    /// ggml: 256 elements in 8 sub-blocks with 6-bit scales and minima, 4-bit codes.
    Q4K,
    /// ggml: 256 elements in 8 sub-blocks with 6-bit scales and minima, 5-bit codes.
    Q5K,
    /// ggml: 256 elements in 16 sub-blocks with 8-bit scales, 6-bit codes.
    Q6K,
}

impl DType {
    /// Elements in one block; 1 for types that are not block-quantised.
    pub const fn block_len(self) -> usize {
        match self {
            DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 => 32,
            DType::Q4K | DType::Q5K | DType::Q6K => 256,
            _ => 1,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            DType::F8E4M3 | DType::F8E5M2 | DType::F8E8M0 | DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::Q4_0 => 2 + 16,
            DType::Q4_1 => 2 + 2 + 16,
            DType::Q5_0 => 2 + 4 + 16,
            DType::Q5_1 => 2 + 2 + 4 + 16,
            DType::Q8_0 => 2 + 32,
            DType::Q4K => 2 + 2 + 12 + 128,
            DType::Q5K => 2 + 2 + 12 + 32 + 128,
            DType::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// The name used in files and messages: safetensors' for plain types, ggml's for quantised ones.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "F32",
            DType::F16 => "F16",
            DType::BF16 => "BF16",
            DType::F64 => "F64",
            DType::F8E4M3 => "F8_E4M3",
            DType::F8E5M2 => "F8_E5M2",
            DType::F8E8M0 => "F8_E8M0",
            DType::I8 => "I8",
            DType::I16 => "I16",
            DType::I32 => "I32",
            DType::I64 => "I64",
            DType::U8 => "U8",
            DType::U16 => "U16",
            DType::U32 => "U32",
            DType::U64 => "U64",
            DType::Bool => "BOOL",
            DType::Q4_0 => "Q4_0",
            DType::Q4_1 => "Q4_1",
            DType::Q5_0 => "Q5_0",
            DType::Q5_1 => "Q5_1",
            DType::Q8_0 => "Q8_0",
            DType::Q4K => "Q4_K",
            DType::Q5K => "Q5_K",
            DType::Q6K => "Q6_K",
        }
    }

    /// True for ggml's block formats.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of `elements` consecutive elements; `None` when they are not whole blocks or too many.
    pub const fn bytes_for(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_only() {
        assert_eq!(DType::Q4K.bytes_for(512), Some(288));
        assert_eq!(DType::Q4K.bytes_for(511), None);
        assert_eq!(DType::BF16.bytes_for(3), Some(6));
        assert_eq!(DType::F64.bytes_for(usize::MAX), None);
        assert_eq!(DType::Q8_0.bytes_for(0), Some(0));
    }

    #[test]
    fn names_can_be_padded_into_columns() {
        assert_eq!(format!("{:<6}|", DType::Q6K), "Q6_K  |");
    }
}
