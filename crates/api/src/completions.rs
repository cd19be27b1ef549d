//! `POST /v1/completions`: the body in, bodies out.

use crate::{
    ApiError,
    fields::Fields,
    generation::{Piece, TokenLogProbs},
    params::Params,
    response::{Head, finish_reason, usage},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Most alternatives per token in this older form of the API.
const MAX_LOGPROBS: usize = 5;
/// Tokens in an answer when the request doesn't say; the API's own default.
const DEFAULT_MAX_TOKENS: usize = 16;

/// What is continued.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    /// A text.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

/// A checked request.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// What is continued.
    pub prompt: Prompt,
    /// What is common to all completions.
    pub params: Params,
}

/// Parses and checks a body.
///
/// # Errors
/// 400 naming the field that is missing, wrong or not supported.
pub fn parse(body: &[u8]) -> Result<CompletionRequest, ApiError> {
    let mut fields = Fields::parse(body)?;
    let mut params = Params::take(&mut fields)?;
    let max_tokens = fields.take("max_tokens")?.unwrap_or(DEFAULT_MAX_TOKENS);
    if max_tokens == 0 {
        return Err(ApiError::field("max_tokens", "must be at least 1"));
    }
    params.max_tokens = Some(max_tokens);
    params.logprobs = fields.take("logprobs")?;
    if params.logprobs.is_some_and(|top| top > MAX_LOGPROBS) {
        return Err(ApiError::field("logprobs", format!("must be at most {MAX_LOGPROBS}")));
    }
    let prompt: Value = fields.require("prompt")?;
    let prompt = serde_json::from_value(prompt)
        .map_err(|_| ApiError::field("prompt", "must be one text or one array of token ids"))?;
    fields.only("echo", &json!(false))?;
    fields.only("best_of", &json!(1))?;
    fields.only("suffix", &json!(""))?;
    fields.finish()?;
    Ok(CompletionRequest { prompt, params })
}

/// A chunk for one piece of the answer; `offset` is where its text begins.
pub(crate) fn chunk(head: &Head, piece: &Piece, offset: usize) -> Value {
    let mut choice = json!({"index": 0, "text": piece.text, "finish_reason": finish_reason(piece.finish)});
    if !piece.logprobs.is_empty() {
        choice["logprobs"] = logprobs_body(&piece.logprobs, offset);
    }
    head.chunk("text_completion", choice)
}

/// The whole answer.
pub(crate) fn response(head: &Head, answer: &Piece, wants_logprobs: bool, tokens: (usize, usize)) -> Value {
    let mut body = chunk(head, answer, 0);
    if wants_logprobs {
        body["choices"][0]["logprobs"] = logprobs_body(&answer.logprobs, 0);
    }
    body["usage"] = usage(tokens);
    body
}

fn logprobs_body(tokens: &[TokenLogProbs], offset: usize) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut offset = offset;
    let offsets = tokens.iter().map(|token| {
        let at = offset;
        offset += text(&token.text).chars().count();
        at
    });
    let offsets: Vec<usize> = offsets.collect();
    let top = |token: &TokenLogProbs| {
        token.top.iter().map(|(bytes, logprob)| (text(bytes), json!(logprob))).collect::<Map<String, Value>>()
    };
    json!({
        "tokens": tokens.iter().map(|token| text(&token.text)).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| token.logprob).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
