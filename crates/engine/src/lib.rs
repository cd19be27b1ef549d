//! The forward pass of one shard: from token ids, or the residual stream of the stage before, to the next stage or
//! to logits.
//!
//! # Concepts
//!
//! - A [`Config`] is the shape of a model, a [`Split`] says how many ranks share it, a [`Shard`] is what one of them
//!   holds. A split is data: no architecture knows of ranks.
//! - A [`Step`] is one forward pass of a batch. Sequences join and leave between steps.
//! - A [`Backend`] is a device with about twenty operations; [`Cpu`] is one.
//! - [`load`] makes a [`Model`] of a checkpoint, a shard and a backend.
//! - [`Sampling`] turns logits into the next token.
//!
//! # What it must never know
//!
//! Text, requests, HTTP, processes, where files come from. It sees token ids and an open checkpoint.
//!
//! # How to read it
//!
//! [`models::llama`] first: an architecture in one page. Then [`decoder`] (the frame around the layers), [`loader`]
//! (names to shards), [`split`] (who holds what), [`backend`] and [`cpu`].

pub mod backend;
pub mod config;
pub mod cpu;
pub mod decoder;
mod error;
pub mod loader;
pub mod models;
pub mod rope;
pub mod sampler;
pub mod split;
pub mod step;

pub use backend::Backend;
pub use config::{Architecture, Config};
pub use cpu::Cpu;
pub use decoder::{Activations, Model, load};
pub use error::EngineError;
pub use pomar_kernels::attention::PAGE;
pub use sampler::Sampling;
pub use split::{Shard, Split};
pub use step::{Chunk, Logits, Step};
