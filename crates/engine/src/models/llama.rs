//! Llama (Touvron et al., 2023), and the models that are Llama with one thing more.
//!
//! - Mistral: a sliding window on every layer.
//! - Qwen2: biases on queries, keys and values.
//!
//! Both come from the checkpoint by themselves: a bias is loaded where the file has one, and the window is part of
//! the layer's memory.

use super::prenorm::{Attention, PreNormLayer};
use crate::{
    EngineError,
    backend::Backend,
    decoder::{KvMemory, Pass},
    loader::{Axis, Linear, Loader, SummedLinear},
};

/// A layer of Llama, Mistral or Qwen2.
pub type LlamaLayer<B> = PreNormLayer<B, LlamaAttention<B>>;

/// Grouped-query attention (Ainslie et al., 2023) with rotary positions; the heads are split over ranks.
pub struct LlamaAttention<B: Backend> {
    q_proj: Linear<B>,
    k_proj: Linear<B>,
    v_proj: Linear<B>,
    o_proj: SummedLinear<B>,
    memory: KvMemory<B>,
}

impl<B: Backend> Attention<B> for LlamaAttention<B> {
    fn load(loader: &Loader<'_, B>, index: usize) -> Result<Self, EngineError> {
        let name = |part: &str| format!("model.layers.{index}.self_attn.{part}");
        Ok(Self {
            q_proj: loader.linear(&name("q_proj"), Axis::Heads)?,
            k_proj: loader.linear(&name("k_proj"), Axis::KvHeads)?,
            v_proj: loader.linear(&name("v_proj"), Axis::KvHeads)?,
            o_proj: loader.summed_linear(&name("o_proj"), Axis::Heads)?,
            memory: KvMemory::new(loader, index),
        })
    }

    fn forward(&mut self, pass: &Pass<'_, B>, x: &B::Tensor) -> Result<B::Tensor, EngineError> {
        let [mut q, mut k, v] = pass.project(x, [&self.q_proj, &self.k_proj, &self.v_proj]);
        pass.rotate(&mut q);
        pass.rotate(&mut k);
        let attended = pass.attend(&mut self.memory, &q, &k, &v);
        pass.project_sum(&attended, &self.o_proj)
    }
}
