//! Text to ids and ids to text.
//!
//! Two engines stand behind [`Tokenizer`]:
//!
//! - merge-ranked BPE (`bpe`), run by the `tokenizers` library. It serves every
//!   `tokenizer.json` (`json`) and the `gpt2` vocabularies of GGUF files (`gguf`), which hold
//!   the same data under other names; only the pattern that cuts text into words is missing there
//!   and comes from a table (`pre`).
//! - score-ranked BPE (`spm`), own code, for the `llama` vocabularies of GGUF files. They have
//!   no merges, and rebuilding them from scores is not exact.
//!
//! Decoding needs neither: what each id stands for is a table of bytes (`pieces`).

mod bpe;
mod byte_level;
mod error;
mod gguf;
mod json;
pub(crate) mod pieces;
mod pre;
mod spm;

use std::fmt;
use std::sync::Arc;

pub use error::TokenizerError;
pub use gguf::GgufVocab;

use crate::stream::{StreamDecoder, StreamOptions};
use bpe::Bpe;
use pieces::{PieceKind, Pieces};
use spm::Spm;

/// A model's vocabulary: text to ids and back.
///
/// Cheap to share behind an `Arc`, and usable from many threads at once.
pub struct Tokenizer {
    engine: Engine,
    pieces: Arc<Pieces>,
    surround: Surround,
    bos: Option<u32>,
    eos: Option<u32>,
}

enum Engine {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
}

/// Ids that go around every text when special tokens are asked for.
#[derive(Clone, Debug, Default, PartialEq)]
struct Surround {
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// When the data is damaged, too large, or asks for a kind of model or stage that language
    /// models do not use (the message lists what is supported).
    pub fn from_json_bytes(json: &[u8]) -> Result<Self, TokenizerError> {
        json::load(json)
    }

    /// Builds the tokenizer that a GGUF file's metadata describes.
    ///
    /// # Errors
    ///
    /// When the metadata contradicts itself, or names a vocabulary type or pre-tokenizer that is
    /// not supported (the message lists those that are).
    pub fn from_gguf(vocab: &GgufVocab) -> Result<Self, TokenizerError> {
        gguf::load(vocab)
    }

    fn assemble(engine: Engine, pieces: Pieces, surround: Surround) -> Self {
        Tokenizer { engine, pieces: Arc::new(pieces), surround, bos: None, eos: None }
    }

    /// Names the ids that begin and end a text. `tokenizer.json` does not say which they are;
    /// the files beside it do, see [`ModelText`](crate::ModelText).
    #[must_use]
    pub fn with_ends(mut self, bos: Option<u32>, eos: Option<u32>) -> Self {
        (self.bos, self.eos) = (bos, eos);
        self
    }

    /// Encodes trusted text, such as a rendered chat template: the text of a control token
    /// becomes that token. `add_special` puts around it what the tokenizer itself adds (BOS for
    /// most); chat templates write that themselves, so it is for bare prompts.
    ///
    /// Time grows as `n log n` with the length of the text, and memory by about 100 bytes per byte
    /// of text. A pattern in a hostile `tokenizer.json` can make the time quadratic (exponential
    /// backtracking is cut off; the text from there on is then one word). How long a text may be
    /// is the caller's to bound.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::Encode`] when the tokenizer's own data proves unusable on this text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let ids = self.encode_inner(text, true)?;
        Ok(if add_special { self.surrounded(ids) } else { ids })
    }

    /// Encodes untrusted text: whatever it holds, no control token comes out. Tokens that were
    /// added to the vocabulary without being control tokens (`<table>`) are still found.
    ///
    /// # Errors
    ///
    /// As for [`encode`](Self::encode).
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_inner(text, false)
    }

    fn encode_inner(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        match &self.engine {
            Engine::Bpe(bpe) => bpe.encode(text, parse_special),
            Engine::Spm(spm) => Ok(spm.encode(text, parse_special)),
        }
    }

    fn surrounded(&self, ids: Vec<u32>) -> Vec<u32> {
        [self.surround.prefix.as_slice(), &ids, &self.surround.suffix].concat()
    }

    /// The text of `ids`. Bytes that do not form UTF-8 become U+FFFD; ids outside the vocabulary
    /// become nothing. `skip_special` leaves control tokens out.
    #[must_use]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        self.pieces.decode(ids, skip_special)
    }

    /// A decoder for ids that come one at a time.
    #[must_use]
    pub fn stream(&self, options: StreamOptions) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.pieces), options)
    }

    /// The bytes `id` stands for: possibly part of a character, and none for an id outside the
    /// vocabulary.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.pieces.bytes(id)
    }

    /// Whether `id` is a control token such as `<|im_end|>`.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.pieces.kind(id) == PieceKind::Special
    }

    /// One more than the highest id. The model's output may be padded to more rows than that.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Id that begins a text, if the model's files name one.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Id that ends a text, if the model's files name one.
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The id of a token as the vocabulary writes it, such as `<|im_end|>` or `Ġthe`.
    #[must_use]
    pub fn id_of(&self, token: &str) -> Option<u32> {
        match &self.engine {
            Engine::Bpe(bpe) => bpe.id_of(token),
            Engine::Spm(spm) => spm.id_of(token),
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = match self.engine {
            Engine::Bpe(_) => "bpe",
            Engine::Spm(_) => "spm",
        };
        f.debug_struct("Tokenizer")
            .field("engine", &engine)
            .field("vocab_size", &self.vocab_size())
            .field("surround", &self.surround)
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}
