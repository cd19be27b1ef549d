//! Loads the vocabulary inside a GGUF file.

use tokenizers::models::bpe::{BPE, Vocab};

use super::bpe::Bpe;
use super::pieces::{MAX_IDS, PieceKind, Pieces, Spelling, byte_token, check_limit};
use super::pre::{self, Family};
use super::spm::{AddedToken, Spm, SpmParts};
use super::{Engine, Surround, Tokenizer, TokenizerError};

/// The `tokenizer.*` metadata of a GGUF file, as it stands there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE with merges) or `llama` (SentencePiece).
    pub model: String,
    /// `tokenizer.ggml.pre`: name of the pre-tokenizer of a `gpt2` model.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`, in the order of ids.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: higher is joined first; `llama` models only.
    pub scores: Option<Vec<f32>>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Vec<i32>>,
    /// `tokenizer.ggml.merges`: two tokens with a space between, best first; `gpt2` models only.
    pub merges: Option<Vec<String>>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: ends a turn where that is not the end of text.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
    /// `tokenizer.chat_template.NAME` for each `NAME`, e.g. `tool_use`.
    pub named_templates: Vec<(String, String)>,
}

/// Values of `tokenizer.ggml.token_type`.
mod token_type {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const BYTE: i32 = 6;
}

pub(super) fn load(vocab: &GgufVocab) -> Result<Tokenizer, TokenizerError> {
    check_sizes(vocab)?;
    let loaded = match vocab.model.as_str() {
        "gpt2" => load_bpe(vocab)?,
        "llama" => load_spm(vocab)?,
        other => {
            return Err(TokenizerError::Unsupported {
                what: format!("a vocabulary of type {other:?} (tokenizer.ggml.model)"),
                supported: "gpt2, llama".to_owned(),
            });
        }
    };
    Ok(loaded.with_ends(vocab.bos, vocab.eos))
}

fn check_sizes(vocab: &GgufVocab) -> Result<(), TokenizerError> {
    let count = vocab.tokens.len();
    check_limit("the number of tokens", count, MAX_IDS)?;
    check_limit("the number of merges", vocab.merges.as_ref().map_or(0, Vec::len), 4 * MAX_IDS)?;
    let lengths = [
        ("scores", vocab.scores.as_ref().map(Vec::len)),
        ("token_type", vocab.token_types.as_ref().map(Vec::len)),
    ];
    for (name, length) in lengths {
        if let Some(length) = length.filter(|&length| length != count) {
            let message = format!("tokenizer.ggml.{name} has {length} entries for {count} tokens");
            return Err(TokenizerError::Damaged(message));
        }
    }
    for (name, id) in [("bos", vocab.bos), ("eos", vocab.eos), ("eot", vocab.eot), ("unknown", vocab.unknown)]
    {
        if let Some(id) = id.filter(|&id| id as usize >= count) {
            let message =
                format!("tokenizer.ggml.{name}_token_id is {id}, but there are only {count} tokens");
            return Err(TokenizerError::Damaged(message));
        }
    }
    Ok(())
}

impl GgufVocab {
    /// `(id, token, type)` of every token.
    fn entries(&self) -> impl Iterator<Item = (u32, &str, i32)> {
        let kind = |id| self.token_types.as_ref().map_or(token_type::NORMAL, |types| types[id]);
        self.tokens.iter().enumerate().map(move |(id, token)| (id as u32, token.as_str(), kind(id)))
    }

    fn surround(&self, add_bos_by_default: bool) -> Surround {
        let wanted = |flag: Option<bool>, default, id: Option<u32>| id.filter(|_| flag.unwrap_or(default));
        Surround {
            prefix: wanted(self.add_bos, add_bos_by_default, self.bos).into_iter().collect(),
            suffix: wanted(self.add_eos, false, self.eos).into_iter().collect(),
        }
    }

    fn pieces(&self, spelling: Spelling) -> Result<Pieces, TokenizerError> {
        let kind = |kind| match kind {
            token_type::CONTROL | token_type::UNKNOWN => PieceKind::Special,
            token_type::USER_DEFINED => PieceKind::Added,
            _ => PieceKind::Text,
        };
        Pieces::build(spelling, self.entries().map(|(_, token, t)| (kind(t), token)))
    }
}

fn load_bpe(vocab: &GgufVocab) -> Result<Tokenizer, TokenizerError> {
    let family = pre::family(vocab.pre.as_deref())?;
    let damaged = |e: tokenizers::Error| TokenizerError::Damaged(e.to_string());
    let model = BPE::builder()
        .vocab_and_merges(
            vocab.entries().map(|(id, token, _)| (token.to_owned(), id)).collect::<Vocab>(),
            merges(vocab)?,
        )
        .ignore_merges(family.ignore_merges)
        .build()
        .map_err(damaged)?;
    let mut inner = tokenizers::Tokenizer::new(model);
    inner.with_normalizer(family.normalizer());
    inner.with_pre_tokenizer(Some(family.pre_tokenizer().map_err(damaged)?));
    inner.add_tokens(&added_tokens(vocab));
    let pieces = vocab.pieces(Spelling::ByteLevel)?;
    Ok(Tokenizer::assemble(Engine::Bpe(Box::new(Bpe::new(inner))), pieces, surround_bpe(vocab, family)))
}

fn surround_bpe(vocab: &GgufVocab, family: &Family) -> Surround {
    vocab.surround(family.add_bos)
}

fn merges(vocab: &GgufVocab) -> Result<Vec<(String, String)>, TokenizerError> {
    let damaged = |message: String| TokenizerError::Damaged(message);
    let merges = vocab.merges.as_ref();
    let merges =
        merges.ok_or_else(|| damaged("a gpt2 vocabulary without tokenizer.ggml.merges".to_owned()))?;
    // A token never holds a space (it is spelled Ġ), so the first one parts the two.
    let parted = |merge: &String| merge.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
    merges
        .iter()
        .map(|m| parted(m).ok_or_else(|| damaged(format!("the merge {m:?} is not two tokens"))))
        .collect()
}

fn added_tokens(vocab: &GgufVocab) -> Vec<tokenizers::AddedToken> {
    let added = |(_, token, kind): (u32, &str, i32)| match kind {
        token_type::CONTROL => Some(tokenizers::AddedToken::from(token, true).normalized(false)),
        token_type::USER_DEFINED => Some(tokenizers::AddedToken::from(token, false).normalized(false)),
        _ => None,
    };
    vocab.entries().filter_map(added).collect()
}

fn load_spm(vocab: &GgufVocab) -> Result<Tokenizer, TokenizerError> {
    let damaged = |message: &str| TokenizerError::Damaged(message.to_owned());
    let scores = vocab.scores.as_ref();
    let scores = scores.ok_or_else(|| damaged("a llama vocabulary without tokenizer.ggml.scores"))?;
    let add_space_prefix = vocab.add_space_prefix.unwrap_or(true);
    let mut parts = SpmParts {
        mergeable: Vec::new(),
        bytes: Box::new([None; 256]),
        added: Vec::new(),
        unknown: vocab.unknown,
        add_space_prefix,
    };
    for ((id, token, kind), &score) in vocab.entries().zip(scores) {
        let text = token.to_owned();
        match kind {
            // Merging must never make a control token out of plain text, so only these take part.
            token_type::NORMAL => parts.mergeable.push((text, id, score)),
            token_type::BYTE => {
                let byte = byte_token(token).ok_or_else(|| damaged("a byte token is not written <0xXX>"))?;
                parts.bytes[usize::from(byte)] = Some(id);
            }
            token_type::CONTROL => parts.added.push(AddedToken { text, id, special: true }),
            token_type::USER_DEFINED => parts.added.push(AddedToken { text, id, special: false }),
            _ => {}
        }
    }
    let pieces = vocab.pieces(Spelling::SentencePiece { strip_leading_space: add_space_prefix })?;
    Ok(Tokenizer::assemble(Engine::Spm(Box::new(Spm::new(parts)?)), pieces, vocab.surround(true)))
}
