//! The layer of Llama and its relatives: attention, then an MLP, each normalised before and added to the residual
//! stream after (pre-norm: Xiong et al., 2020; RMS norm: Zhang and Sennrich, 2019).

use super::swiglu::SwiGlu;
use crate::{
    EngineError,
    backend::Backend,
    decoder::{Layer, Pass},
    loader::Loader,
};

/// What architectures with this layer differ in.
pub trait Attention<B: Backend>: Sized {
    /// Loads the attention of layer `index`.
    ///
    /// # Errors
    /// As [`Loader::linear`].
    fn load(loader: &Loader<'_, B>, index: usize) -> Result<Self, EngineError>;

    /// `[tokens, hidden]` to `[tokens, hidden]`, remembering the step's keys and values.
    ///
    /// # Errors
    /// As [`Pass::project_sum`].
    fn forward(&mut self, pass: &Pass<'_, B>, x: &B::Tensor) -> Result<B::Tensor, EngineError>;
}

/// Attention and MLP around a residual stream.
pub struct PreNormLayer<B: Backend, A> {
    input_layernorm: B::Vector,
    self_attn: A,
    post_attention_layernorm: B::Vector,
    mlp: SwiGlu<B>,
}

impl<B: Backend, A: Attention<B>> Layer<B> for PreNormLayer<B, A> {
    fn load(loader: &Loader<'_, B>, index: usize) -> Result<Self, EngineError> {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let hidden = loader.config.hidden_size;
        Ok(Self {
            input_layernorm: loader.vector(&name("input_layernorm"), hidden)?,
            self_attn: A::load(loader, index)?,
            post_attention_layernorm: loader.vector(&name("post_attention_layernorm"), hidden)?,
            mlp: SwiGlu::load(loader, &name("mlp"))?,
        })
    }

    fn forward(&mut self, pass: &Pass<'_, B>, mut x: B::Tensor) -> Result<B::Tensor, EngineError> {
        let attended = self.self_attn.forward(pass, &pass.rms_norm(&x, &self.input_layernorm))?;
        pass.backend.add(&mut x, &attended);
        let mixed = self.mlp.forward(pass, &pass.rms_norm(&x, &self.post_attention_layernorm))?;
        pass.backend.add(&mut x, &mixed);
        Ok(x)
    }
}
