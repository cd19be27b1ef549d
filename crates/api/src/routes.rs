//! Which handler answers which path.

use crate::{
    ApiError, Served, chat, completions,
    completions::Prompt,
    generation::{Generation, Piece},
    response::Head,
};
use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Path, State},
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures_util::stream;
use pomar_runtime::State as InstanceState;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Largest body.
const MAX_BODY_BYTES: usize = 8 << 20;
/// A body must have arrived within this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of text per token of context that are tokenised at all; no tokenizer averages as many.
const MAX_BYTES_PER_TOKEN: usize = 32;
/// How often a silent stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The API of one model.
pub fn router(served: Served) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(text_completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/health", get(health))
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "there is no such path; see GET /v1/models"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method")
        })
        .with_state(served)
}

async fn health(State(served): State<Served>) -> Response {
    let (status, state) = match served.instance.state() {
        InstanceState::Ready => (StatusCode::OK, "ready".to_owned()),
        InstanceState::Loading => (StatusCode::SERVICE_UNAVAILABLE, "loading".to_owned()),
        InstanceState::Failed(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("failed: {reason}")),
    };
    (status, Json(json!({"status": state, "model": served.name}))).into_response()
}

fn model_body(served: &Served) -> Value {
    json!({"id": served.name, "object": "model", "created": 0, "owned_by": "pomar", "context_length": served.context})
}

async fn models(State(served): State<Served>) -> Json<Value> {
    Json(json!({"object": "list", "data": [model_body(&served)]}))
}

async fn model(State(served): State<Served>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    check_model(&served, &id)?;
    Ok(Json(model_body(&served)))
}

fn check_model(served: &Served, asked: &str) -> Result<(), ApiError> {
    if asked == served.name {
        return Ok(());
    }
    let asked: String = asked.chars().take(100).collect();
    let message = format!("the model {asked:?} is not served here; {:?} is", served.name);
    let error = ApiError::new(StatusCode::NOT_FOUND, message);
    Err(ApiError { param: Some("model".into()), code: Some("model_not_found"), ..error })
}

async fn read(body: Body) -> Result<Vec<u8>, ApiError> {
    let too_slow = || ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 30 s");
    let too_large = || {
        let message = format!("the body is larger than {MAX_BODY_BYTES} bytes, or was cut short");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await;
    Ok(read.map_err(|_| too_slow())?.map_err(|_| too_large())?.to_vec())
}

/// Runs work that takes a processor's time off the threads that serve connections.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |_| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "reading the request failed; see the server's log")
    };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

fn encode(served: &Served, text: &str, add_special: bool) -> Result<Vec<u32>, ApiError> {
    let limit = served.context.saturating_mul(MAX_BYTES_PER_TOKEN);
    if text.len() > limit {
        let (bytes, context) = (text.len(), served.context);
        return Err(ApiError::invalid(format!(
            "the prompt's {bytes} bytes can't fit a context of {context} tokens"
        )));
    }
    let ids = served.text.tokenizer().encode(text, add_special);
    ids.map_err(|error| ApiError::invalid(error.to_string()))
}

async fn chat_completions(State(served): State<Served>, body: Body) -> Result<Response, ApiError> {
    let request = chat::parse(&read(body).await?)?;
    check_model(&served, &request.params.model)?;
    let (to_encode, params) = (served.clone(), request.params.clone());
    let prompt = off_thread(move || encode(&to_encode, &request.prompt(&to_encode.text)?, false)).await?;
    let head = Head::new("chatcmpl", &served.name, next_number());
    let mut generation = Generation::start(served, prompt, &params, true)?;
    if !params.stream {
        let answer = generation.collect().await?;
        return Ok(Json(chat::response(&head, &answer, params.logprobs.is_some(), generation.tokens()))
            .into_response());
    }
    let opening = chat::opening_chunk(&head);
    let to_chunk = move |head: &Head, piece: &Piece| chat::chunk(head, piece);
    Ok(event_stream(generation, head, "chat.completion.chunk", params.include_usage, Some(opening), to_chunk)
        .await)
}

async fn text_completions(State(served): State<Served>, body: Body) -> Result<Response, ApiError> {
    let request = completions::parse(&read(body).await?)?;
    check_model(&served, &request.params.model)?;
    let (to_encode, params) = (served.clone(), request.params.clone());
    let prompt = off_thread(move || match request.prompt {
        Prompt::Text(text) => encode(&to_encode, &text, true),
        Prompt::Ids(ids) => Ok(ids),
    });
    let prompt = prompt.await?;
    let head = Head::new("cmpl", &served.name, next_number());
    let mut generation = Generation::start(served, prompt, &params, false)?;
    if !params.stream {
        let answer = generation.collect().await?;
        let body = completions::response(&head, &answer, params.logprobs.is_some(), generation.tokens());
        return Ok(Json(body).into_response());
    }
    let mut offset = 0;
    let to_chunk = move |head: &Head, piece: &Piece| {
        let chunk = completions::chunk(head, piece, offset);
        offset += piece.text.chars().count();
        chunk
    };
    Ok(event_stream(generation, head, "text_completion", params.include_usage, None, to_chunk).await)
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The answer as server-sent events. An error before the first piece is an ordinary response; a later one is an event,
/// and the stream ends without `[DONE]`.
async fn event_stream(
    mut generation: Generation,
    head: Head,
    object: &'static str,
    include_usage: bool,
    opening: Option<Value>,
    mut to_chunk: impl FnMut(&Head, &Piece) -> Value + Send + 'static,
) -> Response {
    let first = match generation.next().await {
        Some(Err(error)) => return error.into_response(),
        Some(Ok(piece)) => to_chunk(&head, &piece),
        None => Value::Null,
    };
    let before = stream::iter(opening.into_iter().chain([first]).map(|chunk| Ok(data(&chunk))));
    let rest = stream::unfold(Some((generation, head, to_chunk)), move |state| async move {
        let (mut generation, head, mut to_chunk) = state?;
        match generation.next().await {
            Some(Ok(piece)) => {
                let chunk = data(&to_chunk(&head, &piece));
                Some((vec![Ok(chunk)], Some((generation, head, to_chunk))))
            }
            Some(Err(error)) => Some((vec![Ok(data(&error.body()))], None)),
            None => {
                let usage = include_usage.then(|| data(&head.usage_chunk(object, generation.tokens())));
                Some((usage.into_iter().chain([Event::default().data("[DONE]")]).map(Ok).collect(), None))
            }
        }
    });
    use futures_util::StreamExt;
    let events = before.chain(rest.flat_map(|events: Vec<Result<Event, Infallible>>| stream::iter(events)));
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn data(body: &Value) -> Event {
    Event::default().data(body.to_string())
}
