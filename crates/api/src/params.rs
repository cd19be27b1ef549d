//! The fields that both kinds of completion share.

use crate::{ApiError, fields::Fields};
use pomar_engine::{Sampling, sampler::MAX_LOGIT_BIAS};
use pomar_text::StopStrings;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// How an answer is generated and sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The model asked for.
    pub model: String,
    /// Most tokens; `None`: what the context leaves.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Send the answer piece by piece.
    pub stream: bool,
    /// End a stream with a chunk that counts tokens.
    pub include_usage: bool,
    /// Send log-probabilities, with so many alternatives.
    pub logprobs: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl Params {
    /// Takes the shared fields; `max_tokens` and `logprobs` are spelt differently and taken by the caller.
    pub(crate) fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let default = Sampling { temperature: 1.0, seed: random_seed()?, ..Sampling::default() };
        let sampling = Sampling {
            temperature: fields.take("temperature")?.unwrap_or(default.temperature),
            top_k: fields.take("top_k")?.unwrap_or(default.top_k),
            top_p: fields.take("top_p")?.unwrap_or(default.top_p),
            min_p: fields.take("min_p")?.unwrap_or(default.min_p),
            repetition_penalty: fields.take("repetition_penalty")?.unwrap_or(default.repetition_penalty),
            presence_penalty: fields.take("presence_penalty")?.unwrap_or(default.presence_penalty),
            frequency_penalty: fields.take("frequency_penalty")?.unwrap_or(default.frequency_penalty),
            logit_bias: logit_bias(fields)?,
            seed: fields.take::<i64>("seed")?.map_or(default.seed, i64::cast_unsigned),
        };
        sampling.check().map_err(|error| ApiError::invalid(error.to_string()))?;
        let stop = match fields.take("stop")? {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop],
            Some(Stop::Many(stop)) => stop,
        };
        StopStrings::new(&stop).map_err(|error| ApiError::field("stop", error.to_string()))?;
        let stream = fields.take("stream")?.unwrap_or(false);
        let options: Option<StreamOptions> = fields.take("stream_options")?;
        if options.is_some() && !stream {
            return Err(ApiError::field("stream_options", "only with \"stream\": true"));
        }
        fields.only("n", &json!(1))?;
        fields.only("store", &json!(false))?;
        fields.only("service_tier", &json!("auto"))?;
        // Labels for the caller's own accounting.
        for label in ["user", "metadata", "safety_identifier", "prompt_cache_key"] {
            fields.skip(label);
        }
        Ok(Self {
            model: fields.require("model")?,
            max_tokens: None,
            sampling,
            stop,
            stream,
            include_usage: options.unwrap_or_default().include_usage,
            logprobs: None,
        })
    }
}

fn logit_bias(fields: &mut Fields) -> Result<Vec<(u32, f32)>, ApiError> {
    let bias: Map<String, Value> = fields.take("logit_bias")?.unwrap_or_default();
    if bias.len() > MAX_LOGIT_BIAS {
        return Err(ApiError::field("logit_bias", format!("at most {MAX_LOGIT_BIAS} entries")));
    }
    let entry = |(id, bias): (&String, &Value)| Some((id.parse().ok()?, bias.as_f64()? as f32));
    let entries: Option<Vec<(u32, f32)>> = bias.iter().map(entry).collect();
    entries.ok_or_else(|| ApiError::field("logit_bias", "must map token ids to numbers"))
}

fn random_seed() -> Result<u64, ApiError> {
    getrandom::u64().map_err(|error| {
        ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, format!("no random seed: {error}"))
    })
}
