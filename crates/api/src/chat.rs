//! `POST /v1/chat/completions`: the body in, bodies out.

use crate::{
    ApiError,
    fields::Fields,
    generation::{Piece, TokenLogProbs},
    params::Params,
    response::{Head, finish_reason, usage},
};
use pomar_engine::sampler::MAX_TOP_LOGPROBS;
use pomar_text::{ModelText, Nulls, Render};
use serde_json::{Map, Value, json};

/// Most messages in a conversation.
const MAX_MESSAGES: usize = 4096;

/// A checked request.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The conversation, as chat templates take it.
    pub messages: Vec<Value>,
    /// Tools the template tells the model of. The answer stays text: calls in it are not parsed.
    pub tools: Option<Vec<Value>>,
    /// Further variables of the template.
    pub template_kwargs: Option<Map<String, Value>>,
    /// What is common to all completions.
    pub params: Params,
}

/// Parses and checks a body.
///
/// # Errors
/// 400 naming the field that is missing, wrong or not supported.
pub fn parse(body: &[u8]) -> Result<ChatRequest, ApiError> {
    let mut fields = Fields::parse(body)?;
    let mut params = Params::take(&mut fields)?;
    let (old, new) = (fields.take("max_tokens")?, fields.take("max_completion_tokens")?);
    params.max_tokens = positive("max_tokens", old)?;
    if let Some(tokens) = positive("max_completion_tokens", new)? {
        params.max_tokens = Some(tokens);
    }
    params.logprobs = logprobs(&mut fields)?;
    let messages: Vec<Value> = fields.require("messages")?;
    if messages.is_empty() || messages.len() > MAX_MESSAGES {
        return Err(ApiError::field("messages", format!("must hold 1 to {MAX_MESSAGES} messages")));
    }
    let messages =
        messages.into_iter().enumerate().map(|(index, m)| message(index, m)).collect::<Result<_, _>>()?;
    let tools: Option<Vec<Value>> = fields.take("tools")?.filter(|tools: &Vec<Value>| !tools.is_empty());
    let tools = tool_choice(&mut fields, tools)?;
    fields.only("response_format", &json!({"type": "text"}))?;
    fields.only("modalities", &json!(["text"]))?;
    fields.only("parallel_tool_calls", &json!(true))?;
    let template_kwargs = fields.take("chat_template_kwargs")?;
    fields.finish()?;
    Ok(ChatRequest { messages, tools, template_kwargs, params })
}

impl ChatRequest {
    /// The prompt text by the model's own template.
    pub(crate) fn prompt(&self, text: &ModelText) -> Result<String, ApiError> {
        let mut render = Render::new(&self.messages);
        render.tools = self.tools.as_deref();
        render.kwargs = self.template_kwargs.as_ref();
        // Templates fail on content that is missing, which OpenAI allows beside tool calls.
        render.nulls = Nulls::EmptyContent;
        text.render(&render).map_err(|error| ApiError::field("messages", error.to_string()))
    }
}

fn positive(name: &str, tokens: Option<usize>) -> Result<Option<usize>, ApiError> {
    if tokens == Some(0) { Err(ApiError::field(name, "must be at least 1")) } else { Ok(tokens) }
}

fn logprobs(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let wanted = fields.take("logprobs")?.unwrap_or(false);
    let top: Option<usize> = fields.take("top_logprobs")?;
    if top.is_some_and(|top| top > MAX_TOP_LOGPROBS) {
        return Err(ApiError::field("top_logprobs", format!("must be at most {MAX_TOP_LOGPROBS}")));
    }
    if top.is_some() && !wanted {
        return Err(ApiError::field("top_logprobs", "only with \"logprobs\": true"));
    }
    Ok(wanted.then(|| top.unwrap_or(0)))
}

/// `auto` leaves the choice to the model, `none` hides the tools from it; a call can't be forced.
fn tool_choice(fields: &mut Fields, tools: Option<Vec<Value>>) -> Result<Option<Vec<Value>>, ApiError> {
    match fields.take::<Value>("tool_choice")? {
        None => Ok(tools),
        Some(choice) if choice == "auto" => Ok(tools),
        Some(choice) if choice == "none" => Ok(None),
        Some(_) => Err(ApiError::field("tool_choice", "only \"auto\" and \"none\" are supported")),
    }
}

/// A message as templates take it: content as one text, tool-call arguments as objects.
fn message(index: usize, message: Value) -> Result<Value, ApiError> {
    let at = |part: &str| format!("messages[{index}]{part}");
    let Value::Object(mut message) = message else {
        return Err(ApiError::field(at(""), "must be an object"));
    };
    match message.get("role").and_then(Value::as_str) {
        Some("system" | "user" | "assistant" | "tool") => {}
        // OpenAI's newer name for the same thing; templates know the older one.
        Some("developer") => drop(message.insert("role".into(), "system".into())),
        _ => {
            return Err(ApiError::field(at(".role"), "must be system, developer, user, assistant or tool"));
        }
    }
    let content = match message.get("content") {
        Some(Value::String(_) | Value::Null) | None => None,
        Some(Value::Array(parts)) => {
            Some(joined(parts).map_err(|(part, what)| ApiError::field(at(&part), what))?)
        }
        Some(_) => {
            return Err(ApiError::field(at(".content"), "must be a text or an array of text parts"));
        }
    };
    if let Some(content) = content {
        message.insert("content".into(), content.into());
    }
    if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
        for (number, call) in calls.iter_mut().enumerate() {
            let Some(arguments) = call.pointer_mut("/function/arguments") else {
                continue;
            };
            let Some(text) = arguments.as_str() else { continue };
            *arguments = serde_json::from_str(text).map_err(|error| {
                ApiError::field(at(&format!(".tool_calls[{number}].function.arguments")), error.to_string())
            })?;
        }
    }
    Ok(Value::Object(message))
}

/// Text parts as one text.
fn joined(parts: &[Value]) -> Result<String, (String, String)> {
    let text = |(number, part): (usize, &Value)| {
        let kind = part.get("type").and_then(Value::as_str);
        let text = part.get("text").and_then(Value::as_str).filter(|_| kind == Some("text"));
        text.map(str::to_owned).ok_or_else(|| {
            (format!(".content[{number}]"), "only parts of type \"text\" are supported".into())
        })
    };
    parts.iter().enumerate().map(text).collect()
}

/// The first chunk of a stream: the role.
pub(crate) fn opening_chunk(head: &Head) -> Value {
    head.chunk(
        "chat.completion.chunk",
        json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}),
    )
}

/// A chunk for one piece of the answer.
pub(crate) fn chunk(head: &Head, piece: &Piece) -> Value {
    let mut delta = Map::new();
    if !piece.text.is_empty() {
        delta.insert("content".into(), piece.text.clone().into());
    }
    let mut choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason(piece.finish)});
    if !piece.logprobs.is_empty() {
        choice["logprobs"] = logprobs_body(&piece.logprobs);
    }
    head.chunk("chat.completion.chunk", choice)
}

/// The whole answer.
pub(crate) fn response(head: &Head, answer: &Piece, wants_logprobs: bool, tokens: (usize, usize)) -> Value {
    let mut choice = json!({
        "index": 0,
        "message": {"role": "assistant", "content": answer.text},
        "finish_reason": finish_reason(answer.finish),
    });
    if wants_logprobs {
        choice["logprobs"] = logprobs_body(&answer.logprobs);
    }
    let mut body = head.chunk("chat.completion", choice);
    body["usage"] = usage(tokens);
    body
}

fn logprobs_body(tokens: &[TokenLogProbs]) -> Value {
    let one = |text: &[u8], logprob: f32| json!({"token": String::from_utf8_lossy(text), "logprob": logprob, "bytes": text});
    let content = tokens.iter().map(|token| {
        let mut entry = one(&token.text, token.logprob);
        entry["top_logprobs"] = token.top.iter().map(|(text, logprob)| one(text, *logprob)).collect();
        entry
    });
    json!({"content": content.collect::<Vec<_>>()})
}
