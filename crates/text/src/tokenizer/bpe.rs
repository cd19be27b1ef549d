//! Merge-ranked BPE, done by the `tokenizers` library.
//!
//! The library is driven stage by stage (added tokens, normaliser, pre-tokenizer, model) rather
//! than through its `encode`, so that one loaded vocabulary serves both kinds of text: trusted,
//! in which control tokens are parsed, and untrusted, in which they are only characters.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::{AddedVocabulary, Model, OffsetType, PreTokenizer};

use super::TokenizerError;

/// The library's tokenizer, and its added tokens a second time with the control tokens inactive.
pub(super) struct Bpe {
    inner: tokenizers::Tokenizer,
    without_special: AddedVocabulary,
}

impl Bpe {
    pub(super) fn new(inner: tokenizers::Tokenizer) -> Self {
        let mut without_special = inner.get_added_vocabulary().clone();
        without_special.set_encode_special_tokens(true);
        Bpe { inner, without_special }
    }

    pub(super) fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        contain(|| tokenizers::Tokenizer::from_bytes(json)).map(Self::new).map_err(TokenizerError::Damaged)
    }

    pub(super) fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// All `(token, id)` pairs, added tokens included, in no order.
    pub(super) fn vocabulary(&self) -> Vec<(String, u32)> {
        self.inner.get_vocab(true).into_iter().collect()
    }

    pub(super) fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        contain(|| self.stages(text, parse_special)).map_err(TokenizerError::Encode)
    }

    fn stages(&self, text: &str, parse_special: bool) -> tokenizers::Result<Vec<u32>> {
        let added = if parse_special { self.inner.get_added_vocabulary() } else { &self.without_special };
        let mut pieces = added.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let model = self.inner.get_model();
        pieces.tokenize(|piece| model.tokenize(piece.get()))?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }
}

/// Runs library code on hostile data. What is known to make the library panic is refused before
/// it gets here; this is the net for what is not known, and keeps a server's thread alive.
fn contain<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the tokenizers library gave up on it".to_owned()),
    }
}
