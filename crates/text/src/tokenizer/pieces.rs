//! What each token id decodes to: one flat table of bytes, built once when a tokenizer is loaded.

use super::TokenizerError;
use super::byte_level;

/// Most ids a vocabulary may have. Today's largest have about 262,000.
pub(super) const MAX_IDS: usize = 1 << 22;
/// Most bytes that all tokens together may have.
const MAX_BYTES: usize = 1 << 28;
/// SentencePiece's stand-in for a space, U+2581.
pub(super) const SPACE_MARK: char = '▁';

/// What kind of thing an id is, as far as decoding is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    /// No token has this id. It decodes to nothing.
    Absent,
    /// Ordinary text.
    Text,
    /// One byte of a character that has no token of its own (SentencePiece's `<0x0A>`).
    Byte,
    /// Added token that is ordinary text to a reader, such as `<tool_call>`.
    Added,
    /// Control token, left out of decoded text on request.
    Special,
}

/// How the vocabulary writes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// GPT-2's alphabet, see [`byte_level`].
    ByteLevel,
    /// SentencePiece: `▁` for a space, `<0xXX>` for a byte.
    SentencePiece {
        /// Whether encoding put a space before the text, so that decoding takes one away.
        strip_leading_space: bool,
    },
}

/// Bytes and kind of every id.
#[derive(Debug)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// `ends[id]` is where the bytes of `id` end; they begin where those of `id - 1` end.
    ends: Vec<u32>,
    kinds: Vec<PieceKind>,
    spelling: Spelling,
}

impl Pieces {
    /// Builds the table from `(kind, token as the vocabulary writes it)` in the order of ids.
    ///
    /// A `Text` entry of a SentencePiece vocabulary that reads `<0xXX>` is taken as a byte.
    pub(crate) fn build<'a>(
        spelling: Spelling,
        entries: impl Iterator<Item = (PieceKind, &'a str)>,
    ) -> Result<Self, TokenizerError> {
        let mut pieces = Pieces { bytes: Vec::new(), ends: Vec::new(), kinds: Vec::new(), spelling };
        for (kind, token) in entries {
            let kind = pieces.push(kind, token);
            pieces.kinds.push(kind);
            pieces.ends.push(pieces.bytes.len() as u32);
            check_limit("the number of ids", pieces.kinds.len(), MAX_IDS)?;
            check_limit("the length of all tokens", pieces.bytes.len(), MAX_BYTES)?;
        }
        Ok(pieces)
    }

    fn push(&mut self, kind: PieceKind, token: &str) -> PieceKind {
        match (kind, self.spelling) {
            (PieceKind::Absent, _) => {}
            (PieceKind::Special | PieceKind::Added, _) => self.bytes.extend_from_slice(token.as_bytes()),
            (_, Spelling::ByteLevel) => byte_level::push_bytes(token, &mut self.bytes),
            (_, Spelling::SentencePiece { .. }) => {
                if let Some(byte) = byte_token(token) {
                    self.bytes.push(byte);
                    return PieceKind::Byte;
                }
                self.bytes.extend_from_slice(token.replace(SPACE_MARK, " ").as_bytes());
            }
        }
        kind
    }

    /// Number of ids, absent ones included.
    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn spelling(&self) -> Spelling {
        self.spelling
    }

    pub(crate) fn kind(&self, id: u32) -> PieceKind {
        self.kinds.get(id as usize).copied().unwrap_or(PieceKind::Absent)
    }

    /// The bytes `id` stands for; none for an absent or unknown id.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        let Some(&end) = self.ends.get(id as usize) else {
            return &[];
        };
        let start = (id as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    /// The text of `ids`. Bytes that are not UTF-8 become U+FFFD.
    pub(super) fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let shown = ids.iter().filter(|&&id| !(skip_special && self.kind(id) == PieceKind::Special));
        match self.spelling {
            Spelling::ByteLevel => {
                let bytes: Vec<u8> = shown.flat_map(|&id| self.bytes(id)).copied().collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Spelling::SentencePiece { strip_leading_space } => {
                let text = self.decode_sentencepiece(shown);
                match text.strip_prefix(' ') {
                    Some(rest) if strip_leading_space => rest.to_owned(),
                    _ => text,
                }
            }
        }
    }

    /// Byte tokens are read a run at a time: a run that is not UTF-8 as a whole becomes one
    /// U+FFFD per byte, as the `ByteFallback` decoder of the `tokenizers` library does.
    fn decode_sentencepiece<'a>(&self, ids: impl Iterator<Item = &'a u32>) -> String {
        let (mut text, mut run) = (String::new(), Vec::new());
        for &id in ids {
            if self.kind(id) == PieceKind::Byte {
                run.extend_from_slice(self.bytes(id));
            } else {
                flush_run(&mut run, &mut text);
                text.push_str(&String::from_utf8_lossy(self.bytes(id)));
            }
        }
        flush_run(&mut run, &mut text);
        text
    }
}

fn flush_run(run: &mut Vec<u8>, text: &mut String) {
    match std::str::from_utf8(run) {
        Ok(valid) => text.push_str(valid),
        Err(_) => text.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, run.len())),
    }
    run.clear();
}

/// The byte that a token such as `<0x0A>` stands for.
pub(super) fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

pub(super) fn check_limit(what: &'static str, actual: usize, limit: usize) -> Result<(), TokenizerError> {
    if actual > limit {
        return Err(TokenizerError::TooLarge { what, actual, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentencepiece(tokens: &[&str]) -> Pieces {
        let entries = tokens.iter().map(|&t| (PieceKind::Text, t));
        Pieces::build(Spelling::SentencePiece { strip_leading_space: true }, entries).unwrap()
    }

    #[test]
    fn byte_tokens_are_recognised_only_in_their_exact_form() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        for odd in ["<0x0a>", "<0xA>", "<0x+A>", "<0x0A", "0x0A", "<0x00A>"] {
            assert_eq!(byte_token(odd), None, "{odd}");
        }
    }

    #[test]
    fn one_leading_space_goes_and_broken_runs_show_one_mark_per_byte() {
        let pieces = sentencepiece(&["▁▁a", "<0xE2>", "<0x82>", "<0xAC>", "b"]);
        assert_eq!(pieces.decode(&[0, 1, 2, 3, 4], false), " a€b");
        assert_eq!(pieces.decode(&[4, 1, 2, 4], false), "b\u{FFFD}\u{FFFD}b");
    }

    #[test]
    fn ids_beyond_the_vocabulary_decode_to_nothing() {
        let pieces = sentencepiece(&["a"]);
        assert_eq!(pieces.decode(&[0, 1, u32::MAX, 0], false), "aa");
        assert_eq!(pieces.bytes(u32::MAX), b"");
    }
}
