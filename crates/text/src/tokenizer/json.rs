//! Loads `tokenizer.json`.
//!
//! The file describes a pipeline. Before the `tokenizers` library is let at it, everything but
//! the vocabulary and merges is read here, and only the kinds of stages that language models use
//! are let through. That keeps out stages that make the library panic, and yields what the
//! library does not tell: how the vocabulary spells bytes, and what surrounds every text.

use serde::Deserialize;
use serde_json::Value;

use super::bpe::Bpe;
use super::pieces::{MAX_IDS, PieceKind, Pieces, SPACE_MARK, Spelling, check_limit};
use super::{Engine, Surround, Tokenizer, TokenizerError};

/// Largest accepted file. Today's largest have about 33 MB.
const MAX_FILE_BYTES: usize = 1 << 28;
/// How deep and how many stages may be; published tokenizers have at most 2 and 8.
const MAX_STAGE_DEPTH: usize = 4;
const MAX_STAGES: usize = 64;
/// Longest pattern of a `Split` or `Replace` stage, in bytes. Published ones have under 600.
const MAX_PATTERN_BYTES: usize = 8192;

const NORMALIZERS: &[&str] =
    &["ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Strip", "StripAccents"];
const PRE_TOKENIZERS: &[&str] =
    &["ByteLevel", "Digits", "Metaspace", "Punctuation", "Split", "Whitespace", "WhitespaceSplit"];
const DECODERS: &[&str] = &["ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Strip"];
const POST_PROCESSORS: &[&str] = &["ByteLevel", "TemplateProcessing"];

/// Everything in the file but the vocabulary.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: ModelHead,
}

#[derive(Deserialize)]
struct AddedToken {
    content: String,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct ModelHead {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

pub(super) fn load(json: &[u8]) -> Result<Tokenizer, TokenizerError> {
    check_limit("the file's length", json.len(), MAX_FILE_BYTES)?;
    let head: Head = serde_json::from_slice(json).map_err(|e| TokenizerError::Damaged(e.to_string()))?;
    head.model.check()?;
    let normalizers = stages("normalizer", &head.normalizer, "normalizers", NORMALIZERS)?;
    let pre_tokenizers = stages("pre-tokenizer", &head.pre_tokenizer, "pretokenizers", PRE_TOKENIZERS)?;
    let decoders = stages("decoder", &head.decoder, "decoders", DECODERS)?;
    let processors = stages("post-processor", &head.post_processor, "processors", POST_PROCESSORS)?;
    for stage in normalizers.iter().chain(&pre_tokenizers).chain(&decoders) {
        check_pattern(stage)?;
    }
    let spelling = spelling(&decoders, &pre_tokenizers)?;

    let bpe = Bpe::from_json(json)?;
    let pieces = pieces(&bpe, &head.added_tokens, spelling)?;
    let surround = processors.iter().find(|stage| kind_of(stage) == Some("TemplateProcessing"));
    let surround = surround.map(|stage| surround_of(stage, pieces.len())).transpose()?.unwrap_or_default();
    Ok(Tokenizer::assemble(Engine::Bpe(Box::new(bpe)), pieces, surround))
}

impl ModelHead {
    fn check(&self) -> Result<(), TokenizerError> {
        // Files from before 2020 have no type; they are BPE when the library can read them so.
        if let Some(kind) = self.kind.as_deref().filter(|&kind| kind != "BPE") {
            return Err(unsupported(format!("a model of type {kind:?}"), "BPE"));
        }
        if self.dropout.is_some_and(|share| share != 0.0) {
            return Err(unsupported("BPE with dropout, which encodes at random".to_owned(), "no dropout"));
        }
        // The library cuts a subword prefix off without checking that it is there.
        for affix in [&self.continuing_subword_prefix, &self.end_of_word_suffix] {
            if affix.as_deref().is_some_and(|text| !text.is_empty()) {
                return Err(unsupported("BPE with a subword prefix or suffix".to_owned(), "none"));
            }
        }
        Ok(())
    }
}

fn unsupported(what: String, supported: &str) -> TokenizerError {
    TokenizerError::Unsupported { what, supported: supported.to_owned() }
}

fn kind_of(stage: &Value) -> Option<&str> {
    stage.get("type").and_then(Value::as_str)
}

/// Flattens nested `Sequence`s to the list of stages, each of an allowed kind.
fn stages<'a>(
    role: &str,
    root: &'a Value,
    children: &str,
    allowed: &[&str],
) -> Result<Vec<&'a Value>, TokenizerError> {
    let mut found = Vec::new();
    let mut open = vec![(root, 0)];
    while let Some((stage, depth)) = open.pop() {
        check_limit("the number of stages", found.len() + open.len(), MAX_STAGES)?;
        check_limit("the nesting of stages", depth, MAX_STAGE_DEPTH)?;
        match kind_of(stage) {
            None if stage.is_null() => {}
            Some("Sequence") => {
                let inner = stage.get(children).and_then(Value::as_array);
                let inner = inner.ok_or_else(|| damaged(format!("a {role} Sequence has no {children:?}")))?;
                open.extend(inner.iter().rev().map(|child| (child, depth + 1)));
            }
            Some(kind) if allowed.contains(&kind) => found.push(stage),
            Some(kind) => {
                return Err(unsupported(format!("a {role} of type {kind:?}"), &allowed.join(", ")));
            }
            None => return Err(damaged(format!("a {role} has no \"type\""))),
        }
    }
    Ok(found)
}

fn damaged(what: String) -> TokenizerError {
    TokenizerError::Damaged(what)
}

/// The pattern of a `Split` or `Replace` stage and whether it is a regular expression.
fn pattern_of(stage: &Value) -> Option<(&str, bool)> {
    let pattern = stage.get("pattern")?;
    let literal = pattern.get("String").and_then(Value::as_str).map(|text| (text, false));
    literal.or_else(|| pattern.get("Regex").and_then(Value::as_str).map(|text| (text, true)))
}

fn check_pattern(stage: &Value) -> Result<(), TokenizerError> {
    let length = pattern_of(stage).map_or(0, |(text, _)| text.len());
    check_limit("the length of a pattern", length, MAX_PATTERN_BYTES)
}

/// How tokens spell bytes, told by the decoder.
fn spelling(decoders: &[&Value], pre_tokenizers: &[&Value]) -> Result<Spelling, TokenizerError> {
    let has = |stages: &[&Value], kind| stages.iter().any(|stage| kind_of(stage) == Some(kind));
    if has(decoders, "ByteLevel") || (decoders.is_empty() && has(pre_tokenizers, "ByteLevel")) {
        return Ok(Spelling::ByteLevel);
    }
    let mut marks_spaces = false;
    let mut strip_leading_space = false;
    for stage in decoders {
        match kind_of(stage) {
            Some("Replace") => {
                check_replace(stage)?;
                marks_spaces = true;
            }
            Some("Metaspace") => {
                marks_spaces = true;
                strip_leading_space |= metaspace_prepends(stage);
            }
            Some("Strip") => strip_leading_space |= check_strip(stage)?,
            _ => {}
        }
    }
    if !marks_spaces {
        return Err(unsupported(
            "a decoder that is neither byte-level nor SentencePiece-like".to_owned(),
            "both",
        ));
    }
    Ok(Spelling::SentencePiece { strip_leading_space })
}

/// The only replacement a decoder makes is that of the space mark.
fn check_replace(stage: &Value) -> Result<(), TokenizerError> {
    let content = stage.get("content").and_then(Value::as_str);
    let mark = SPACE_MARK.to_string();
    match (pattern_of(stage), content) {
        (Some((pattern, _)), Some(" ")) if pattern == mark => Ok(()),
        _ => Err(unsupported(
            "a decoder that replaces other text than \"▁\" by a space".to_owned(),
            "that one",
        )),
    }
}

/// Whether a `Strip` decoder takes one leading space away (true) or does nothing (false).
fn check_strip(stage: &Value) -> Result<bool, TokenizerError> {
    let count = |key| stage.get(key).and_then(Value::as_u64).unwrap_or(0);
    match (stage.get("content").and_then(Value::as_str), count("start"), count("stop")) {
        (_, 0, 0) => Ok(false),
        (Some(" "), 1, 0) => Ok(true),
        _ => Err(unsupported("a decoder that strips more than one leading space".to_owned(), "one")),
    }
}

fn metaspace_prepends(stage: &Value) -> bool {
    let scheme = stage.get("prepend_scheme").and_then(Value::as_str);
    let legacy = stage.get("add_prefix_space").and_then(Value::as_bool);
    scheme.map_or(legacy.unwrap_or(true), |scheme| scheme != "never")
}

fn pieces(bpe: &Bpe, added: &[AddedToken], spelling: Spelling) -> Result<Pieces, TokenizerError> {
    let vocabulary = bpe.vocabulary();
    let ids = vocabulary.iter().map(|(_, id)| *id as usize + 1).max().unwrap_or(0);
    check_limit("the highest id", ids, MAX_IDS)?;
    let mut table = vec![(PieceKind::Absent, ""); ids];
    for (token, id) in &vocabulary {
        // An id of two meanings could be a control token that untrusted text spells as an ordinary one.
        let (earlier, text) = std::mem::replace(&mut table[*id as usize], (PieceKind::Text, token));
        if earlier != PieceKind::Absent {
            let (mut tokens, shown) =
                ([text, token], |token: &str| token.chars().take(40).collect::<String>());
            tokens.sort_unstable();
            let [a, b] = tokens.map(shown);
            return Err(damaged(format!("the tokens {a:?} and {b:?} have the same id {id}")));
        }
    }
    for token in added {
        let kind = if token.special { PieceKind::Special } else { PieceKind::Added };
        if let Some(slot) = bpe.id_of(&token.content).and_then(|id| table.get_mut(id as usize)) {
            *slot = (kind, &token.content);
        }
    }
    Pieces::build(spelling, table.into_iter())
}

/// The ids a `TemplateProcessing` stage puts before and after a single text.
fn surround_of(stage: &Value, vocab_size: usize) -> Result<Surround, TokenizerError> {
    let parts = stage.get("single").and_then(Value::as_array);
    let parts = parts.ok_or_else(|| damaged("TemplateProcessing has no \"single\"".to_owned()))?;
    let mut surround = Surround::default();
    let mut after_text = false;
    for part in parts {
        match part.pointer("/SpecialToken/id").and_then(Value::as_str) {
            None => after_text = true,
            Some(name) => {
                let side = if after_text { &mut surround.suffix } else { &mut surround.prefix };
                side.extend(template_ids(stage, name, vocab_size)?);
            }
        }
        check_limit(
            "the number of surrounding tokens",
            surround.prefix.len() + surround.suffix.len(),
            MAX_STAGES,
        )?;
    }
    Ok(surround)
}

fn template_ids(stage: &Value, name: &str, vocab_size: usize) -> Result<Vec<u32>, TokenizerError> {
    let ids = stage.get("special_tokens").and_then(|map| map.get(name)?.get("ids")?.as_array());
    let ids = ids.ok_or_else(|| damaged(format!("TemplateProcessing does not define {name:?}")))?;
    let known = |id: &Value| id.as_u64().filter(|&id| id < vocab_size as u64).map(|id| id as u32);
    ids.iter()
        .map(|id| known(id).ok_or_else(|| damaged(format!("TemplateProcessing uses the unknown id {id}"))))
        .collect()
}
