//! Strings to tokens and back.
//!
//! A request enters as messages; [`ChatTemplate`] turns them into the prompt text the model was
//! trained on, [`Tokenizer`] turns the text into ids, the engine does its work on ids alone, and
//! on the way back [`StreamDecoder`] turns each new id into the text it makes certain while
//! [`StopStrings`] holds back what could still become a stop string. [`ModelText`] finds all of
//! these in a model folder or in the metadata of a GGUF file.
//!
//! ```text
//! messages --ChatTemplate--> prompt --Tokenizer--> ids --engine--> id --StreamDecoder--> piece
//!                                                                       --StopStrings--> text
//! ```
//!
//! # What this crate must never know
//!
//! HTTP, sampling, weights' tensors, or which model is running: everything it does follows from
//! the files a model ships. Those files are hostile input. A damaged or malicious tokenizer or
//! template gives an error: never a panic, an endless loop or memory without bound.
//!
//! # How to read it
//!
//! [`tokenizer`] first (its module page explains the two engines), then [`stream`] and [`stop`],
//! which are short, then [`template`], and [`model`] last, which only looks for files.

pub mod model;
pub mod stop;
pub mod stream;
pub mod template;
pub mod tokenizer;

pub use model::{ModelText, ModelTextError};
pub use stop::{StopError, StopStrings, Stopped};
pub use stream::{StreamDecoder, StreamOptions};
pub use template::{ChatTemplate, Nulls, Render, TemplateError};
pub use tokenizer::{GgufVocab, Tokenizer, TokenizerError};
