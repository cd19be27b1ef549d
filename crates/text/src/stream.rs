//! Ids to text, one id at a time.
//!
//! A token is a string of bytes, not of characters: an emoji often takes four tokens. The decoder
//! gives out each character when its last byte has come, so that the pieces joined are the text
//! and no piece ends inside a character. At most three bytes wait, so a step costs what its token
//! is long, however long the text has grown.

use std::sync::Arc;

use crate::tokenizer::pieces::{PieceKind, Pieces, Spelling};

/// How a stream of ids is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Leave control tokens out of the text.
    pub skip_special: bool,
    /// The stream is a text of its own. Vocabularies that put a space before every text then
    /// take it away again, as decoding the whole does. False for the continuation of a prompt,
    /// where that space parts two words.
    pub from_start: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions { skip_special: true, from_start: true }
    }
}

/// Turns ids into text that no later id can change. Made by
/// [`Tokenizer::stream`](crate::Tokenizer::stream).
#[derive(Debug)]
pub struct StreamDecoder {
    pieces: Arc<Pieces>,
    skip_special: bool,
    strip_next_space: bool,
    /// The beginning of a character, at most three bytes.
    pending: Vec<u8>,
}

impl StreamDecoder {
    pub(crate) fn new(pieces: Arc<Pieces>, options: StreamOptions) -> Self {
        let strips = matches!(pieces.spelling(), Spelling::SentencePiece { strip_leading_space: true });
        StreamDecoder {
            pieces,
            skip_special: options.skip_special,
            strip_next_space: strips && options.from_start,
            pending: Vec::new(),
        }
    }

    /// The text that has become certain with this id: empty while a character is incomplete.
    /// Bytes that can no longer become a character are given as U+FFFD.
    pub fn push(&mut self, id: u32) -> String {
        if self.skip_special && self.pieces.kind(id) == PieceKind::Special {
            return String::new();
        }
        self.pending.extend_from_slice(self.pieces.bytes(id));
        let mut text = String::new();
        let certain = take_certain(&self.pending, &mut text);
        self.pending.drain(..certain);
        if self.strip_next_space && !text.is_empty() {
            self.strip_next_space = false;
            if text.starts_with(' ') {
                text.remove(0);
            }
        }
        text
    }

    /// What remains when no more ids will come: U+FFFD for a character that was left incomplete.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Appends what is certain of `bytes` to `text`; returns how many bytes that was.
fn take_certain(bytes: &[u8], text: &mut String) -> usize {
    let mut done = 0;
    loop {
        let error = match std::str::from_utf8(&bytes[done..]) {
            Ok(rest) => {
                text.push_str(rest);
                return bytes.len();
            }
            Err(error) => error,
        };
        let valid = error.valid_up_to();
        text.push_str(&String::from_utf8_lossy(&bytes[done..done + valid]));
        done += valid;
        match error.error_len() {
            None => return done,
            Some(broken) => {
                text.push(char::REPLACEMENT_CHARACTER);
                done += broken;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte_stream(options: StreamOptions) -> StreamDecoder {
        let tokens: Vec<String> = (0..=255u8).map(|byte| format!("<0x{byte:02X}>")).collect();
        let entries = tokens.iter().map(|token| (PieceKind::Text, token.as_str()));
        let spelling = Spelling::SentencePiece { strip_leading_space: true };
        StreamDecoder::new(Arc::new(Pieces::build(spelling, entries).unwrap()), options)
    }

    fn chunks(bytes: &[u8], options: StreamOptions) -> Vec<String> {
        let mut stream = byte_stream(options);
        let mut chunks: Vec<String> = bytes.iter().map(|&byte| stream.push(u32::from(byte))).collect();
        chunks.push(stream.finish());
        chunks
    }

    #[test]
    fn a_character_comes_whole_with_its_last_byte() {
        assert_eq!(chunks("é漢".as_bytes(), StreamOptions::default()), ["", "é", "", "", "漢", ""]);
    }

    #[test]
    fn broken_bytes_show_as_soon_as_they_are_certain_to_be_broken() {
        assert_eq!(chunks(b"\xF0\x9Fx", StreamOptions::default()), ["", "", "\u{FFFD}x", ""]);
        assert_eq!(chunks(b"a\x80\xE2\x82", StreamOptions::default()), ["a", "\u{FFFD}", "", "", "\u{FFFD}"]);
    }

    #[test]
    fn only_a_text_of_its_own_loses_its_leading_space() {
        assert_eq!(chunks(b"  a", StreamOptions::default()).concat(), " a");
        let continuing = StreamOptions { from_start: false, ..StreamOptions::default() };
        assert_eq!(chunks(b"  a", continuing).concat(), "  a");
    }
}
