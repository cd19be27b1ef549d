//! The shape of a model, read from config.json or from GGUF metadata into the same fields.
//!
//! Field names are those of Hugging Face's config.json, since that is what papers and other programs use.

use crate::{EngineError, rope::Rope};
use pomar_weights::{Checkpoint, Metadata};
use serde_json::Value;

/// Largest value accepted for any dimension; keeps products of two within 64 bits with room to spare.
const MAX_DIMENSION: u64 = 1 << 24;
/// Largest number of layers accepted.
const MAX_LAYERS: u64 = 4096;

/// The architectures that have a file in [`models`](crate::models).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Llama, Mistral and Qwen2: RMS norm, rotary grouped-query attention, SwiGLU.
    Llama,
    /// Qwen3: the same with normalised queries and keys.
    Qwen3,
}

/// `model_type` in config.json, or `general.architecture` in a GGUF, to the file that implements it.
const ARCHITECTURES: [(&str, Architecture); 4] = [
    ("llama", Architecture::Llama),
    ("mistral", Architecture::Llama),
    ("qwen2", Architecture::Llama),
    ("qwen3", Architecture::Qwen3),
];

/// Everything about a decoder-only model that is not a weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The name that the file gives its architecture, such as `mistral`.
    pub model_type: String,
    /// The implementation it maps to.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Inner width of the MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads (GQA); divides the query heads.
    pub num_key_value_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Token ids the embedding has rows for.
    pub vocab_size: usize,
    /// Longest context the model was made for, in tokens.
    pub max_position_embeddings: usize,
    /// Added to the mean square in every RMS norm.
    pub rms_norm_eps: f32,
    /// Rotary position embedding.
    pub rope: Rope,
    /// A query at position i sees keys i-window+1..=i in the layers that have a window.
    pub sliding_window: Option<usize>,
    /// First layer that has the window (Qwen2's `max_window_layers`; 0 where all have it).
    pub first_window_layer: usize,
    /// The output projection is the embedding table.
    pub tie_word_embeddings: bool,
}

impl Config {
    /// Reads the description of `checkpoint`.
    ///
    /// # Errors
    /// [`EngineError::UnknownArchitecture`], or [`EngineError::Config`] naming the key that is missing or wrong.
    pub fn read(checkpoint: &Checkpoint) -> Result<Self, EngineError> {
        let file = checkpoint.path().display().to_string();
        match (checkpoint.metadata(), checkpoint.config()) {
            (Some(metadata), _) => from_gguf(&GgufKeys { file, metadata }, checkpoint),
            (None, Some(config)) => from_json(&JsonKeys { file: format!("{file}/config.json"), config }),
            (None, None) => {
                Err(EngineError::Config { file, what: "there is no config.json beside the weights".into() })
            }
        }
    }

    /// Query heads per key/value head.
    #[must_use]
    pub fn group_size(&self) -> usize {
        self.num_attention_heads / self.num_key_value_heads
    }

    /// The attention window of `layer`, if it has one.
    #[must_use]
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.sliding_window.filter(|_| layer >= self.first_window_layer)
    }

    /// Bytes that one token takes in the KV cache of the whole model (f32 keys and values).
    #[must_use]
    pub fn kv_bytes_per_token(&self) -> u64 {
        2 * 4 * (self.num_hidden_layers * self.num_key_value_heads * self.head_dim) as u64
    }

    /// What every description must satisfy, whatever file it came from.
    fn checked(self, file: &str) -> Result<Self, EngineError> {
        let wrong = |what: String| Err(EngineError::Config { file: file.into(), what });
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return wrong(format!(
                "{} attention heads are no multiple of {} key/value heads",
                self.num_attention_heads, self.num_key_value_heads
            ));
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps >= 0.0) {
            return wrong(format!("rms_norm_eps is {}", self.rms_norm_eps));
        }
        if 2 * self.rope.inv_freq.len() > self.head_dim {
            return wrong(format!(
                "the rotary dimension {} exceeds head_dim {}",
                2 * self.rope.inv_freq.len(),
                self.head_dim
            ));
        }
        Ok(self)
    }
}

fn architecture(file: &str, name: &str) -> Result<Architecture, EngineError> {
    let known = ARCHITECTURES.iter().find(|(known, _)| *known == name);
    known.map(|(_, architecture)| *architecture).ok_or_else(|| EngineError::UnknownArchitecture {
        file: file.into(),
        found: name.chars().take(80).collect(),
        supported: ARCHITECTURES.map(|(name, _)| name).join(", "),
    })
}

/// config.json with the checks that every key needs.
pub(crate) struct JsonKeys<'a> {
    pub(crate) file: String,
    pub(crate) config: &'a Value,
}

impl JsonKeys<'_> {
    pub(crate) fn wrong(&self, what: String) -> EngineError {
        EngineError::Config { file: self.file.clone(), what }
    }

    fn dimension(&self, key: &str, max: u64) -> Result<usize, EngineError> {
        self.optional_dimension(key, max)?.ok_or_else(|| self.wrong(format!("{key} is missing")))
    }

    fn optional_dimension(&self, key: &str, max: u64) -> Result<Option<usize>, EngineError> {
        match self.config.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(n) if (1..=max).contains(&n) => Ok(Some(n as usize)),
                _ => Err(self.wrong(format!("{key} is {value}; it must be a whole number from 1 to {max}"))),
            },
        }
    }

    fn flag(&self, key: &str) -> bool {
        self.config.get(key).and_then(Value::as_bool).unwrap_or(false)
    }
}

fn from_json(keys: &JsonKeys) -> Result<Config, EngineError> {
    let model_type = keys.config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let architecture = architecture(&keys.file, model_type)?;
    if let Some(act) = keys.config.get("hidden_act").and_then(Value::as_str).filter(|act| *act != "silu") {
        return Err(keys.wrong(format!("hidden_act is {act:?}; only \"silu\" is supported")));
    }
    let hidden_size = keys.dimension("hidden_size", MAX_DIMENSION)?;
    let heads = keys.dimension("num_attention_heads", MAX_DIMENSION)?;
    let head_dim = match keys.optional_dimension("head_dim", MAX_DIMENSION)? {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
        None => {
            return Err(keys.wrong(format!("hidden_size {hidden_size} is no multiple of {heads} heads")));
        }
    };
    let windowed = keys.config.get("use_sliding_window").is_none() || keys.flag("use_sliding_window");
    let max_position_embeddings = keys.dimension("max_position_embeddings", u32::MAX.into())?;
    let config = Config {
        model_type: model_type.into(),
        architecture,
        hidden_size,
        intermediate_size: keys.dimension("intermediate_size", MAX_DIMENSION)?,
        num_hidden_layers: keys.dimension("num_hidden_layers", MAX_LAYERS)?,
        num_attention_heads: heads,
        num_key_value_heads: keys.optional_dimension("num_key_value_heads", MAX_DIMENSION)?.unwrap_or(heads),
        head_dim,
        vocab_size: keys.dimension("vocab_size", MAX_DIMENSION)?,
        max_position_embeddings,
        rms_norm_eps: keys.config.get("rms_norm_eps").and_then(Value::as_f64).unwrap_or(1e-6) as f32,
        rope: Rope::from_json(keys, head_dim, max_position_embeddings)?,
        sliding_window: keys.optional_dimension("sliding_window", u32::MAX.into())?.filter(|_| windowed),
        // Only Qwen2 and Qwen3 have the switch, and with it a number of layers that go without the window.
        first_window_layer: if keys.flag("use_sliding_window") {
            keys.config.get("max_window_layers").and_then(Value::as_u64).unwrap_or(0) as usize
        } else {
            0
        },
        tie_word_embeddings: keys.flag("tie_word_embeddings"),
    };
    config.checked(&keys.file)
}

/// GGUF metadata under the prefix that `general.architecture` names.
pub(crate) struct GgufKeys<'a> {
    pub(crate) file: String,
    pub(crate) metadata: &'a Metadata,
}

impl GgufKeys<'_> {
    pub(crate) fn wrong(&self, what: String) -> EngineError {
        EngineError::Config { file: self.file.clone(), what }
    }

    fn dimension(&self, key: &str, max: u64) -> Result<usize, EngineError> {
        self.optional_dimension(key, max)?.ok_or_else(|| self.wrong(format!("{key} is missing")))
    }

    pub(crate) fn optional_dimension(&self, key: &str, max: u64) -> Result<Option<usize>, EngineError> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(n) if (1..=max).contains(&n) => Ok(Some(n as usize)),
            _ => Err(self.wrong(format!("{key} must be a whole number from 1 to {max}"))),
        }
    }
}

fn from_gguf(keys: &GgufKeys, checkpoint: &Checkpoint) -> Result<Config, EngineError> {
    let model_type = keys.metadata.get("general.architecture").and_then(|v| v.as_str()).unwrap_or_default();
    let architecture = architecture(&keys.file, model_type)?;
    let key = |name: &str| format!("{model_type}.{name}");
    let hidden_size = keys.dimension(&key("embedding_length"), MAX_DIMENSION)?;
    let heads = keys.dimension(&key("attention.head_count"), MAX_DIMENSION)?;
    let head_dim = match keys.optional_dimension(&key("attention.key_length"), MAX_DIMENSION)? {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
        None => {
            return Err(keys.wrong(format!("embedding_length {hidden_size} is no multiple of {heads} heads")));
        }
    };
    let config = Config {
        model_type: model_type.into(),
        architecture,
        hidden_size,
        intermediate_size: keys.dimension(&key("feed_forward_length"), MAX_DIMENSION)?,
        num_hidden_layers: keys.dimension(&key("block_count"), MAX_LAYERS)?,
        num_attention_heads: heads,
        num_key_value_heads: keys
            .optional_dimension(&key("attention.head_count_kv"), MAX_DIMENSION)?
            .unwrap_or(heads),
        head_dim,
        // The embedding's rows are the truth; the key `vocab_size` is missing from many files.
        vocab_size: checkpoint.tensor("token_embd.weight")?.rows_count(),
        max_position_embeddings: keys.dimension(&key("context_length"), u32::MAX.into())?,
        rms_norm_eps: keys
            .metadata
            .get(&key("attention.layer_norm_rms_epsilon"))
            .and_then(|v| v.as_f64())
            .unwrap_or(1e-5) as f32,
        rope: Rope::from_gguf(keys, model_type, head_dim, checkpoint)?,
        sliding_window: keys.optional_dimension(&key("attention.sliding_window"), u32::MAX.into())?,
        first_window_layer: 0,
        tie_word_embeddings: !checkpoint.contains("output.weight"),
    };
    config.checked(&keys.file)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// The shape of SmolLM2-135M: nine query heads on three key/value heads.
    pub(crate) fn smollm2_like() -> Config {
        parse(json!({
            "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
            "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
            "tie_word_embeddings": true
        }))
        .unwrap()
    }

    fn parse(config: Value) -> Result<Config, EngineError> {
        from_json(&JsonKeys { file: "config.json".into(), config: &config })
    }

    #[test]
    fn defaults_of_missing_keys() {
        let config = smollm2_like();
        assert_eq!((config.head_dim, config.group_size(), config.window(0)), (64, 3, None));
        assert_eq!(config.rope.inv_freq.len(), 32);
        assert_eq!(config.rope.inv_freq[0], 1.0);
        assert_eq!(config.kv_bytes_per_token(), 30 * 2 * 192 * 4);
    }

    #[test]
    fn the_wrong_key_is_named() {
        let base = json!({
            "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 128
        });
        assert!(parse(base.clone()).is_ok());
        let cases = [
            ("model_type", json!("gpt2"), "\"gpt2\" is not supported"),
            ("hidden_size", json!(0), "hidden_size is 0"),
            ("hidden_size", json!("64"), "hidden_size is \"64\""),
            ("hidden_size", Value::Null, "hidden_size is missing"),
            ("num_hidden_layers", json!(1e9), "num_hidden_layers"),
            ("num_key_value_heads", json!(3), "no multiple of 3"),
            ("vocab_size", json!(-5), "vocab_size is -5"),
            ("hidden_act", json!("gelu"), "only \"silu\""),
            ("rope_theta", json!(-1.0), "rope base is -1"),
            ("rope_scaling", json!({"rope_type": "longrope"}), "\"longrope\" is not supported"),
            ("rope_scaling", json!({"rope_type": "linear", "factor": 0.0}), "positive factor"),
        ];
        for (key, value, part) in cases {
            let mut config = base.clone();
            config[key] = value;
            let error = parse(config).unwrap_err().to_string();
            assert!(error.contains(part), "{key}: {error}");
        }
    }
}
