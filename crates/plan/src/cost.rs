//! What a step costs on one machine, layer by layer, and what a layer's shard takes of its memory.
//!
//! A step is either one token for each of several users, or a chunk of one prompt. Its time in a layer has a part that
//! shrinks with the rank's share of the layer and a part that does not:
//!
//!   shared = max(bytes of weights touched and cache read / effective bandwidth, operations / effective rate)
//!            + operations of attention / effective rate
//!   fixed  = what the backend needs for a layer of its kind

use crate::{
    Backend, Format, Machine, Model,
    model::{Attention, Layer, Mlp},
};

/// Room for a program and its libraries on each machine, in bytes.
const PROGRAM: f64 = 1.0e9;

/// Buffers per token that is worked on at once, in numbers per width of the residual stream.
const BUFFERS_PER_TOKEN: f64 = 16.0;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// One token for each of `users`, each after `context` tokens.
    Decode {
        /// Sequences that take part.
        users: f64,
        /// Tokens in the cache of each.
        context: f64,
    },
    /// `tokens` tokens of one prompt after `context` others.
    Prefill {
        /// Tokens at once.
        tokens: f64,
        /// Tokens before them.
        context: f64,
    },
}

impl Step {
    /// Tokens that go through the layers.
    pub fn tokens(&self) -> f64 {
        match *self {
            Self::Decode { users, .. } => users,
            Self::Prefill { tokens, .. } => tokens,
        }
    }

    fn cache_read(&self, attention: &Attention) -> f64 {
        match *self {
            Self::Decode { users, context } => users * attention.cache(context),
            Self::Prefill { tokens, context } => attention.cache(context + tokens),
        }
    }

    fn attention_operations(&self, attention: &Attention) -> f64 {
        match *self {
            Self::Decode { users, context } => users * attention.decode_operations(context),
            Self::Prefill { tokens, context } => {
                tokens * attention.prefill_operations(context + tokens / 2.0)
            }
        }
    }

    /// Rows of logits.
    fn rows(&self) -> f64 {
        match *self {
            Self::Decode { users, .. } => users,
            Self::Prefill { .. } => 1.0,
        }
    }
}

/// A share of a time that shrinks with a rank's share of a layer, and one that does not; and what the first is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Time {
    /// Reading memory, in s.
    pub memory: f64,
    /// Multiplying, in s.
    pub compute: f64,
    /// The backend's own time, in s; not shared.
    pub fixed: f64,
}

impl Time {
    /// The part that shrinks with a rank's share.
    pub fn shared(&self) -> f64 {
        self.memory + self.compute
    }
}

impl std::ops::AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        self.memory += other.memory;
        self.compute += other.compute;
        self.fixed += other.fixed;
    }
}

/// Time of each layer of a step on one machine alone. The output layer is a part of the last.
pub fn layer_times(
    model: &Model,
    format: &Format,
    machine: &Machine,
    backend: &Backend,
    step: Step,
) -> Vec<Time> {
    let mut times: Vec<Time> =
        model.layers.iter().map(|layer| layer_time(model, layer, format, machine, backend, step)).collect();
    if let Some(last) = times.last_mut() {
        *last += output_time(model, format, machine, backend, step);
    }
    times
}

fn bandwidth(machine: &Machine, backend: &Backend) -> f64 {
    let share = if machine.two_dies { backend.two_die_share } else { backend.bandwidth_share };
    machine.bandwidth * share
}

/// Operations/s; where a machine's rate is not known, nothing is said of compute.
fn rate(machine: &Machine) -> f64 {
    if machine.rate > 0.0 { machine.rate } else { f64::INFINITY }
}

fn layer_time(
    model: &Model,
    layer: &Layer,
    format: &Format,
    machine: &Machine,
    backend: &Backend,
    step: Step,
) -> Time {
    let Work { bytes, operations } = products(model, layer, format, backend, step);
    let share = rate_share(model, layer, backend);
    let fixed = fixed_time(layer, backend) + step.tokens() * model.hidden * backend.per_number;
    let reading = bytes / bandwidth(machine, backend);
    let multiplying = operations / (rate(machine) * share);
    let attention_share = match step {
        Step::Decode { .. } => backend.attention_share,
        Step::Prefill { .. } => share * backend.prompt_attention_share,
    };
    let attending = step.attention_operations(&layer.attention) / (rate(machine) * attention_share);
    // The longer of the two hides the other.
    let (memory, compute) =
        if reading >= multiplying { (reading, attending) } else { (0.0, multiplying + attending) };
    Time { memory, compute, fixed }
}

/// What a layer's products read, the cache included, and how much they multiply.
fn products(model: &Model, layer: &Layer, format: &Format, backend: &Backend, step: Step) -> Work {
    let tokens = step.tokens();
    let others = layer.attention.weights(model.hidden) + layer.mlp.other_weights(model.hidden);
    let weights = others * format.others + layer.mlp.expert_weights_touched(tokens) * format.experts;
    Work {
        bytes: weights / 8.0 + step.cache_read(&layer.attention) * backend.cache_bytes,
        operations: 2.0 * tokens * layer.weights_per_token(model.hidden),
    }
}

/// Share of a machine's matrix rate that a layer's products reach.
fn rate_share(model: &Model, layer: &Layer, backend: &Backend) -> f64 {
    let of_experts = if has_experts(layer) { backend.expert_rate_share } else { 1.0 };
    let of_attention = match layer.attention {
        Attention::Grouped { .. } => 1.0,
        Attention::Latent { .. } => backend.latent_rate_share,
        Attention::State { .. } => backend.state_rate_share,
        Attention::Compressed { .. } => backend.compressed_rate_share,
    };
    backend.rate_share * model.hidden / (model.hidden + backend.half_rate_width) * of_experts * of_attention
}

/// The backend's own time in a layer, in s.
fn fixed_time(layer: &Layer, backend: &Backend) -> f64 {
    let of_experts = if has_experts(layer) { backend.expert_layer } else { 0.0 };
    let of_attention = match layer.attention {
        Attention::Grouped { .. } => 0.0,
        Attention::Latent { .. } => backend.latent_layer,
        Attention::State { .. } => backend.state_layer,
        Attention::Compressed { .. } => backend.compressed_layer,
    };
    backend.layer + of_experts + of_attention
}

fn has_experts(layer: &Layer) -> bool {
    matches!(layer.mlp, Mlp::Experts { .. })
}

/// What a step reads and multiplies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Weights touched and cache, in bytes.
    pub bytes: f64,
    /// Multiplications and additions.
    pub operations: f64,
}

/// What a step reads and multiplies in all layers and at the output.
pub fn work(model: &Model, format: &Format, backend: &Backend, step: Step) -> Work {
    let ends = model.vocab * model.hidden;
    let mut all = Work { bytes: ends * format.ends / 8.0, operations: 2.0 * step.rows() * ends };
    for layer in &model.layers {
        let of_layer = products(model, layer, format, backend, step);
        all.bytes += of_layer.bytes;
        all.operations += of_layer.operations + step.attention_operations(&layer.attention);
    }
    all
}

/// The two bounds of a machine, as a backend reaches them with a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roof {
    /// Bytes/s.
    pub bandwidth: f64,
    /// Operations/s of the layers' products; `None` where the machine's rate is not known.
    pub rate: Option<f64>,
}

/// The bounds of a machine for the steps of a model.
pub fn roof(model: &Model, machine: &Machine, backend: &Backend) -> Roof {
    let operations = |layer: &Layer| layer.weights_per_token(model.hidden);
    let time = |layer: &Layer| operations(layer) / rate_share(model, layer, backend);
    let share = model.layers.iter().map(operations).sum::<f64>() / model.layers.iter().map(time).sum::<f64>();
    let rate = (machine.rate > 0.0).then_some(machine.rate * share);
    Roof { bandwidth: bandwidth(machine, backend), rate }
}

fn output_time(model: &Model, format: &Format, machine: &Machine, backend: &Backend, step: Step) -> Time {
    let weights = model.vocab * model.hidden;
    let reading = weights * format.ends / 8.0 / bandwidth(machine, backend);
    let multiplying = 2.0 * step.rows() * weights / (rate(machine) * backend.rate_share);
    let fixed = backend.step;
    if reading >= multiplying {
        Time { memory: reading, compute: 0.0, fixed }
    } else {
        Time { memory: 0.0, compute: multiplying, fixed }
    }
}

/// What a layer takes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Weights, in bytes; shrink with the rank's share.
    pub weights: f64,
    /// Cache that ranks share without copies, in bytes; shrinks with the rank's share.
    pub cache: f64,
    /// Cache that each rank has all of, in bytes.
    pub copied_cache: f64,
}

impl std::ops::AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.weights += other.weights;
        self.cache += other.cache;
        self.copied_cache += other.copied_cache;
    }
}

impl Memory {
    /// Bytes on a rank with this share of the layers.
    pub fn of(&self, share: f64) -> f64 {
        share * (self.weights + self.cache) + self.copied_cache
    }
}

/// Bytes of each layer's weights. The embedding is a part of the first layer, the output layer one of the last.
pub fn layer_weights(model: &Model, format: &Format) -> Vec<f64> {
    let one = |layer: &Layer| {
        let others = layer.attention.weights(model.hidden) + layer.mlp.other_weights(model.hidden);
        (others * format.others + layer.mlp.expert_weights() * format.experts) / 8.0
    };
    let mut all: Vec<f64> = model.layers.iter().map(one).collect();
    let end = model.vocab * model.hidden * format.ends / 8.0;
    all[0] += end;
    if let Some(last) = all.last_mut().filter(|_| !model.tied) {
        *last += end;
    }
    all
}

/// Memory of each layer when `ranks` share it, for `users` sequences of `context` tokens.
pub fn layer_memory(
    model: &Model,
    format: &Format,
    backend: &Backend,
    ranks: f64,
    users: f64,
    context: f64,
) -> Vec<Memory> {
    let one = |(layer, weights): (&Layer, f64)| {
        let cache = layer.attention.cache(context) * users * backend.cache_bytes;
        let ways = layer.attention.cache_ways();
        let copied = if ranks > ways { cache / ways } else { 0.0 };
        Memory { weights, cache: if copied > 0.0 { 0.0 } else { cache }, copied_cache: copied }
    };
    model.layers.iter().zip(layer_weights(model, format)).map(one).collect()
}

/// Bytes on each machine whatever its share: the program, and buffers for what is worked on at once.
pub fn base_memory(model: &Model, backend: &Backend, users: f64) -> f64 {
    let buffers = backend.chunk.max(users) * model.hidden * BUFFERS_PER_TOKEN * backend.cache_bytes;
    PROGRAM + buffers + users * model.vocab * 4.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalogue, CatalogueError, backend::MLX};

    #[test]
    fn no_step_is_above_the_roof() -> Result<(), CatalogueError> {
        let catalogue = Catalogue::built_in();
        let (format, machine) = (Format::bits(4.0), catalogue.machine("m3-ultra-512")?);
        for name in ["llama-3.3-70b", "deepseek-v3.1"] {
            let model = catalogue.model(name)?;
            let roof = roof(&model, &machine, &MLX);
            let prompt = Step::Prefill { tokens: 2048.0, context: 0.0 };
            for step in
                [1.0, 8.0].map(|users| Step::Decode { users, context: 1024.0 }).into_iter().chain([prompt])
            {
                let work = work(&model, &format, &MLX, step);
                let times = layer_times(&model, &format, &machine, &MLX, step);
                let time: f64 = times.iter().map(|time| time.shared() + time.fixed).sum();
                assert!(work.bytes / time <= roof.bandwidth, "{name}, {step:?}");
                // Layers of several kinds weigh a little differently with attention in.
                assert!(
                    roof.rate.is_some_and(|rate| work.operations / time <= 1.02 * rate),
                    "{name}, {step:?}"
                );
            }
        }
        Ok(())
    }
}
