//! The parts of a body that all answers have.

use pomar_runtime::FinishReason;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// What identifies one answer.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    /// A new answer of `model`; the id begins with `prefix`.
    pub(crate) fn new(prefix: &str, model: &str, number: u64) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { id: format!("{prefix}-{number:016x}"), created, model: model.into() }
    }

    /// A body of kind `object` with one choice.
    pub(crate) fn chunk(&self, object: &str, choice: Value) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": [choice]})
    }

    /// The last chunk of a stream whose client asked for it.
    pub(crate) fn usage_chunk(&self, object: &str, tokens: (usize, usize)) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": [],
            "usage": usage(tokens),
        })
    }
}

/// Counts of the prompt's and the answer's tokens.
pub(crate) fn usage((prompt, completion): (usize, usize)) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

/// The API's word, or null while the answer goes on.
pub(crate) fn finish_reason(finish: Option<FinishReason>) -> Value {
    match finish {
        Some(FinishReason::Stop) => "stop".into(),
        Some(FinishReason::Length) => "length".into(),
        None => Value::Null,
    }
}
