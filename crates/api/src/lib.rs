//! The HTTP API: OpenAI's chat and text completions in front of one running model.
//!
//! | route | answers |
//! | --- | --- |
//! | `POST /v1/chat/completions` | a conversation's next message, whole or as a stream of events |
//! | `POST /v1/completions` | the continuation of a text or of token ids |
//! | `GET /v1/models`, `GET /v1/models/{id}` | the served model |
//! | `GET /health` | 200 when requests are served, 503 while the model loads or when it can't |
//!
//! A field that is accepted is honoured; any other is answered with 400 and its name ([`fields`]).
//!
//! # What it must never know
//!
//! How a model is split, what a rank is, where files come from. It sees text, token ids and an
//! [`Instance`].
//!
//! # How to read it
//!
//! [`chat`] and [`completions`] (bodies in, bodies out), `params` (the fields they share), `generation` (events of
//! the instance to pieces of text), `routes`, `server` (connections and their limits).

pub mod chat;
pub mod completions;
mod error;
pub mod fields;
mod generation;
mod params;
mod response;
mod routes;
mod server;

pub use error::ApiError;
pub use params::Params;
pub use routes::router;
pub use server::{check_loopback, serve};

use pomar_runtime::Instance;
use pomar_text::ModelText;
use std::sync::Arc;

/// The model that is served.
#[derive(Clone)]
pub struct Served {
    /// The name that requests call it by.
    pub name: String,
    /// Its tokenizer and chat template.
    pub text: Arc<ModelText>,
    /// Its ranks.
    pub instance: Arc<Instance>,
    /// Longest prompt and answer together, in tokens.
    pub context: usize,
}
