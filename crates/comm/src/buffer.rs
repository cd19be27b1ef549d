//! Typed views of the caller's memory, for the calls that do arithmetic.

use half::{bf16, f16};
use std::ops::Range;

/// The element types that a group can add and compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DType {
    /// 64-bit integer: fixed-point partial sums, 2^-32 steps.
    I64 = 1,
    /// IEEE single.
    F32 = 2,
    /// IEEE half.
    F16 = 3,
    /// The upper half of a single.
    Bf16 = 4,
    /// 32-bit integer.
    I32 = 5,
    /// Byte.
    U8 = 6,
}

impl DType {
    /// Bytes per element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// The caller's elements, to be replaced in place by the reduced ones.
///
/// Made with `.into()` from a mutable slice of any of the six types. Sums of floats are as described here on all transports
/// but [`ring`](crate::ring), which keeps MLX's order and rounds halves at every hop.
#[derive(Debug)]
pub enum BufferMut<'a> {
    /// 64-bit integers; sums wrap.
    I64(&'a mut [i64]),
    /// Singles; summed in rank order.
    F32(&'a mut [f32]),
    /// Halves; summed in rank order in f32 and rounded once.
    F16(&'a mut [f16]),
    /// bfloat16; summed in rank order in f32 and rounded once.
    Bf16(&'a mut [bf16]),
    /// 32-bit integers; sums wrap.
    I32(&'a mut [i32]),
    /// Bytes; sums wrap.
    U8(&'a mut [u8]),
}

/// Evaluates `$body` with `$slice` bound to the typed slice of whichever variant `$buffer` is.
macro_rules! with_slice {
    ($buffer:expr, $slice:ident => $body:expr) => {
        match $buffer {
            $crate::BufferMut::I64($slice) => $body,
            $crate::BufferMut::F32($slice) => $body,
            $crate::BufferMut::F16($slice) => $body,
            $crate::BufferMut::Bf16($slice) => $body,
            $crate::BufferMut::I32($slice) => $body,
            $crate::BufferMut::U8($slice) => $body,
        }
    };
}
pub(crate) use with_slice;

impl BufferMut<'_> {
    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        match self {
            Self::I64(_) => DType::I64,
            Self::F32(_) => DType::F32,
            Self::F16(_) => DType::F16,
            Self::Bf16(_) => DType::Bf16,
            Self::I32(_) => DType::I32,
            Self::U8(_) => DType::U8,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        with_slice!(self, slice => slice.len())
    }

    /// True when there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.len() * self.dtype().bytes()
    }

    /// A shorter buffer over some of the elements.
    pub(crate) fn part(&mut self, span: Range<usize>) -> BufferMut<'_> {
        with_slice!(self, slice => (&mut slice[span]).into())
    }

    /// The elements as the bytes that travel (native order; all ranks of a group have the same).
    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.byte_len();
        let start = with_slice!(self, slice => slice.as_mut_ptr().cast::<u8>());
        // SAFETY: `start` and `bytes` are those of one live, exclusively borrowed slice; the six element types have
        // no padding and every bit pattern is a value of theirs, so bytes may be read and written freely; the result
        // borrows `self` for as long as it lives.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }
}

macro_rules! from_slice {
    ($($type:ty => $variant:ident),+) => {$(
        impl<'a> From<&'a mut [$type]> for BufferMut<'a> {
            fn from(slice: &'a mut [$type]) -> Self {
                Self::$variant(slice)
            }
        }
    )+};
}
from_slice!(i64 => I64, f32 => F32, f16 => F16, bf16 => Bf16, i32 => I32, u8 => U8);
