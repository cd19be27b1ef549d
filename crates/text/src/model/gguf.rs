//! A model's text data from the metadata of a GGUF file.

use std::sync::Arc;

use pomar_weights::{Metadata, WeightsError};

use super::{DEFAULT_TEMPLATE, ModelText, ModelTextError, NamedTemplate, ends};
use crate::tokenizer::{GgufVocab, Tokenizer};

const TEMPLATE_KEY: &str = "tokenizer.chat_template";

pub(super) fn open(metadata: &Metadata) -> Result<ModelText, ModelTextError> {
    let vocab = GgufVocab::from_metadata(metadata)?;
    let tokenizer = Tokenizer::from_gguf(&vocab)
        .map_err(|source| ModelTextError::Tokenizer { path: metadata.file().to_owned(), source })?;
    let text = |id: Option<u32>| id.and_then(|id| vocab.tokens.get(id as usize)).cloned();
    let default = vocab.chat_template.iter().map(|source| NamedTemplate::new(DEFAULT_TEMPLATE, source));
    let named = vocab.named_templates.iter().map(|(name, source)| NamedTemplate::new(name, source));
    Ok(ModelText {
        templates: default.chain(named).collect(),
        bos_text: text(vocab.bos),
        eos_text: text(vocab.eos),
        end_tokens: ends::end_tokens(&tokenizer, vocab.eot),
        tokenizer: Arc::new(tokenizer),
    })
}

impl GgufVocab {
    /// Takes the vocabulary out of a GGUF file's metadata.
    ///
    /// # Errors
    ///
    /// When `tokenizer.ggml.model` or `tokenizer.ggml.tokens` is missing, or a key has the wrong
    /// type.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, WeightsError> {
        let ggml = |name: &str| format!("tokenizer.ggml.{name}");
        let text = |key: &str| Ok::<_, WeightsError>(metadata.str(key)?.map(str::to_owned));
        let flag = |name: &str| metadata.bool(&ggml(name));
        let id = |name: &str| {
            Ok::<_, WeightsError>(metadata.u64(&ggml(name))?.map(|id| id.try_into().unwrap_or(u32::MAX)))
        };
        let list = |name: &str| {
            let strings = metadata.strings(&ggml(name))?;
            Ok::<_, WeightsError>(strings.map(|list| list.iter().map(str::to_owned).collect::<Vec<_>>()))
        };
        let required = |name: &str| metadata.missing(&ggml(name));
        let types = metadata.integers(&ggml("token_type"))?;
        let scores = metadata.floats(&ggml("scores"))?;
        Ok(GgufVocab {
            model: text(&ggml("model"))?.ok_or_else(|| required("model"))?,
            pre: text(&ggml("pre"))?,
            tokens: list("tokens")?.ok_or_else(|| required("tokens"))?,
            scores: scores.map(|scores| scores.into_iter().map(|score| score as f32).collect()),
            token_types: types
                .map(|types| types.into_iter().map(|kind| kind.try_into().unwrap_or(0)).collect()),
            merges: list("merges")?,
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            eot: id("eot_token_id")?,
            unknown: id("unknown_token_id")?,
            add_bos: flag("add_bos_token")?,
            add_eos: flag("add_eos_token")?,
            add_space_prefix: flag("add_space_prefix")?,
            chat_template: text(TEMPLATE_KEY)?,
            named_templates: named_templates(metadata),
        })
    }
}

fn named_templates(metadata: &Metadata) -> Vec<(String, String)> {
    let named = metadata.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(TEMPLATE_KEY)?.strip_prefix('.')?;
        Some((name.to_owned(), value.as_str()?.to_owned()))
    });
    named.collect()
}
