//! Tensor shapes: a few dimensions, held inline, whose products are known not to overflow.

use crate::dtype::DType;
use crate::error::Fault;

/// Most dimensions a tensor may have. ggml has 4, convolution weights in safetensors 5.
pub(crate) const MAX_DIMS: usize = 8;

/// A shape, outermost dimension first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    dims: [usize; MAX_DIMS],
    rank: usize,
}

impl Shape {
    /// Takes dimensions as a file gives them and checks their number and that their product can be counted.
    pub(crate) fn new(dims: impl IntoIterator<Item = u64>) -> Result<Self, Fault> {
        let mut shape = Shape { dims: [0; MAX_DIMS], rank: 0 };
        for dim in dims {
            if shape.rank == MAX_DIMS {
                return Err(Fault::damaged(format!("it has more than {MAX_DIMS} dimensions")));
            }
            shape.dims[shape.rank] = usize::try_from(dim).map_err(|_| too_many_elements())?;
            shape.rank += 1;
        }
        shape.volume().ok_or_else(too_many_elements)?;
        Ok(shape)
    }

    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Outermost dimension; 1 for a scalar.
    pub(crate) fn rows(&self) -> usize {
        self.dims().first().copied().unwrap_or(1)
    }

    /// Elements of one outermost row.
    pub(crate) fn cols(&self) -> usize {
        // `new` has bounded the product.
        self.dims().iter().skip(1).product()
    }

    /// The same rows, but `rows` of them.
    pub(crate) fn with_rows(mut self, rows: usize) -> Self {
        self.dims[0] = rows;
        self.rank = self.rank.max(1);
        self
    }

    /// Bytes of a tensor of this shape. Also makes sure that the bytes of one row can be counted, even when
    /// there are no rows.
    pub(crate) fn bytes(&self, dtype: DType) -> Result<usize, Fault> {
        let innermost = self.dims().last().copied().unwrap_or(1);
        if !innermost.is_multiple_of(dtype.block_len()) {
            return Err(Fault::damaged(format!(
                "its innermost dimension, {innermost}, is not a multiple of {dtype}'s block of {}",
                dtype.block_len()
            )));
        }
        let blocks = self.volume().ok_or_else(too_many_elements)? / dtype.block_len();
        let upper_bound = blocks.checked_mul(dtype.block_bytes()).ok_or_else(too_many_elements)?;
        Ok(if self.dims().contains(&0) { 0 } else { upper_bound })
    }

    /// The product of all dimensions with empty ones counted as 1: an upper bound of every product of some of
    /// them, in any order.
    fn volume(&self) -> Option<usize> {
        self.dims().iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim.max(1)))
    }
}

fn too_many_elements() -> Fault {
    Fault::damaged("its shape has more elements than a file can hold")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_never_overflow_even_when_a_dimension_is_empty() {
        let huge = 1 << 40;
        assert!(Shape::new([0, huge, huge]).is_err());
        assert!(Shape::new([huge, huge, 0]).is_err());
        assert!(Shape::new([0, 1 << 61]).and_then(|s| s.bytes(DType::F64)).is_err());
        let empty = Shape::new([0, 7]).expect("small");
        assert_eq!((empty.rows(), empty.cols(), empty.bytes(DType::F32).expect("small")), (0, 7, 0));
    }

    #[test]
    fn scalars_and_vectors_have_rows_of_one_element() {
        let scalar = Shape::new([]).expect("small");
        assert_eq!((scalar.rows(), scalar.cols(), scalar.bytes(DType::F16).expect("small")), (1, 1, 2));
        let vector = Shape::new([5]).expect("small");
        assert_eq!((vector.rows(), vector.cols()), (5, 1));
        assert_eq!(vector.with_rows(2).dims(), [2]);
    }

    #[test]
    fn at_most_eight_dimensions() {
        assert!(Shape::new([1; MAX_DIMS]).is_ok());
        assert!(Shape::new([1; MAX_DIMS + 1]).is_err());
    }
}
