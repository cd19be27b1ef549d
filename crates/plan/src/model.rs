//! A model as the cost model sees it: for each layer, how many numbers it holds, reads and multiplies.

use crate::shape::Shape;
use thiserror::Error;

/// A model's layers and ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The catalogue's name.
    pub id: String,
    /// Width of the residual stream.
    pub hidden: f64,
    /// Size of the vocabulary.
    pub vocab: f64,
    /// The output layer uses the embedding's weights.
    pub tied: bool,
    /// Longest context that the model was made for, in tokens; 0 when unknown.
    pub context: u64,
    /// The layers in order; never empty.
    pub layers: Vec<Layer>,
}

/// One layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// What mixes positions.
    pub attention: Attention,
    /// What works on each position alone.
    pub mlp: Mlp,
}

/// The part of a layer that mixes positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attention {
    /// Heads that share keys and values in groups (GQA, <https://arxiv.org/abs/2305.13245>); those with a window see its
    /// positions only. A gate on the output is as wide as the queries.
    Grouped {
        /// Query heads.
        heads: f64,
        /// Heads of keys and of values.
        kv_heads: f64,
        /// Width of each.
        head_dim: f64,
        /// Positions seen, when not all.
        window: Option<f64>,
        /// A gate of the queries' width multiplies the output.
        gated: bool,
    },
    /// Multi-head latent attention (<https://arxiv.org/abs/2405.04434>, section 2.1): one latent per token for all heads.
    Latent {
        /// Query heads.
        heads: f64,
        /// Rank of the compressed queries; 0 when they are not compressed.
        q_rank: f64,
        /// Rank of the latent.
        kv_rank: f64,
        /// Width of a head without its rotated part.
        nope: f64,
        /// Width of the rotated part.
        rope: f64,
        /// Width of a value head.
        value: f64,
    },
    /// A state that does not grow with the context (gated delta net).
    State {
        /// Weights of the layer's attention.
        weights: f64,
        /// Numbers of state per sequence.
        state: f64,
    },
    /// Keys and values of several tokens compressed into one, of which a query looks at some (DeepSeek V4).
    Compressed {
        /// Query heads.
        heads: f64,
        /// Width of each, and of the one head of keys and values.
        head_dim: f64,
        /// Weights of the layer's attention.
        weights: f64,
    },
}

/// Numbers of cache per token and number of head width, with compressed attention: 13.8 kB per token in the 43 layers of
/// DeepSeek V4 Flash (`github:antirez/ds4`, speed-bench).
const COMPRESSED_KEPT: f64 = 13.8e3 / (43.0 * 512.0 * 2.0);

/// Share of the positions that a query looks at, finding them included: what makes prompts slower by as much as ds4 gets
/// from 2,048 to 65,536 tokens (`ds4-m4-max-40c-*`).
const COMPRESSED_SEEN: f64 = 0.04;

/// The part of a layer that works on each position alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mlp {
    /// Gate, up and down of this width.
    Dense {
        /// Inner width.
        width: f64,
    },
    /// A router sends each token to some of many experts; shared ones see all.
    Experts {
        /// How many there are.
        count: f64,
        /// How many a token is sent to.
        active: f64,
        /// Inner width of one.
        width: f64,
        /// Width at which they run, usually the residual stream's.
        hidden: f64,
        /// Inner width of all shared experts together.
        shared: f64,
    },
}

/// Why a model's speed cannot be predicted.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("the shape of {id} is not known well enough: no {}; give its config.json, or add it in a catalogue file", .missing.join(", "))]
pub struct ShapeUnknown {
    /// The model.
    pub id: String,
    /// Fields that are missing.
    pub missing: Vec<&'static str>,
}

impl Attention {
    /// Weights, in numbers.
    pub fn weights(&self, hidden: f64) -> f64 {
        match *self {
            Self::Grouped { heads, kv_heads, head_dim, gated, .. } => {
                let queries = if gated { 2.0 } else { 1.0 };
                hidden * head_dim * ((queries + 1.0) * heads + 2.0 * kv_heads)
            }
            Self::Latent { heads, q_rank, kv_rank, nope, rope, value } => {
                let queries = heads * (nope + rope);
                let to_queries =
                    if q_rank > 0.0 { hidden * q_rank + q_rank * queries } else { hidden * queries };
                let latent = hidden * (kv_rank + rope) + kv_rank * heads * (nope + value);
                to_queries + latent + heads * value * hidden
            }
            Self::State { weights, .. } | Self::Compressed { weights, .. } => weights,
        }
    }

    /// Numbers in the cache of one sequence that has `context` tokens.
    pub fn cache(&self, context: f64) -> f64 {
        match *self {
            Self::Grouped { kv_heads, head_dim, window, .. } => {
                2.0 * kv_heads * head_dim * window.map_or(context, |window| window.min(context))
            }
            Self::Latent { kv_rank, rope, .. } => (kv_rank + rope) * context,
            Self::State { state, .. } => state,
            Self::Compressed { head_dim, .. } => COMPRESSED_KEPT * head_dim * context,
        }
    }

    /// Ranks that can share the cache without copies: the heads of keys and values, or one latent.
    pub fn cache_ways(&self) -> f64 {
        match *self {
            Self::Grouped { kv_heads, .. } => kv_heads,
            Self::Latent { .. } | Self::Compressed { .. } => 1.0,
            Self::State { .. } => f64::INFINITY,
        }
    }

    /// Operations for one new token that looks at `seen` positions, projections aside: with latents as they are
    /// (decode), where that is how the cache is kept.
    pub fn decode_operations(&self, seen: f64) -> f64 {
        match *self {
            Self::Grouped { heads, head_dim, window, .. } => {
                4.0 * heads * head_dim * window.map_or(seen, |window| window.min(seen))
            }
            Self::Latent { heads, kv_rank, rope, .. } => 2.0 * heads * (2.0 * kv_rank + rope) * seen,
            Self::State { state, .. } => 4.0 * state,
            Self::Compressed { heads, head_dim, .. } => 4.0 * heads * head_dim * COMPRESSED_SEEN * seen,
        }
    }

    /// Operations for one token of a prompt that looks at `seen` positions, projections aside: with latents unfolded into
    /// heads.
    pub fn prefill_operations(&self, seen: f64) -> f64 {
        match *self {
            Self::Latent { heads, nope, rope, value, .. } => 2.0 * heads * (nope + rope + value) * seen,
            _ => self.decode_operations(seen),
        }
    }

    /// Query heads: the finest uneven split there is; 1 where heads are not known.
    pub fn heads(&self) -> f64 {
        match *self {
            Self::Grouped { heads, .. } | Self::Latent { heads, .. } | Self::Compressed { heads, .. } => {
                heads
            }
            Self::State { .. } => 1.0,
        }
    }
}

impl Mlp {
    /// Weights of the routed experts, or 0: the part that formats often hold in fewer bits.
    pub fn expert_weights(&self) -> f64 {
        match *self {
            Self::Dense { .. } => 0.0,
            Self::Experts { count, width, hidden, .. } => 3.0 * count * width * hidden,
        }
    }

    /// All other weights.
    pub fn other_weights(&self, residual: f64) -> f64 {
        match *self {
            Self::Dense { width } => 3.0 * residual * width,
            Self::Experts { count, shared, hidden, .. } => {
                let down_and_up = if hidden < residual { 2.0 * hidden * residual } else { 0.0 };
                residual * count + 3.0 * residual * shared + down_and_up
            }
        }
    }

    /// Weights of those routed experts that are touched when `tokens` are routed independently: of E experts with k
    /// chosen, E (1 - (1 - k/E)^tokens) are expected to be.
    pub fn expert_weights_touched(&self, tokens: f64) -> f64 {
        match *self {
            Self::Dense { .. } => 0.0,
            Self::Experts { count, active, width, hidden, .. } => {
                let touched = count * (1.0 - (1.0 - active / count).powf(tokens));
                3.0 * touched * width * hidden
            }
        }
    }

    /// Weights that one token is multiplied with.
    pub fn weights_per_token(&self, residual: f64) -> f64 {
        self.other_weights(residual) + self.expert_weights_touched(1.0)
    }
}

impl Layer {
    /// All weights, in numbers.
    pub fn weights(&self, hidden: f64) -> f64 {
        self.attention.weights(hidden) + self.mlp.other_weights(hidden) + self.mlp.expert_weights()
    }

    /// Weights that one token is multiplied with.
    pub fn weights_per_token(&self, hidden: f64) -> f64 {
        self.attention.weights(hidden) + self.mlp.weights_per_token(hidden)
    }
}

impl Model {
    /// All weights, in numbers.
    pub fn parameters(&self) -> f64 {
        let ends = if self.tied { 1.0 } else { 2.0 } * self.vocab * self.hidden;
        ends + self.layers.iter().map(|layer| layer.weights(self.hidden)).sum::<f64>()
    }

    /// Weights that one token is multiplied with: the output layer counts, the embedding does not.
    pub fn active_parameters(&self) -> f64 {
        let layers: f64 = self.layers.iter().map(|layer| layer.weights_per_token(self.hidden)).sum();
        layers + self.vocab * self.hidden
    }

    /// Numbers in the cache of one sequence that has `context` tokens.
    pub fn cache(&self, context: f64) -> f64 {
        self.layers.iter().map(|layer| layer.attention.cache(context)).sum()
    }
}

/// Bound for shapes from files; the deepest model of the catalogue has 126.
const MOST_LAYERS: u64 = 2000;

impl TryFrom<&Shape> for Model {
    type Error = ShapeUnknown;

    fn try_from(shape: &Shape) -> Result<Self, ShapeUnknown> {
        let mut missing = Vec::new();
        let mut need = |value: Option<u64>, name| {
            value.filter(|value| *value > 0).unwrap_or_else(|| {
                missing.push(name);
                1
            }) as f64
        };
        let layers = need(shape.layers.filter(|layers| *layers <= MOST_LAYERS), "layers");
        let hidden = need(shape.hidden_size, "hidden_size");
        let vocab = need(shape.vocab_size, "vocab_size");
        need(shape.heads, "heads");
        if shape.experts.is_some() {
            need(shape.experts_active, "experts_active");
            need(shape.moe_intermediate_size, "moe_intermediate_size");
        } else {
            need(shape.intermediate_size, "intermediate_size");
        }
        if !missing.is_empty() {
            return Err(ShapeUnknown { id: shape.id.clone(), missing });
        }
        let mlps: Vec<Mlp> = (0..layers as u64).map(|layer| mlp(shape, layer, hidden)).collect();
        let unknown = attention_from_published(shape, &mlps, hidden, vocab);
        let layers = mlps
            .into_iter()
            .enumerate()
            .map(|(layer, mlp)| {
                let attention = attention(shape, layer as u64, hidden).or(unknown)?;
                Some(Layer { attention, mlp })
            })
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| ShapeUnknown { id: shape.id.clone(), missing: vec!["attention shape"] })?;
        let context = shape.context.unwrap_or(0);
        Ok(Self { id: shape.id.clone(), hidden, vocab, tied: shape.tie_embeddings, context, layers })
    }
}

fn known(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn mlp(shape: &Shape, layer: u64, hidden: f64) -> Mlp {
    let dense = Mlp::Dense { width: known(shape.intermediate_size).unwrap_or(0.0) };
    let (Some(count), Some(active), Some(width)) =
        (known(shape.experts), known(shape.experts_active), known(shape.moe_intermediate_size))
    else {
        return dense;
    };
    let interval = shape.expert_interval.unwrap_or(1).max(1);
    if layer < shape.first_dense_layers.unwrap_or(0) || !(layer + 1).is_multiple_of(interval) {
        return dense;
    }
    let shared = known(shape.shared_experts).unwrap_or(0.0)
        * known(shape.shared_expert_intermediate_size).unwrap_or(width);
    Mlp::Experts {
        count,
        active,
        width,
        hidden: known(shape.routed_expert_hidden_size).unwrap_or(hidden),
        shared,
    }
}

/// The attention of a layer whose kind has a formula here.
fn attention(shape: &Shape, layer: u64, hidden: f64) -> Option<Attention> {
    let words = shape.attention.as_deref().unwrap_or_default();
    let heads = known(shape.heads)?;
    let full =
        shape.full_attention_interval.is_none_or(|interval| (layer + 1).is_multiple_of(interval.max(1)));
    if let Some(kv_rank) = known(shape.mla_kv_lora_rank) {
        // Which layers of Kimi K3 are latent has not been published.
        if words.contains("hybrid") {
            return None;
        }
        return Some(Attention::Latent {
            heads,
            q_rank: known(shape.mla_q_lora_rank).unwrap_or(0.0),
            kv_rank,
            nope: known(shape.qk_nope_head_dim)?,
            rope: known(shape.qk_rope_head_dim)?,
            value: known(shape.v_head_dim)?,
        });
    }
    if !full && shape.sliding_window.is_none() {
        return delta_net(shape, hidden);
    }
    if words.contains("csa") {
        return None;
    }
    if words.contains("mamba") || words.contains("KDA") {
        return None;
    }
    let head_dim = known(shape.head_dim).unwrap_or(hidden / heads);
    let kv_heads = known(shape.kv_heads)?;
    let gated = words == "hybrid" || shape.linear_key_heads.is_some();
    let (kv_heads, head_dim) = if full {
        (known(shape.global_kv_heads).unwrap_or(kv_heads), known(shape.global_head_dim).unwrap_or(head_dim))
    } else {
        (kv_heads, head_dim)
    };
    // A model that names a window but no interval uses it everywhere.
    let window = known(shape.sliding_window).filter(|_| !full || shape.full_attention_interval.is_none());
    Some(Attention::Grouped { heads, kv_heads, head_dim, window, gated })
}

/// A gated delta net (<https://arxiv.org/abs/2412.06464>) as Qwen builds it: queries and keys, values and their gate, and
/// the way out.
fn delta_net(shape: &Shape, hidden: f64) -> Option<Attention> {
    let width = known(shape.linear_head_dim)?;
    let (keys, values) = (known(shape.linear_key_heads)?, known(shape.linear_value_heads)?);
    Some(Attention::State {
        weights: hidden * width * (2.0 * keys + 3.0 * values),
        state: values * width * width,
    })
}

/// For kinds of attention without a formula here: what the published size leaves for it. Rounded figures leave the least
/// error among the weights that one token touches.
fn attention_from_published(shape: &Shape, mlps: &[Mlp], hidden: f64, vocab: f64) -> Option<Attention> {
    let formula: Vec<_> = (0..mlps.len()).map(|layer| attention(shape, layer as u64, hidden)).collect();
    if !shape.attention.as_deref().unwrap_or_default().contains("csa") {
        return None;
    }
    let without = formula.iter().filter(|attention| attention.is_none()).count();
    let published = shape.params_active_b.filter(|_| without > 0)? * 1e9;
    let mlp: f64 = mlps.iter().map(|mlp| mlp.weights_per_token(hidden)).sum();
    let rest: f64 = formula.iter().flatten().map(|attention| attention.weights(hidden)).sum();
    let weights = (published - mlp - rest - vocab * hidden) / without as f64;
    let (heads, head_dim) = (known(shape.heads)?, known(shape.head_dim)?);
    (weights > 0.0).then_some(Attention::Compressed { heads, head_dim, weights })
}
