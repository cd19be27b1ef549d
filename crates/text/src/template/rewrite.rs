//! Changes to a template's text before minijinja compiles it.
//!
//! - `{% generation %}` and its end, which mark the assistant's part for training, are made
//!   blocks that are always taken: minijinja has no such tag.
//! - In `{% set namespace.name = value %}` the value is passed through [`lists::STORED`].
//! - In templates that call `append`, `extend` or `pop`, list literals become calls of
//!   [`lists::LIST`].
//! - A template whose text or tags are longer than any sound one's is refused: the depth of
//!   minijinja's recursion when it compiles is bounded by the length of a tag, and the number of
//!   `elif`s.

use super::{TemplateError, lists};

/// Longest template in bytes. Published ones have under 20,000.
const MAX_TEMPLATE_BYTES: usize = 128 << 10;
/// Longest single `{{ }}` or `{% %}` in bytes. Published ones have under 1,200.
const MAX_TAG_BYTES: usize = 8 << 10;
/// Most `elif`s. Published templates have under 60.
const MAX_ELIFS: usize = 1000;

pub(super) fn runnable(source: &str) -> Result<String, TemplateError> {
    if source.len() > MAX_TEMPLATE_BYTES {
        let message = format!(
            "the template has {} bytes; at most {MAX_TEMPLATE_BYTES} are accepted",
            source.len()
        );
        return Err(TemplateError::Limit(message));
    }
    let growing = [".append(", ".extend(", ".pop("]
        .iter()
        .any(|call| source.contains(call));
    let mut out = String::with_capacity(source.len() + 256);
    let mut rest = source;
    let mut elifs = 0;
    while let Some((text, tag, after)) = next_tag(rest)? {
        out.push_str(text);
        let words = tag.inner.trim_start_matches(['-', '+']).trim_start();
        let first_word = words
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap_or_default();
        elifs += usize::from(first_word == "elif");
        if elifs > MAX_ELIFS {
            return Err(TemplateError::Limit(format!(
                "the template has more than {MAX_ELIFS} elif"
            )));
        }
        tag.write(&mut out, first_word, growing);
        rest = after;
        if tag.is_block && first_word == "raw" {
            let end = raw_length(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// A `{{ }}`, `{% %}` or `{# #}`.
struct Tag<'a> {
    open: &'a str,
    /// Between the delimiters.
    inner: &'a str,
    close: &'a str,
    is_block: bool,
}

/// The text before the next tag, the tag, and what follows it. A tag that never ends is left to
/// minijinja, which reports it.
fn next_tag(source: &str) -> Result<Option<(&str, Tag<'_>, &str)>, TemplateError> {
    let Some(start) = ["{{", "{%", "{#"]
        .iter()
        .filter_map(|open| source.find(open))
        .min()
    else {
        return Ok(None);
    };
    let open = &source[start..start + 2];
    let body = &source[start + 2..];
    let length = match open {
        "{#" => body.find("#}"),
        "{%" => code_length(body, "%}"),
        _ => code_length(body, "}}"),
    };
    if open != "{#" && length.unwrap_or(body.len()) > MAX_TAG_BYTES {
        return Err(TemplateError::Limit(format!(
            "a tag is longer than {MAX_TAG_BYTES} bytes"
        )));
    }
    let Some(length) = length else { return Ok(None) };
    let tag = Tag {
        open,
        inner: &body[..length],
        close: &body[length..length + 2],
        is_block: open == "{%",
    };
    Ok(Some((&source[..start], tag, &body[length + 2..])))
}

/// Where code ends that `close` ends, which counts neither in strings nor in brackets (a dict
/// inside `{{ }}` may end in `}}`).
fn code_length(body: &str, close: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut code = Code::new(body);
    while let Some((at, byte)) = code.next_byte() {
        if depth == 0 && body[at..].starts_with(close) {
            return Some(at);
        }
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Walks over code, leaving out what is inside string literals.
struct Code<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Code<'a> {
    fn new(code: &'a str) -> Self {
        Code {
            bytes: code.as_bytes(),
            at: 0,
        }
    }

    /// Position and value of the next byte that is not inside a string. Quotes themselves are
    /// given, an opening one before its string is passed over. Only ASCII positions are given.
    fn next_byte(&mut self) -> Option<(usize, u8)> {
        while self.at < self.bytes.len() {
            let (at, byte) = (self.at, self.bytes[self.at]);
            self.at = if matches!(byte, b'"' | b'\'') {
                self.after_string(at)
            } else {
                at + 1
            };
            if byte.is_ascii() {
                return Some((at, byte));
            }
        }
        None
    }

    fn after_string(&self, open: usize) -> usize {
        let mut at = open + 1;
        while at < self.bytes.len() && self.bytes[at] != self.bytes[open] {
            at += if self.bytes[at] == b'\\' { 2 } else { 1 };
        }
        at + 1
    }
}

impl Tag<'_> {
    fn write(&self, out: &mut String, first_word: &str, growing: bool) {
        out.push_str(self.open);
        match first_word {
            _ if self.open == "{#" => out.push_str(self.inner),
            "generation" if self.is_block => out.push_str(&self.inner.replacen("generation", "if true", 1)),
            "endgeneration" if self.is_block => {
                out.push_str(&self.inner.replacen("endgeneration", "endif", 1))
            }
            "set" if self.is_block => self.write_set(out, growing),
            _ => write_code(out, self.inner, growing),
        }
        out.push_str(self.close);
    }

    /// `set a.b = value` becomes `set a.b = _stored((value))`; other forms stay.
    fn write_set(&self, out: &mut String, growing: bool) {
        let assignment = assignment_at(self.inner).filter(|&at| self.inner[..at].contains('.'));
        let Some(at) = assignment else {
            return write_code(out, self.inner, growing);
        };
        let (target, value) = (&self.inner[..=at], &self.inner[at + 1..]);
        let trimmed = value.trim_end_matches(['-', '+']);
        out.push_str(target);
        out.push_str(lists::STORED);
        out.push_str("((");
        write_code(out, trimmed, growing);
        out.push_str("))");
        out.push_str(&value[trimmed.len()..]);
    }
}

/// Where the `=` of an assignment is (not that of `==`, `<=` or a keyword argument).
fn assignment_at(code: &str) -> Option<usize> {
    let mut walk = Code::new(code);
    while let Some((at, byte)) = walk.next_byte() {
        match byte {
            b'=' => return (code.as_bytes().get(at + 1) != Some(&b'=')).then_some(at),
            b'(' if !code[..at].trim_end().ends_with("set") => return None,
            _ => {}
        }
    }
    None
}

/// Copies code; list literals become calls when they are to grow.
fn write_code(out: &mut String, code: &str, growing: bool) {
    if !growing {
        out.push_str(code);
        return;
    }
    let mut is_literal = Vec::new();
    let mut done = 0;
    let mut walk = Code::new(code);
    while let Some((at, byte)) = walk.next_byte() {
        let replacement = match byte {
            b'[' => {
                let literal = !follows_value(&code[..at]);
                is_literal.push(literal);
                literal.then(|| format!("{}(", lists::LIST))
            }
            b']' => is_literal
                .pop()
                .filter(|&literal| literal)
                .map(|_| ")".to_owned()),
            _ => None,
        };
        if let Some(replacement) = replacement {
            out.push_str(&code[done..at]);
            out.push_str(&replacement);
            done = at + 1;
        }
    }
    out.push_str(&code[done..]);
}

/// Whether a `[` here would take an item of a value rather than begin a list.
fn follows_value(before: &str) -> bool {
    const OPERATORS: [&str; 8] = ["in", "and", "or", "not", "is", "if", "else", "elif"];
    let before = before.trim_end();
    if before.ends_with([')', ']', '}', '"', '\'']) {
        return true;
    }
    let start = before
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let word = &before[start..];
    !word.is_empty() && !OPERATORS.contains(&word)
}

/// Length of the text up to and with `{% endraw %}`.
fn raw_length(source: &str) -> usize {
    let mut from = 0;
    while let Some(found) = source[from..].find("{%") {
        let start = from + found + 2;
        let inner = source[start..].trim_start_matches(['-', '+']).trim_start();
        if let Some(after) = inner.strip_prefix("endraw") {
            let end = source.len() - after.len();
            return source[end..]
                .find("%}")
                .map_or(source.len(), |close| end + close + 2);
        }
        from = start;
    }
    source.len()
}
