//! A model as its publisher describes it: the fields of a catalogue entry, which a `config.json` also fills.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is known of a model's shape. A field that is absent was not published or not found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// The name that `pomar plan` takes.
    pub id: String,
    /// Other names of models with the same shape.
    pub aliases: Vec<String>,
    /// The architecture's name in `config.json`.
    pub model_type: Option<String>,
    /// Published size in billions of parameters.
    pub params_total_b: Option<f64>,
    /// Published parameters that one token touches, in billions.
    pub params_active_b: Option<f64>,
    /// Number of layers.
    pub layers: Option<u64>,
    /// Width of the residual stream.
    pub hidden_size: Option<u64>,
    /// Query heads.
    pub heads: Option<u64>,
    /// Key and value heads.
    pub kv_heads: Option<u64>,
    /// Width of a head.
    pub head_dim: Option<u64>,
    /// How attention works, in words.
    pub attention: Option<String>,
    /// Width of a dense MLP.
    pub intermediate_size: Option<u64>,
    /// Width of one expert.
    pub moe_intermediate_size: Option<u64>,
    /// Experts of a layer.
    pub experts: Option<u64>,
    /// Experts that a token is sent to.
    pub experts_active: Option<u64>,
    /// Experts that every token is sent to.
    pub shared_experts: Option<u64>,
    /// Width of a shared expert where it differs from the others.
    pub shared_expert_intermediate_size: Option<u64>,
    /// Width at which routed experts run, where it is not that of the residual stream.
    pub routed_expert_hidden_size: Option<u64>,
    /// Layers at the start with a dense MLP.
    pub first_dense_layers: Option<u64>,
    /// Every so many layers have experts; the others are dense.
    pub expert_interval: Option<u64>,
    /// Rank of the compressed queries of multi-head latent attention.
    pub mla_q_lora_rank: Option<u64>,
    /// Rank of the latent keys and values.
    pub mla_kv_lora_rank: Option<u64>,
    /// Width of a head without its rotated part.
    pub qk_nope_head_dim: Option<u64>,
    /// Width of the rotated part, shared by all heads.
    pub qk_rope_head_dim: Option<u64>,
    /// Width of a value head.
    pub v_head_dim: Option<u64>,
    /// Positions that a sliding-window layer sees.
    pub sliding_window: Option<u64>,
    /// Every so many layers attend to everything; the others slide or are recurrent.
    pub full_attention_interval: Option<u64>,
    /// Key heads of a recurrent layer.
    pub linear_key_heads: Option<u64>,
    /// Value heads of a recurrent layer.
    pub linear_value_heads: Option<u64>,
    /// Width of a head of a recurrent layer.
    pub linear_head_dim: Option<u64>,
    /// Head width of layers that attend to everything, where it differs.
    pub global_head_dim: Option<u64>,
    /// Key and value heads of layers that attend to everything, where they differ.
    pub global_kv_heads: Option<u64>,
    /// Size of the vocabulary.
    pub vocab_size: Option<u64>,
    /// Longest context that it was made for.
    pub context: Option<u64>,
    /// The output layer uses the embedding's weights.
    pub tie_embeddings: bool,
    /// Where the figures are from.
    pub source: Vec<String>,
    /// What was computed, assumed or left out.
    pub note: Option<String>,
}

impl Shape {
    /// The shape in a Hugging Face `config.json`; `text_config` is used where there is one.
    pub fn from_config(id: &str, config: &Value) -> Self {
        let config = config.get("text_config").unwrap_or(config);
        let any = |names: &[&str]| names.iter().find_map(|name| config.get(*name)?.as_u64());
        let interval = any(&["full_attention_interval", "sliding_window_pattern"]);
        Self {
            id: id.to_owned(),
            model_type: config.get("model_type").and_then(Value::as_str).map(str::to_owned),
            layers: any(&["num_hidden_layers", "n_layer"]),
            hidden_size: any(&["hidden_size", "n_embd"]),
            heads: any(&["num_attention_heads", "n_head"]),
            kv_heads: any(&["num_key_value_heads", "num_attention_heads"]),
            head_dim: any(&["head_dim"]),
            intermediate_size: any(&["intermediate_size"]),
            moe_intermediate_size: any(&["moe_intermediate_size"]),
            experts: any(&["n_routed_experts", "num_experts", "num_local_experts"]),
            experts_active: any(&["num_experts_per_tok", "top_k_experts"]),
            shared_experts: any(&["n_shared_experts"]),
            shared_expert_intermediate_size: any(&["shared_expert_intermediate_size"]),
            first_dense_layers: any(&["first_k_dense_replace"]),
            expert_interval: any(&["interleave_moe_layer_step"]),
            mla_q_lora_rank: any(&["q_lora_rank"]),
            mla_kv_lora_rank: any(&["kv_lora_rank"]),
            qk_nope_head_dim: any(&["qk_nope_head_dim"]),
            qk_rope_head_dim: any(&["qk_rope_head_dim"]),
            v_head_dim: any(&["v_head_dim"]),
            sliding_window: windows(config).then(|| any(&["sliding_window"])).flatten(),
            full_attention_interval: interval,
            linear_key_heads: any(&["linear_num_key_heads"]),
            linear_value_heads: any(&["linear_num_value_heads"]),
            linear_head_dim: any(&["linear_key_head_dim"]),
            vocab_size: any(&["vocab_size"]),
            context: any(&["max_position_embeddings"]),
            tie_embeddings: config.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false),
            source: vec!["its config.json".to_owned()],
            ..Self::default()
        }
    }
}

/// Qwen's configurations name a window that they do not use.
fn windows(config: &Value) -> bool {
    config.get("use_sliding_window").and_then(Value::as_bool) != Some(false)
}
