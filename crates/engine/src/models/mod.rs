//! One file per architecture. Each says what a layer computes, in the order and the words of its paper.

pub mod llama;
pub mod prenorm;
pub mod qwen3;
pub mod swiglu;
