//! Files to tensors: safetensors and GGUF, mapped, sliced and checked.
//!
//! ```no_run
//! use std::path::Path;
//! use pomar_weights::Checkpoint;
//!
//! let checkpoint = Checkpoint::open(Path::new("SmolLM2-135M-Instruct.Q4_1.gguf"))?;
//! let head = checkpoint.tensor("token_embd.weight")?;
//! println!("{} {:?}", head.dtype(), head.shape()); // Q4_1 [49152, 576]
//! let mine = head.rows(0..24_576)?; // only these bytes will be read from disk
//! # Ok::<(), pomar_weights::WeightsError>(())
//! ```
//!
//! A [`Checkpoint`] is one model on disk. It gives [`TensorView`]s: name, type, shape and the bytes as the
//! file has them, borrowed from the mapped file. What a model's tensors mean, how a quantised block is
//! decoded, and how shards are cut belongs to others.
//!
//! **Invariants.** This crate knows no arithmetic and no architecture. Files are hostile: every length,
//! offset, type and count is checked before it is used; nothing is allocated because a file says so, only in
//! proportion to bytes that are there; a damaged file gives one error that names file, tensor or key, and
//! what is wrong. `unsafe` lives in `map.rs` alone.
//!
//! To read the code: `shape` and `dtype` say what a tensor is, `table` where tensors are in a file;
//! [`safetensors`] and [`gguf`] parse headers into tables from plain byte slices (which is what the fuzz
//! targets call); `checkpoint` puts files and tables together.

mod checkpoint;
mod dtype;
mod error;
pub mod gguf;
mod index;
mod json;
mod map;
pub mod safetensors;
mod shape;
mod table;
mod view;

pub use checkpoint::{Checkpoint, Kind};
pub use dtype::DType;
pub use error::{Place, WeightsError};
pub use gguf::metadata::{Array, Metadata, Strings, Value};
pub use table::TensorTable;
pub use view::TensorView;
