//! A tensor as its file holds it: name, type, shape and borrowed bytes.

use std::ops::Range;
use std::path::Path;

use half::{bf16, f16};

use crate::dtype::DType;
use crate::error::{Fault, Place, WeightsError};
use crate::shape::Shape;

/// A tensor, or some outermost rows of one, borrowed from its file.
///
/// The bytes are exactly as many as type and shape need, rows one after another without gaps. They need not
/// be aligned. Making a view or slicing it touches none of them, so a rank that slices reads only its part of
/// the file from disk.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    file: &'a Path,
    name: &'a str,
    dtype: DType,
    shape: Shape,
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A view of `bytes` as a tensor of the given type and shape (outermost dimension first). `file` is for
    /// messages only.
    ///
    /// # Errors
    /// [`WeightsError::Damaged`] when the number of bytes is not what type and shape need, or a row is not
    /// whole blocks.
    pub fn new(
        file: &'a Path,
        name: &'a str,
        dtype: DType,
        shape: &[usize],
        bytes: &'a [u8],
    ) -> Result<Self, WeightsError> {
        let shape = Shape::new(shape.iter().map(|&dim| dim as u64));
        shape
            .and_then(|shape| Self::with_shape(file, name, dtype, shape, bytes))
            .map_err(|fault| fault.at(file, Place::tensor(name)))
    }

    pub(crate) fn with_shape(
        file: &'a Path,
        name: &'a str,
        dtype: DType,
        shape: Shape,
        bytes: &'a [u8],
    ) -> Result<Self, Fault> {
        let needed = shape.bytes(dtype)?;
        if needed != bytes.len() {
            return Err(Fault::damaged(format!(
                "{dtype} {:?} takes {needed} bytes, but {} are given",
                shape.dims(),
                bytes.len()
            )));
        }
        if dtype.bytes_for(shape.cols()).is_none() {
            return Err(Fault::unsupported(quantised_vector(dtype)));
        }
        Ok(TensorView { file, name, dtype, shape, bytes })
    }

    /// The file the tensor is in.
    pub fn file(&self) -> &'a Path {
        self.file
    }

    /// The tensor's name in the file.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// How the elements are stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, outermost first, as PyTorch gives them; a scalar has none.
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// All bytes, row after row.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Outermost dimension: output features of a linear layer, elements of a vector, 1 for a scalar.
    pub fn rows_count(&self) -> usize {
        self.shape.rows()
    }

    /// Elements of one outermost row: input features of a linear layer, 1 for a vector.
    pub fn cols(&self) -> usize {
        self.shape.cols()
    }

    /// Bytes of one outermost row.
    pub fn row_bytes(&self) -> usize {
        // The constructor has checked that a row is whole blocks and that its bytes can be counted.
        self.cols() / self.dtype.block_len() * self.dtype.block_bytes()
    }

    /// The outermost rows `range`, as a tensor of the same name. No byte is touched.
    ///
    /// # Errors
    /// [`WeightsError::NoSuchRows`] when the range is reversed or reaches past the last row.
    pub fn rows(&self, range: Range<usize>) -> Result<TensorView<'a>, WeightsError> {
        let Range { start, end } = range;
        if start > end || end > self.rows_count() {
            return Err(WeightsError::NoSuchRows {
                file: self.file.to_owned(),
                tensor: self.name.to_owned(),
                start,
                end,
                rows: self.rows_count(),
            });
        }
        let bytes = &self.bytes[start * self.row_bytes()..end * self.row_bytes()];
        Ok(TensorView { shape: self.shape.with_rows(end - start), bytes, ..*self })
    }

    /// All elements as `f32`, for tensors stored as F32, F16 or BF16; the conversion is exact.
    ///
    /// # Errors
    /// [`WeightsError::Unsupported`] for every other type.
    pub fn to_f32_vec(&self) -> Result<Vec<f32>, WeightsError> {
        match self.dtype {
            DType::F32 => Ok(decode(self.bytes, f32::from_le_bytes)),
            DType::F16 => Ok(decode(self.bytes, |b| f16::from_le_bytes(b).to_f32())),
            DType::BF16 => Ok(decode(self.bytes, |b| bf16::from_le_bytes(b).to_f32())),
            other => {
                let what = format!("stored as {other}, but F32, F16 or BF16 is needed here");
                Err(Fault::unsupported(what).at(self.file, Place::tensor(self.name)))
            }
        }
    }
}

/// Decodes consecutive little-endian numbers of `N` bytes.
fn decode<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|&chunk| number(chunk)).collect()
}

fn quantised_vector(dtype: DType) -> String {
    format!("a vector stored as {dtype}; block formats are read for matrices only")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view<'a>(dtype: DType, shape: &[usize], bytes: &'a [u8]) -> Result<TensorView<'a>, WeightsError> {
        TensorView::new(Path::new("m.gguf"), "w", dtype, shape, bytes)
    }

    #[test]
    fn rows_cut_along_the_outermost_dimension() {
        let bytes: Vec<u8> = (0..24).collect();
        let cube = view(DType::U8, &[4, 3, 2], &bytes).expect("24 bytes");
        let part = cube.rows(1..3).expect("inside");
        assert_eq!((part.shape(), part.bytes()), (&[2, 3, 2][..], &bytes[6..18]));
        assert_eq!(part.rows(1..2).expect("inside").bytes(), &bytes[12..18]);
        assert_eq!(cube.rows(4..4).expect("empty").bytes(), b"");
    }

    #[test]
    fn rows_outside_are_refused() {
        let bytes = [0; 36];
        let matrix = view(DType::Q4_0, &[2, 32], &bytes).expect("two blocks");
        #[expect(clippy::reversed_empty_ranges)]
        let ranges = [0..3, 3..3, 2..1, 0..usize::MAX];
        for range in ranges {
            let message = matrix.rows(range).expect_err("outside").to_string();
            assert!(
                message.contains("m.gguf") && message.contains("`w`") && message.contains("2 rows"),
                "{message}"
            );
        }
    }

    #[test]
    fn the_bytes_must_fit_the_shape() {
        let bytes = [0; 40];
        assert!(view(DType::Q4_1, &[2, 32], &bytes).is_ok());
        assert!(view(DType::Q4_1, &[2, 16], &bytes).is_err());
        assert!(view(DType::F32, &[11], &bytes).is_err());
        let vector = view(DType::Q4_1, &[64], &bytes).expect_err("a quantised vector").to_string();
        assert!(vector.contains("Q4_1") && vector.contains("matrices only"), "{vector}");
    }

    #[test]
    fn floats_convert_exactly() {
        let values = [0.0, -0.0, 1.5, -65504.0, 6.103_515_6e-5_f32];
        let halves: Vec<u8> = values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
        assert_eq!(view(DType::F16, &[5], &halves).expect("fits").to_f32_vec().expect("a float"), values);
        let singles: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(view(DType::F32, &[5], &singles).expect("fits").to_f32_vec().expect("a float"), values);
        let brains: Vec<u8> = [1.0_f32, -3.0].iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
        assert_eq!(
            view(DType::BF16, &[2], &brains).expect("fits").to_f32_vec().expect("a float"),
            [1.0, -3.0]
        );
        assert!(view(DType::I8, &[1], &[0]).expect("fits").to_f32_vec().is_err());
    }
}
