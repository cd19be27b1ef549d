//! Arithmetic on blocks of numbers: quantised dot products, norms, rope, attention, sampling primitives.
//!
//! This crate knows no model, no file and no network. Its promise is that results depend on the numbers given
//! and on nothing else: not on the instruction set, the number of threads, the batch around a token or the
//! way a matrix is cut over machines.
//!
//! Where to start reading: [`level`](mod@level) says how one source serves several instruction sets. A matrix
//! product goes through [`format`](mod@format) (bytes of a file), [`pack`] (the layout in memory),
//! [`activations`] and [`matmul`](mod@matmul), which defines its arithmetic; [`fixed`] is how sums cross
//! machines.

pub mod activations;
pub mod attention;
mod disjoint;
pub mod elementwise;
pub mod fixed;
pub mod format;
mod lanes;
pub mod level;
pub mod math;
pub mod matmul;
pub mod norm;
pub mod pack;
pub mod pool;
pub mod random;
pub mod rope;
pub mod softmax;
pub mod stream;

pub use activations::{ActivationKind, Activations};
pub use fixed::fixed_to_f32;
pub use format::{Format, FormatError, dequantize_rows};
pub use level::{Level, LevelError, level};
pub use matmul::{matmul, matmul_fixed};
pub use pack::{PackError, PackedMatrix, Part};
