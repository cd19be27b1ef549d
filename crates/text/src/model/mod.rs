//! Everything about text that a model's files say: tokenizer, chat templates, end tokens.

mod ends;
mod error;
mod folder;
mod gguf;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use pomar_weights::{Checkpoint, Metadata};

pub use error::ModelTextError;

use crate::template::{ChatTemplate, Render, TemplateError};
use crate::tokenizer::Tokenizer;

/// Name of the template for conversations without tools, and of the only one most models have.
const DEFAULT_TEMPLATE: &str = "default";
/// Name of the template for conversations with tools, where a model has two.
const TOOL_TEMPLATE: &str = "tool_use";

/// The text side of one model.
#[derive(Debug)]
pub struct ModelText {
    tokenizer: Arc<Tokenizer>,
    templates: Vec<NamedTemplate>,
    bos_text: Option<String>,
    eos_text: Option<String>,
    end_tokens: BTreeSet<u32>,
}

/// A template under its name. One that does not compile is kept as its error, so that the model
/// still serves bare prompts.
#[derive(Debug)]
struct NamedTemplate {
    name: String,
    compiled: Result<ChatTemplate, TemplateError>,
}

impl NamedTemplate {
    fn new(name: &str, source: &str) -> Self {
        NamedTemplate { name: name.to_owned(), compiled: ChatTemplate::new(source) }
    }
}

impl ModelText {
    /// Reads a model folder (Hugging Face layout) or a `.gguf` file.
    ///
    /// # Errors
    ///
    /// When a file that is needed is missing, unreadable or damaged; the message names it.
    pub fn open(path: &Path) -> Result<Self, ModelTextError> {
        if path.is_dir() { folder::open(path) } else { Self::from_checkpoint(&Checkpoint::open(path)?) }
    }

    /// Reads the files beside a checkpoint's weights, or the metadata inside a GGUF file.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self, ModelTextError> {
        match checkpoint.metadata() {
            Some(metadata) => Self::from_metadata(metadata),
            None => folder::open(checkpoint.folder().unwrap_or(checkpoint.path())),
        }
    }

    /// Reads the metadata of a GGUF file.
    ///
    /// # Errors
    ///
    /// When keys are missing, of the wrong type, or describe no usable vocabulary.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, ModelTextError> {
        gguf::open(metadata)
    }

    /// The model's vocabulary.
    #[must_use]
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The chat template: with tools, the one named `tool_use` if there is one; else `default`.
    ///
    /// # Errors
    ///
    /// When the model has no template, or the one it has is not usable.
    pub fn template(&self, with_tools: bool) -> Result<&ChatTemplate, ModelTextError> {
        let named = |name: &str| self.templates.iter().find(|template| template.name == name);
        let chosen = named(TOOL_TEMPLATE).filter(|_| with_tools).or_else(|| named(DEFAULT_TEMPLATE));
        let chosen = chosen.or(self.templates.first()).ok_or(ModelTextError::NoTemplate)?;
        chosen.compiled.as_ref().map_err(|error| error.clone().into())
    }

    /// The prompt text for a conversation, by the template that suits it. The texts of the
    /// model's BOS and EOS tokens are filled in where the request leaves them out.
    ///
    /// Encode the result with `add_special = false`: templates write BOS themselves.
    ///
    /// # Errors
    ///
    /// As for [`template`](Self::template) and [`ChatTemplate::render`].
    pub fn render(&self, request: &Render<'_>) -> Result<String, ModelTextError> {
        let request = Render {
            bos_token: request.bos_token.or(self.bos_text.as_deref()),
            eos_token: request.eos_token.or(self.eos_text.as_deref()),
            ..*request
        };
        Ok(self.template(request.tools.is_some())?.render(&request)?)
    }

    /// Text of the token that begins a text, if the model has one.
    #[must_use]
    pub fn bos_text(&self) -> Option<&str> {
        self.bos_text.as_deref()
    }

    /// Text of the token that ends a text, if the model has one.
    #[must_use]
    pub fn eos_text(&self) -> Option<&str> {
        self.eos_text.as_deref()
    }

    /// The ids that end an answer.
    #[must_use]
    pub fn end_tokens(&self) -> &BTreeSet<u32> {
        &self.end_tokens
    }
}
