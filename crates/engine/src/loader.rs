//! From tensor names to the parts of them that a rank holds.
//!
//! Architectures name tensors as Hugging Face does and say along which [`Axis`] a matrix is split; the loader finds
//! the tensor in a safetensors or GGUF checkpoint, takes the shard's rows or columns and gives them to the backend.

use crate::{
    Config, EngineError, Shard,
    backend::{AttentionSpec, Backend, MatrixSlice},
    split::{head_granule, inner_granule},
};
use pomar_weights::{Checkpoint, DType, TensorView};
use std::{cell::Cell, ops::Range, sync::Arc};

/// What a dimension of a weight counts, and so how a shard cuts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The residual stream: every rank holds all of it.
    Hidden,
    /// Query heads times head_dim.
    Heads,
    /// Key/value heads times head_dim.
    KvHeads,
    /// The MLP's inner dimension.
    Inner,
    /// Token ids.
    Vocab,
}

/// A linear layer whose output features may be split over ranks (column parallel in Megatron's words).
pub struct Linear<B: Backend> {
    /// The rank's rows of the matrix.
    pub weight: B::Linear,
    /// Their biases, in models that have them.
    pub bias: Option<B::Vector>,
}

/// A linear layer whose input features are split over ranks; its outputs are summed over them (row parallel).
pub struct SummedLinear<B: Backend> {
    /// The rank's columns of the matrix.
    pub weight: B::Linear,
    /// The whole bias, added once, after the sum.
    pub bias: Option<B::Vector>,
}

/// The tensors of one checkpoint as one shard sees them.
pub struct Loader<'a, B: Backend> {
    /// Where they go.
    pub backend: &'a B,
    /// The model's shape.
    pub config: &'a Config,
    /// The part to take.
    pub shard: &'a Shard,
    checkpoint: &'a Arc<Checkpoint>,
    quantized: bool,
    pages: usize,
    weight_bytes: Cell<usize>,
}

impl<'a, B: Backend> Loader<'a, B> {
    /// A loader for `shard`, making caches of `pages` pages per layer.
    pub fn new(
        backend: &'a B,
        checkpoint: &'a Arc<Checkpoint>,
        config: &'a Config,
        shard: &'a Shard,
        pages: usize,
    ) -> Self {
        let quantized = is_quantized(checkpoint);
        Self { backend, config, shard, checkpoint, quantized, pages, weight_bytes: Cell::new(0) }
    }

    /// Bytes of matrices loaded so far.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes.get()
    }

    /// The gain of a norm, `[len]`, whole on every rank.
    ///
    /// # Errors
    /// [`EngineError::Shape`], or [`EngineError::Weights`] when the tensor is missing or damaged.
    pub fn vector(&self, name: &str, len: usize) -> Result<B::Vector, EngineError> {
        let view = self.view(&format!("{name}.weight"))?;
        self.expect_shape(&view, &[len])?;
        Ok(self.backend.vector(view.to_f32_vec()?))
    }

    /// A linear layer `[out, hidden]` of which the rank computes its share of `out`.
    ///
    /// # Errors
    /// As [`Loader::vector`], and [`EngineError::Format`] or [`EngineError::Pack`] from the backend.
    pub fn linear(&self, name: &str, out: Axis) -> Result<Linear<B>, EngineError> {
        let weight = self.matrix(
            &format!("{name}.weight"),
            out,
            Axis::Hidden,
            self.range(out),
            0..self.len(Axis::Hidden),
        )?;
        let bias = self.bias(name, out, self.range(out))?;
        Ok(Linear { weight, bias })
    }

    /// A linear layer `[hidden, inputs]` of which the rank holds its share of `inputs`.
    ///
    /// # Errors
    /// As [`Loader::linear`].
    pub fn summed_linear(&self, name: &str, inputs: Axis) -> Result<SummedLinear<B>, EngineError> {
        let hidden = 0..self.len(Axis::Hidden);
        let weight =
            self.matrix(&format!("{name}.weight"), Axis::Hidden, inputs, hidden.clone(), self.range(inputs))?;
        let bias = self.bias(name, Axis::Hidden, hidden)?;
        Ok(SummedLinear { weight, bias })
    }

    /// The output head: its own matrix, or the embedding table where they are tied.
    ///
    /// # Errors
    /// As [`Loader::linear`].
    pub fn head(&self) -> Result<Linear<B>, EngineError> {
        let tied = self.config.tie_word_embeddings || !self.contains("lm_head.weight");
        self.linear(if tied { "model.embed_tokens" } else { "lm_head" }, Axis::Vocab)
    }

    /// The embedding table, whole.
    ///
    /// # Errors
    /// As [`Loader::vector`].
    pub fn embedding(&self) -> Result<B::Table, EngineError> {
        let name = self.file_name("model.embed_tokens.weight");
        let view = self.checkpoint.tensor(&name)?;
        self.expect_shape(&view, &[self.config.vocab_size, self.config.hidden_size])?;
        self.backend.table(self.checkpoint, &name)
    }

    /// The shard's attention, and an empty cache for one layer of it.
    pub fn attention(&self) -> (AttentionSpec, B::Cache) {
        let group = self.config.group_size();
        let spec = AttentionSpec {
            head_dim: self.config.head_dim,
            kv_heads: self.shard.kv_heads.len(),
            kv_of_head: self
                .shard
                .heads
                .clone()
                .map(|head| head / group - self.shard.kv_heads.start)
                .collect(),
            scale: 1.0 / (self.config.head_dim as f32).sqrt(),
        };
        let cache = self.backend.cache(&spec, self.pages);
        (spec, cache)
    }

    fn matrix(
        &self,
        name: &str,
        out: Axis,
        inputs: Axis,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<B::Linear, EngineError> {
        let view = self.view(name)?;
        self.expect_shape(&view, &[self.len(out), self.len(inputs)])?;
        let granule = match inputs {
            Axis::Heads => head_granule(self.config.head_dim, self.quantized),
            _ => inner_granule(self.config.intermediate_size),
        };
        let linear = self.backend.linear(&MatrixSlice { view, rows, cols, granule })?;
        self.weight_bytes.set(self.weight_bytes.get() + self.backend.linear_bytes(&linear));
        Ok(linear)
    }

    fn bias(&self, name: &str, out: Axis, keep: Range<usize>) -> Result<Option<B::Vector>, EngineError> {
        let name = format!("{name}.bias");
        if !self.contains(&name) {
            return Ok(None);
        }
        let view = self.view(&name)?;
        self.expect_shape(&view, &[self.len(out)])?;
        Ok(Some(self.backend.vector(view.to_f32_vec()?[keep].to_vec())))
    }

    /// Length of an axis in the whole model.
    fn len(&self, axis: Axis) -> usize {
        let config = self.config;
        match axis {
            Axis::Hidden => config.hidden_size,
            Axis::Heads => config.num_attention_heads * config.head_dim,
            Axis::KvHeads => config.num_key_value_heads * config.head_dim,
            Axis::Inner => config.intermediate_size,
            Axis::Vocab => config.vocab_size,
        }
    }

    /// The shard's part of an axis, in elements.
    fn range(&self, axis: Axis) -> Range<usize> {
        let of_heads =
            |heads: &Range<usize>| heads.start * self.config.head_dim..heads.end * self.config.head_dim;
        match axis {
            Axis::Hidden => 0..self.config.hidden_size,
            Axis::Heads => of_heads(&self.shard.heads),
            Axis::KvHeads => of_heads(&self.shard.kv_heads),
            Axis::Inner => self.shard.inner.clone(),
            Axis::Vocab => self.shard.vocab.clone(),
        }
    }

    fn view(&self, name: &str) -> Result<TensorView<'a>, EngineError> {
        Ok(self.checkpoint.tensor(&self.file_name(name))?)
    }

    fn contains(&self, name: &str) -> bool {
        self.checkpoint.contains(&self.file_name(name))
    }

    fn file_name(&self, name: &str) -> String {
        if self.checkpoint.metadata().is_some() { gguf_name(name) } else { name.into() }
    }

    fn expect_shape(&self, view: &TensorView<'_>, expected: &[usize]) -> Result<(), EngineError> {
        if view.shape() == expected {
            return Ok(());
        }
        let (tensor, found) = (view.name().into(), view.shape().to_vec());
        Err(EngineError::Shape { tensor, found, expected: expected.to_vec() })
    }
}

/// True when any matrix of the checkpoint comes in quantised blocks.
#[must_use]
pub fn is_quantized(checkpoint: &Checkpoint) -> bool {
    let floats = [DType::F32, DType::F16, DType::BF16];
    checkpoint.tensors().flatten().any(|view| view.shape().len() == 2 && !floats.contains(&view.dtype()))
}

/// A Hugging Face tensor name in the words of GGUF, such as `blk.3.attn_q.weight`.
fn gguf_name(name: &str) -> String {
    const MODEL: [(&str, &str); 3] =
        [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];
    const LAYER: [(&str, &str); 11] = [
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let Some((stem, kind)) = name.rsplit_once('.') else {
        return name.into();
    };
    let find = |table: &[(&str, &str)], stem: &str| {
        table.iter().find(|(hf, _)| *hf == stem).map(|(_, gguf)| gguf.to_string())
    };
    let in_layer = || {
        let (layer, part) = stem.strip_prefix("model.layers.")?.split_once('.')?;
        Some(format!("blk.{layer}.{}", find(&LAYER, part)?))
    };
    match find(&MODEL, stem).or_else(in_layer) {
        Some(stem) => format!("{stem}.{kind}"),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::gguf_name;

    #[test]
    fn names_in_the_words_of_gguf() {
        assert_eq!(gguf_name("model.layers.12.self_attn.o_proj.weight"), "blk.12.attn_output.weight");
        assert_eq!(gguf_name("model.layers.0.self_attn.q_proj.bias"), "blk.0.attn_q.bias");
        assert_eq!(gguf_name("model.embed_tokens.weight"), "token_embd.weight");
        assert_eq!(gguf_name("lm_head.weight"), "output.weight");
        assert_eq!(gguf_name("something.else"), "something.else");
    }
}
