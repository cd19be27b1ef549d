//! Score-ranked BPE: the `llama` vocabularies of GGUF files, which come from SentencePiece.
//!
//! There are no merges, only a score for each token. Text starts as single characters; of all
//! neighbouring pairs that together are a token, the one with the highest score (the leftmost, if
//! equal) is joined, until none is left. A character without a token becomes its UTF-8 bytes,
//! which have tokens of their own. (Kudo and Richardson, "SentencePiece", 2018.)

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use aho_corasick::{AhoCorasick, MatchKind};

use super::TokenizerError;
use super::pieces::SPACE_MARK;

/// Marks "no neighbour" in the list of symbols.
const NONE: usize = usize::MAX;

/// What the vocabulary's loader hands over.
pub(super) struct SpmParts {
    /// Tokens that merging may produce: token as the vocabulary writes it, id, score.
    pub(super) mergeable: Vec<(String, u32, f32)>,
    /// Id of the token for each byte, where there is one.
    pub(super) bytes: Box<[Option<u32>; 256]>,
    /// Tokens matched in the text as they stand, before anything else.
    pub(super) added: Vec<AddedToken>,
    /// Stands for a character that has neither token nor byte tokens.
    pub(super) unknown: Option<u32>,
    /// Whether a space goes before the text, and before the text after each added token.
    pub(super) add_space_prefix: bool,
}

/// A token that is cut out of the text before merging.
pub(super) struct AddedToken {
    pub(super) text: String,
    pub(super) id: u32,
    /// Control tokens are cut out of trusted text only.
    pub(super) special: bool,
}

pub(super) struct Spm {
    mergeable: HashMap<String, (u32, f32)>,
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
    add_space_prefix: bool,
    all_added: Finder,
    plain_added: Finder,
    added_ids: HashMap<String, u32>,
}

/// Finds added tokens: the leftmost first, and there the longest.
struct Finder {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

impl Finder {
    fn new<'a>(tokens: impl Iterator<Item = &'a AddedToken>) -> Result<Self, TokenizerError> {
        let (texts, ids): (Vec<&str>, Vec<u32>) = tokens
            .filter(|token| !token.text.is_empty())
            .map(|token| (token.text.as_str(), token.id))
            .unzip();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
        let automaton = automaton.map_err(|e| TokenizerError::Damaged(e.to_string()))?;
        Ok(Finder { automaton, ids })
    }
}

impl Spm {
    pub(super) fn new(parts: SpmParts) -> Result<Self, TokenizerError> {
        Ok(Spm {
            all_added: Finder::new(parts.added.iter())?,
            plain_added: Finder::new(parts.added.iter().filter(|token| !token.special))?,
            added_ids: parts.added.into_iter().map(|token| (token.text, token.id)).collect(),
            mergeable: parts.mergeable.into_iter().map(|(text, id, score)| (text, (id, score))).collect(),
            bytes: parts.bytes,
            unknown: parts.unknown,
            add_space_prefix: parts.add_space_prefix,
        })
    }

    pub(super) fn id_of(&self, token: &str) -> Option<u32> {
        let merged = || self.mergeable.get(token).map(|&(id, _)| id);
        let byte = || super::pieces::byte_token(token).and_then(|byte| self.bytes[usize::from(byte)]);
        self.added_ids.get(token).copied().or_else(merged).or_else(byte)
    }

    pub(super) fn encode(&self, text: &str, parse_special: bool) -> Vec<u32> {
        let finder = if parse_special { &self.all_added } else { &self.plain_added };
        let mut ids = Vec::new();
        let mut done = 0;
        for found in finder.automaton.find_iter(text) {
            self.encode_fragment(&text[done..found.start()], &mut ids);
            ids.push(finder.ids[found.pattern().as_usize()]);
            done = found.end();
        }
        self.encode_fragment(&text[done..], &mut ids);
        ids
    }

    /// Encodes text that holds no added token.
    fn encode_fragment(&self, text: &str, ids: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        let mut marked = String::with_capacity(text.len() + 8);
        if self.add_space_prefix {
            marked.push(SPACE_MARK);
        }
        marked.extend(text.chars().map(|c| if c == ' ' { SPACE_MARK } else { c }));
        for symbol in Merger::new(self, &marked).run() {
            self.push_symbol(symbol, ids);
        }
    }

    fn push_symbol(&self, symbol: &str, ids: &mut Vec<u32>) {
        if let Some(&(id, _)) = self.mergeable.get(symbol) {
            ids.push(id);
            return;
        }
        let bytes: Option<Vec<u32>> = symbol.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
        match bytes {
            Some(bytes) => ids.extend(bytes),
            None => ids.extend(self.unknown),
        }
    }
}

/// A part of the text, in a doubly linked list of parts.
struct Symbol {
    start: usize,
    /// Zero once it was joined to the symbol on its left.
    len: usize,
    left: usize,
    right: usize,
}

/// Two neighbours that could be joined.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Length of both together when the pair was found; it differs when one has grown since.
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

/// Joins the symbols of one text. O(n log n) in its length.
struct Merger<'a> {
    spm: &'a Spm,
    text: &'a str,
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
}

impl<'a> Merger<'a> {
    fn new(spm: &'a Spm, text: &'a str) -> Self {
        let count = text.chars().count();
        let symbol = |(i, (start, c)): (usize, (usize, char))| Symbol {
            start,
            len: c.len_utf8(),
            left: i.checked_sub(1).unwrap_or(NONE),
            right: if i + 1 < count { i + 1 } else { NONE },
        };
        let symbols = text.char_indices().enumerate().map(symbol).collect();
        Merger { spm, text, symbols, pairs: BinaryHeap::new() }
    }

    fn run(mut self) -> impl Iterator<Item = &'a str> {
        for right in 1..self.symbols.len() {
            self.offer(right - 1, right);
        }
        while let Some(pair) = self.pairs.pop() {
            let (left, right) = (&self.symbols[pair.left], &self.symbols[pair.right]);
            let stale = left.len == 0 || right.len == 0 || left.len + right.len != pair.len;
            if !stale {
                self.join(&pair);
            }
        }
        let text = self.text;
        self.symbols.into_iter().filter(|s| s.len > 0).map(move |s| &text[s.start..s.start + s.len])
    }

    /// Queues the pair if it is a token.
    fn offer(&mut self, left: usize, right: usize) {
        if left == NONE || right == NONE {
            return;
        }
        let start = self.symbols[left].start;
        let len = self.symbols[left].len + self.symbols[right].len;
        if let Some(&(_, score)) = self.spm.mergeable.get(&self.text[start..start + len]) {
            self.pairs.push(Pair { score, left, right, len });
        }
    }

    fn join(&mut self, pair: &Pair) {
        let after = self.symbols[pair.right].right;
        self.symbols[pair.right].len = 0;
        let left = &mut self.symbols[pair.left];
        left.len = pair.len;
        left.right = after;
        let before = left.left;
        if after != NONE {
            self.symbols[after].left = pair.left;
        }
        self.offer(before, pair.left);
        self.offer(pair.left, after);
    }
}
