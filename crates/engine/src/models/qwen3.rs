//! Qwen3 (Yang et al., *Qwen3 Technical Report*, 2025): Llama's layer with an RMS norm on every query and key head
//! before the rotation, no biases, and a head size that need not be hidden size / heads.

use super::prenorm::{Attention, PreNormLayer};
use crate::{
    EngineError,
    backend::Backend,
    decoder::{KvMemory, Pass},
    loader::{Axis, Linear, Loader, SummedLinear},
};

/// A layer of Qwen3.
pub type Qwen3Layer<B> = PreNormLayer<B, Qwen3Attention<B>>;

/// Grouped-query attention with normalised queries and keys; the heads are split over ranks.
pub struct Qwen3Attention<B: Backend> {
    q_proj: Linear<B>,
    k_proj: Linear<B>,
    v_proj: Linear<B>,
    q_norm: B::Vector,
    k_norm: B::Vector,
    o_proj: SummedLinear<B>,
    memory: KvMemory<B>,
}

impl<B: Backend> Attention<B> for Qwen3Attention<B> {
    fn load(loader: &Loader<'_, B>, index: usize) -> Result<Self, EngineError> {
        let name = |part: &str| format!("model.layers.{index}.self_attn.{part}");
        let head_dim = loader.config.head_dim;
        Ok(Self {
            q_proj: loader.linear(&name("q_proj"), Axis::Heads)?,
            k_proj: loader.linear(&name("k_proj"), Axis::KvHeads)?,
            v_proj: loader.linear(&name("v_proj"), Axis::KvHeads)?,
            q_norm: loader.vector(&name("q_norm"), head_dim)?,
            k_norm: loader.vector(&name("k_norm"), head_dim)?,
            o_proj: loader.summed_linear(&name("o_proj"), Axis::Heads)?,
            memory: KvMemory::new(loader, index),
        })
    }

    fn forward(&mut self, pass: &Pass<'_, B>, x: &B::Tensor) -> Result<B::Tensor, EngineError> {
        let [mut q, mut k, v] = pass.project(x, [&self.q_proj, &self.k_proj, &self.v_proj]);
        pass.head_norm(&mut q, &self.q_norm);
        pass.head_norm(&mut k, &self.k_norm);
        pass.rotate(&mut q);
        pass.rotate(&mut k);
        let attended = pass.attend(&mut self.memory, &q, &k, &v);
        pass.project_sum(&attended, &self.o_proj)
    }
}
