//! Rotary position embedding: which frequencies a model turns its heads with.
//!
//! Su et al., *RoFormer* (2021); the scalings for longer contexts follow Hugging Face transformers'
//! `modeling_rope_utils` (linear, llama3) and Peng et al., *YaRN* (2023). Everything is computed in f64 with our own
//! `ln` and `exp`, so that all platforms get the same bits.

use crate::{
    EngineError,
    config::{GgufKeys, JsonKeys},
};
use pomar_kernels::{
    math::{ln_f64, pow_f64},
    rope::RopeStyle,
};
use pomar_weights::Checkpoint;
use serde_json::Value;
use std::f64::consts::PI;

/// The rotation of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position, one for each pair of elements: `rotary_dim / 2` values.
    pub inv_freq: Vec<f64>,
    /// Multiplies cos and sin (YaRN's temperature of the attention; 1 elsewhere).
    pub attention_factor: f32,
    /// Which elements of a head form a pair.
    pub style: RopeStyle,
}

impl Rope {
    /// From config.json: `rope_theta` and `rope_scaling`, or the newer `rope_parameters` that holds both.
    pub(crate) fn from_json(
        keys: &JsonKeys,
        head_dim: usize,
        max_positions: usize,
    ) -> Result<Self, EngineError> {
        let config = keys.config;
        let parameters = config.get("rope_parameters").filter(|v| v.is_object());
        let scaling = parameters.or_else(|| config.get("rope_scaling").filter(|v| v.is_object()));
        let theta = parameters.and_then(|p| p.get("rope_theta")).or_else(|| config.get("rope_theta"));
        let partial = config.get("partial_rotary_factor").and_then(Value::as_f64).unwrap_or(1.0);
        let rotary_dim = ((head_dim as f64 * partial) as usize).min(head_dim);
        let base = Base::new(theta.and_then(Value::as_f64).unwrap_or(10_000.0), rotary_dim)
            .map_err(|what| keys.wrong(what))?;
        let number = |name: &str| scaling.and_then(|s| s.get(name)).and_then(Value::as_f64);
        let kind = scaling
            .and_then(|s| s.get("rope_type").or_else(|| s.get("type")))
            .and_then(Value::as_str)
            .unwrap_or("default");
        let scaling = Scaling {
            factor: number("factor").unwrap_or(1.0),
            original_context: number("original_max_position_embeddings").unwrap_or(max_positions as f64),
            low_freq_factor: number("low_freq_factor").unwrap_or(1.0),
            high_freq_factor: number("high_freq_factor").unwrap_or(4.0),
            beta_fast: number("beta_fast").unwrap_or(32.0),
            beta_slow: number("beta_slow").unwrap_or(1.0),
            attention_factor: number("attention_factor"),
            mscale: number("mscale").zip(number("mscale_all_dim")),
        };
        base.scaled(kind, &scaling, RopeStyle::Half).map_err(|what| keys.wrong(what))
    }

    /// From GGUF metadata, and the tensor `rope_freqs.weight` where the converter stored llama3's divisors.
    ///
    /// Converters permute Llama's query and key rows for the interleaved pairing; the Qwen files keep halves.
    pub(crate) fn from_gguf(
        keys: &GgufKeys,
        architecture: &str,
        head_dim: usize,
        checkpoint: &Checkpoint,
    ) -> Result<Self, EngineError> {
        let key = |name: &str| format!("{architecture}.rope.{name}");
        let number = |name: &str| keys.metadata.get(&key(name)).and_then(|v| v.as_f64());
        let rotary_dim =
            keys.optional_dimension(&key("dimension_count"), head_dim as u64)?.unwrap_or(head_dim);
        let base = Base::new(number("freq_base").unwrap_or(10_000.0), rotary_dim)
            .map_err(|what| keys.wrong(what))?;
        let kind = keys.metadata.get(&key("scaling.type")).and_then(|v| v.as_str()).unwrap_or("none");
        let factor = number("scaling.factor").filter(|&f| f != 0.0).or(number("scale_linear"));
        let scaling = Scaling {
            factor: factor.unwrap_or(1.0),
            original_context: number("scaling.original_context_length")
                .or_else(|| {
                    keys.metadata.get(&format!("{architecture}.context_length")).and_then(|v| v.as_f64())
                })
                .unwrap_or(4096.0),
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            beta_fast: number("scaling.yarn_beta_fast").unwrap_or(32.0),
            beta_slow: number("scaling.yarn_beta_slow").unwrap_or(1.0),
            attention_factor: number("scaling.attn_factor"),
            mscale: None,
        };
        let style = if architecture == "llama" { RopeStyle::Interleaved } else { RopeStyle::Half };
        let mut rope = base.scaled(kind, &scaling, style).map_err(|what| keys.wrong(what))?;
        if checkpoint.contains("rope_freqs.weight") {
            let divisors = checkpoint.tensor("rope_freqs.weight")?.to_f32_vec()?;
            if divisors.len() != rope.inv_freq.len() || divisors.iter().any(|d| !(d.is_finite() && *d > 0.0))
            {
                return Err(keys
                    .wrong(format!("rope_freqs.weight must hold {} positive numbers", rope.inv_freq.len())));
            }
            rope.inv_freq.iter_mut().zip(divisors).for_each(|(freq, divisor)| *freq /= f64::from(divisor));
        }
        Ok(rope)
    }
}

/// The unscaled rotation.
struct Base {
    theta: f64,
    rotary_dim: usize,
    inv_freq: Vec<f64>,
}

/// Numbers of all the scaling kinds; each kind uses some.
struct Scaling {
    factor: f64,
    original_context: f64,
    low_freq_factor: f64,
    high_freq_factor: f64,
    beta_fast: f64,
    beta_slow: f64,
    attention_factor: Option<f64>,
    mscale: Option<(f64, f64)>,
}

impl Base {
    fn new(theta: f64, rotary_dim: usize) -> Result<Self, String> {
        if !(theta.is_finite() && theta > 1.0) {
            return Err(format!("the rope base is {theta}; it must be above 1"));
        }
        if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            return Err(format!("the rotary dimension is {rotary_dim}; it must be even and not 0"));
        }
        let inv_freq =
            (0..rotary_dim / 2).map(|i| pow_f64(theta, -2.0 * i as f64 / rotary_dim as f64)).collect();
        Ok(Self { theta, rotary_dim, inv_freq })
    }

    fn scaled(self, kind: &str, scaling: &Scaling, style: RopeStyle) -> Result<Rope, String> {
        if !(scaling.factor.is_finite() && scaling.factor > 0.0 && scaling.original_context > 0.0) {
            return Err("rope scaling needs a positive factor and original context".into());
        }
        let (inv_freq, attention_factor) = match kind {
            "default" | "none" => (self.inv_freq, 1.0),
            "linear" => (self.inv_freq.iter().map(|freq| freq / scaling.factor).collect(), 1.0),
            "llama3" => (self.llama3(scaling), 1.0),
            "yarn" => (self.yarn(scaling), scaling.yarn_attention_factor()),
            other => {
                return Err(format!(
                    "rope scaling {other:?} is not supported; supported are linear, llama3 and yarn"
                ));
            }
        };
        Ok(Rope { inv_freq, attention_factor: attention_factor as f32, style })
    }

    /// Long wavelengths are divided by the factor, short ones kept, those between blended.
    fn llama3(&self, s: &Scaling) -> Vec<f64> {
        let blend = |freq: &f64| {
            let turns = s.original_context * freq / (2.0 * PI);
            let keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
            let keep = if keep.is_nan() { 1.0 } else { keep.clamp(0.0, 1.0) };
            freq * keep + freq / s.factor * (1.0 - keep)
        };
        self.inv_freq.iter().map(blend).collect()
    }

    /// As llama3, but the blend runs linearly over the index of the pair (YaRN, section 3.2).
    fn yarn(&self, s: &Scaling) -> Vec<f64> {
        let dim = self.rotary_dim as f64;
        let index_of =
            |turns: f64| dim * ln_f64(s.original_context / (turns * 2.0 * PI)) / (2.0 * ln_f64(self.theta));
        let low = index_of(s.beta_fast).floor().max(0.0);
        let high = index_of(s.beta_slow).ceil().min(dim - 1.0);
        let width = if high > low { high - low } else { 0.001 };
        let blend = |(i, freq): (usize, &f64)| {
            let interpolate = ((i as f64 - low) / width).clamp(0.0, 1.0);
            freq / s.factor * interpolate + freq * (1.0 - interpolate)
        };
        self.inv_freq.iter().enumerate().map(blend).collect()
    }
}

impl Scaling {
    fn yarn_attention_factor(&self) -> f64 {
        let mscale = |weight: f64| {
            if self.factor <= 1.0 { 1.0 } else { 0.1 * weight * ln_f64(self.factor) + 1.0 }
        };
        self.attention_factor.unwrap_or_else(|| match self.mscale {
            Some((mscale_part, all_dim)) => mscale(mscale_part) / mscale(all_dim),
            None => mscale(1.0),
        })
    }
}
