//! The crate's tests from outside, in one program so that they share the file writers in `support`.

mod checkpoint;
mod gguf;
mod hostile;
mod memory;
mod models;
mod safetensors;
mod seeds;
mod support;
