//! The frame that all decoder-only models share: embedding, a stage's layers, final norm and head.
//!
//! What differs between architectures is the [`Layer`], one file each in [`models`](crate::models).

use crate::{
    Architecture, Config, EngineError, Shard, Step,
    backend::{AttentionSpec, Backend},
    loader::{Linear, Loader, SummedLinear},
    models::{llama::LlamaLayer, qwen3::Qwen3Layer},
};
use pomar_comm::Group;
use pomar_weights::Checkpoint;
use std::sync::Arc;

/// One decoder layer of an architecture.
pub trait Layer<B: Backend>: Sized {
    /// Loads layer `index` of the shard.
    ///
    /// # Errors
    /// Whatever the [`Loader`] meets.
    fn load(loader: &Loader<'_, B>, index: usize) -> Result<Self, EngineError>;

    /// The layer's output `[tokens, hidden]` for the residual stream `x`.
    ///
    /// # Errors
    /// [`EngineError::Comm`] when the stage's other ranks can't be reached.
    fn forward(&mut self, pass: &Pass<'_, B>, x: B::Tensor) -> Result<B::Tensor, EngineError>;
}

/// What every layer of one forward pass sees: the step, its rotations, and the ranks that share the layers.
pub struct Pass<'a, B: Backend> {
    /// The device.
    pub backend: &'a B,
    /// The sequences, tokens and positions of the pass.
    pub step: &'a Step,
    config: &'a Config,
    rotation: B::Rotation,
    group: &'a dyn Group,
}

impl<B: Backend> Pass<'_, B> {
    /// Linear layers that share their input, with their biases: each result is `[tokens, out]`.
    pub fn project<const N: usize>(&self, x: &B::Tensor, linears: [&Linear<B>; N]) -> [B::Tensor; N] {
        let mut outputs = self.backend.project(x, linears.map(|linear| &linear.weight));
        for (output, linear) in outputs.iter_mut().zip(linears) {
            if let Some(bias) = &linear.bias {
                self.backend.add_bias(output, bias);
            }
        }
        outputs
    }

    /// A linear layer whose inputs are split over the stage's ranks: `[tokens, hidden]`, the same on all of them.
    ///
    /// # Errors
    /// [`EngineError::Comm`] when one of them can't be reached.
    pub fn project_sum(&self, x: &B::Tensor, linear: &SummedLinear<B>) -> Result<B::Tensor, EngineError> {
        let mut output = self.backend.project_sum(x, &linear.weight, self.group)?;
        if let Some(bias) = &linear.bias {
            self.backend.add_bias(&mut output, bias);
        }
        Ok(output)
    }

    /// RMS norm over each row with the model's epsilon.
    pub fn rms_norm(&self, x: &B::Tensor, gain: &B::Vector) -> B::Tensor {
        self.backend.rms_norm(x, gain, self.config.rms_norm_eps)
    }

    /// RMS norm over each head with the model's epsilon, in place.
    pub fn head_norm(&self, x: &mut B::Tensor, gain: &B::Vector) {
        self.backend.head_norm(x, gain, self.config.rms_norm_eps);
    }

    /// Turns every head of `x` by its position, in place.
    pub fn rotate(&self, x: &mut B::Tensor) {
        self.backend.rotate(x, self.config.head_dim, &self.rotation);
    }

    /// Adds the step's keys and values to the layer's cache, then attends over all of it.
    pub fn attend(&self, memory: &mut KvMemory<B>, q: &B::Tensor, k: &B::Tensor, v: &B::Tensor) -> B::Tensor {
        self.backend.write_cache(&mut memory.cache, &memory.spec, k, v, self.step);
        self.backend.attend(&memory.cache, &memory.spec, q, self.step, memory.window)
    }
}

/// The keys and values that one layer has seen.
pub struct KvMemory<B: Backend> {
    spec: AttentionSpec,
    cache: B::Cache,
    window: Option<usize>,
}

impl<B: Backend> KvMemory<B> {
    /// Empty memory for layer `index`.
    pub fn new(loader: &Loader<'_, B>, index: usize) -> Self {
        let (spec, cache) = loader.attention();
        Self { spec, cache, window: loader.config.window(index) }
    }
}

/// A stage's input or output, on the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Activations {
    /// Input of the first stage: the step's own token ids.
    Tokens,
    /// The residual stream `[tokens, hidden]` between stages.
    Hidden(Vec<f32>),
    /// Output of the last stage: this rank's vocabulary columns `[logit rows, vocab shard]`.
    Logits(Vec<f32>),
}

/// A loaded shard of any architecture.
pub trait Model {
    /// Runs one step through the shard's layers.
    ///
    /// # Errors
    /// [`EngineError::Step`] when the step or its input does not fit; [`EngineError::Comm`] about the stage's ranks.
    fn forward(
        &mut self,
        step: &Step,
        input: Activations,
        group: &dyn Group,
    ) -> Result<Activations, EngineError>;

    /// Bytes of weights in memory.
    fn weight_bytes(&self) -> usize;
}

/// Loads `shard` of `checkpoint` with a cache of `pages` pages.
///
/// # Errors
/// Whatever is wrong with the checkpoint, naming file and tensor.
pub fn load<B: Backend>(
    backend: B,
    checkpoint: &Arc<Checkpoint>,
    config: &Config,
    shard: &Shard,
    pages: usize,
) -> Result<Box<dyn Model>, EngineError> {
    match config.architecture {
        Architecture::Llama => {
            Ok(Box::new(Decoder::<B, LlamaLayer<B>>::load(backend, checkpoint, config, shard, pages)?))
        }
        Architecture::Qwen3 => {
            Ok(Box::new(Decoder::<B, Qwen3Layer<B>>::load(backend, checkpoint, config, shard, pages)?))
        }
    }
}

struct Decoder<B: Backend, L> {
    backend: B,
    config: Config,
    pages: usize,
    embedding: Option<B::Table>,
    layers: Vec<L>,
    head: Option<Head<B>>,
    weight_bytes: usize,
}

struct Head<B: Backend> {
    norm: B::Vector,
    lm_head: Linear<B>,
}

impl<B: Backend, L: Layer<B>> Decoder<B, L> {
    fn load(
        backend: B,
        checkpoint: &Arc<Checkpoint>,
        config: &Config,
        shard: &Shard,
        pages: usize,
    ) -> Result<Self, EngineError> {
        let loader = Loader::new(&backend, checkpoint, config, shard, pages);
        let embedding = shard.is_first.then(|| loader.embedding()).transpose()?;
        let layers = shard.layers.clone().map(|index| L::load(&loader, index)).collect::<Result<_, _>>()?;
        let head = || {
            let norm = loader.vector("model.norm", config.hidden_size)?;
            Ok::<_, EngineError>(Head { norm, lm_head: loader.head()? })
        };
        let head = shard.is_last.then(head).transpose()?;
        let weight_bytes = loader.weight_bytes();
        Ok(Self { config: config.clone(), pages, embedding, layers, head, weight_bytes, backend })
    }

    fn input(&self, step: &Step, input: Activations) -> Result<B::Tensor, EngineError> {
        match (&self.embedding, input) {
            (Some(table), Activations::Tokens) => self.backend.embed(table, &step.ids()),
            (None, Activations::Hidden(x)) if x.len() == step.tokens() * self.config.hidden_size => {
                Ok(self.backend.upload(x, self.config.hidden_size))
            }
            _ => Err(EngineError::Step { what: "its input is not what this stage takes".into() }),
        }
    }
}

impl<B: Backend, L: Layer<B>> Model for Decoder<B, L> {
    fn forward(
        &mut self,
        step: &Step,
        input: Activations,
        group: &dyn Group,
    ) -> Result<Activations, EngineError> {
        step.check(self.config.vocab_size, self.pages)?;
        let mut x = self.input(step, input)?;
        let rotation = self.backend.rotation(&self.config.rope, &step.positions());
        let pass = Pass { backend: &self.backend, step, config: &self.config, rotation, group };
        for layer in &mut self.layers {
            x = layer.forward(&pass, x)?;
        }
        let Some(head) = &self.head else {
            return Ok(Activations::Hidden(self.backend.download(x)));
        };
        let wanted = step.wanted_rows();
        if wanted.is_empty() {
            return Ok(Activations::Logits(Vec::new()));
        }
        let x = self.backend.select_rows(&x, &wanted);
        let [logits] = pass.project(&pass.rms_norm(&x, &head.norm), [&head.lm_head]);
        Ok(Activations::Logits(self.backend.download(logits)))
    }

    fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }
}
