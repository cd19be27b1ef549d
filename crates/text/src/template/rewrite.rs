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
        let message =
            format!("the template has {} bytes; at most {MAX_TEMPLATE_BYTES} are accepted", source.len());
        return Err(TemplateError::Limit(message));
    }
    if source.contains(lists::RESERVED) {
        return Err(unusable("names that begin with __pomar are reserved"));
    }
    let growing = [".append(", ".extend(", ".pop("].iter().any(|call| source.contains(call));
    let mut out = String::with_capacity(source.len() + 256);
    let mut rest = source;
    let mut elifs = 0;
    while let Some((text, tag, after)) = next_tag(rest)? {
        out.push_str(text);
        let words = tag.inner.trim_start_matches(['-', '+']).trim_start();
        let first_word = words.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        elifs += usize::from(first_word == "elif");
        if elifs > MAX_ELIFS {
            return Err(TemplateError::Limit(format!("the template has more than {MAX_ELIFS} elif")));
        }
        tag.write(&mut out, first_word, growing)?;
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
    let Some(start) = ["{{", "{%", "{#"].iter().filter_map(|open| source.find(open)).min() else {
        return Ok(None);
    };
    let open = &source[start..start + 2];
    let body = &source[start + 2..];
    let length = match open {
        "{#" => body.find("#}"),
        "{%" => code_length(body, "%}")?,
        _ => code_length(body, "}}")?,
    };
    if open != "{#" && length.unwrap_or(body.len()) > MAX_TAG_BYTES {
        return Err(TemplateError::Limit(format!("a tag is longer than {MAX_TAG_BYTES} bytes")));
    }
    let Some(length) = length else { return Ok(None) };
    let tag = Tag { open, inner: &body[..length], close: &body[length..length + 2], is_block: open == "{%" };
    Ok(Some((&source[..start], tag, &body[length + 2..])))
}

/// Where code ends that `close` ends, which counts neither in strings nor in brackets (a dict
/// inside `{{ }}` may end in `}}`).
fn code_length(body: &str, close: &str) -> Result<Option<usize>, TemplateError> {
    let mut depth = 0usize;
    let mut code = Code::new(body);
    while let Some((at, byte)) = code.next_byte() {
        if depth == 0 && body[at..].starts_with(close) {
            return Ok(Some(at));
        }
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth
                    .checked_sub(1)
                    .ok_or_else(|| unusable("a closing bracket without its opening one"))?;
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Walks over code, leaving out what is inside string literals.
struct Code<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Code<'a> {
    fn new(code: &'a str) -> Self {
        Code { bytes: code.as_bytes(), at: 0 }
    }

    /// Position and value of the next byte that is not inside a string. Quotes themselves are
    /// given, an opening one before its string is passed over. Only ASCII positions are given.
    fn next_byte(&mut self) -> Option<(usize, u8)> {
        while self.at < self.bytes.len() {
            let (at, byte) = (self.at, self.bytes[self.at]);
            self.at = if matches!(byte, b'"' | b'\'') { self.after_string(at) } else { at + 1 };
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
    fn write(&self, out: &mut String, first_word: &str, growing: bool) -> Result<(), TemplateError> {
        out.push_str(self.open);
        match first_word {
            _ if self.open == "{#" => out.push_str(self.inner),
            "generation" if self.is_block => out.push_str(&self.inner.replacen("generation", "if true", 1)),
            "endgeneration" if self.is_block => {
                out.push_str(&self.inner.replacen("endgeneration", "endif", 1))
            }
            "set" if self.is_block => self.write_set(out, growing)?,
            _ => write_code(out, self.inner, growing),
        }
        out.push_str(self.close);
        Ok(())
    }

    /// `set a.b = value` becomes `set a.b = STORED((value))`; `set a = value` stays. What a block
    /// is set to is text, unless a filter makes something else of it: that is refused.
    fn write_set(&self, out: &mut String, growing: bool) -> Result<(), TemplateError> {
        let assignment = byte_outside_strings(self.inner, b'=');
        let head = &self.inner[..assignment.unwrap_or(self.inner.len())];
        let (target, filter) = head.split_once('|').map_or((head, false), |(target, _)| (target, true));
        let (true, Some(at)) = (target.contains('.'), assignment.filter(|_| !filter)) else {
            if target.contains('.') && filter {
                return Err(unusable("a filtered block set into a namespace is not supported"));
            }
            write_code(out, self.inner, growing);
            return Ok(());
        };
        let value = &self.inner[at + 1..];
        let trimmed = value.trim_end_matches(['-', '+']);
        out.push_str(&self.inner[..=at]);
        out.push_str(lists::STORED);
        out.push_str("((");
        write_code(out, trimmed, growing);
        out.push_str("))");
        out.push_str(&value[trimmed.len()..]);
        Ok(())
    }
}

fn unusable(why: &str) -> TemplateError {
    TemplateError::Syntax(why.to_owned())
}

fn byte_outside_strings(code: &str, wanted: u8) -> Option<usize> {
    let mut walk = Code::new(code);
    std::iter::from_fn(|| walk.next_byte()).find(|&(_, byte)| byte == wanted).map(|(at, _)| at)
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
            b']' => is_literal.pop().filter(|&literal| literal).map(|_| ")".to_owned()),
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

/// Length of the text up to and with `{% endraw %}`, which minijinja accepts in this form alone.
fn raw_length(source: &str) -> usize {
    let mut from = 0;
    while let Some(found) = source[from..].find("{%") {
        from += found + 2;
        let inner = source[from..].strip_prefix(['-', '+']).unwrap_or(&source[from..]);
        let after = inner.trim_ascii_start().strip_prefix("endraw").map(str::trim_ascii_start);
        let after = after.map(|rest| rest.strip_prefix(['-', '+']).unwrap_or(rest));
        if let Some(rest) = after.and_then(|rest| rest.strip_prefix("%}")) {
            return source.len() - rest.len();
        }
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(source: &str) -> String {
        runnable(source).unwrap().replace(lists::STORED, "S").replace(lists::LIST, "L")
    }

    #[test]
    fn templates_without_such_things_stay_as_they_are() {
        let source = "{# {{ #}{% set x = [1, '%}'] -%}{{ {'a': {'b': 1}} }}{% raw %}{% set ns.x = 1 %}{% endraw %} }} %}";
        assert_eq!(rewritten(source), source);
    }

    #[test]
    fn what_goes_into_a_namespace_is_stored() {
        assert_eq!(rewritten("{%- set ns.x = a == 'b=' -%}"), "{%- set ns.x =S(( a == 'b=' ))-%}");
        assert_eq!(rewritten("{% set ns.x, (ns.y) = 1, 2 %}"), "{% set ns.x, (ns.y) =S(( 1, 2 ))%}");
        assert_eq!(rewritten("{% set x = ns.y %}"), "{% set x = ns.y %}");
        assert_eq!(rewritten("{% set x | f(a.b, c=1) %}"), "{% set x | f(a.b, c=1) %}");
        assert_eq!(rewritten("{% set ns.x %}"), "{% set ns.x %}");
    }

    #[test]
    fn ways_around_that_are_refused() {
        for source in [
            "{% set ns.x = 1)), ns, ((1 %}",
            "{% set ns.x | default(ns, true) %}{% endset %}",
            "{% set __pomar_stored = dict %}",
        ] {
            assert!(matches!(runnable(source), Err(TemplateError::Syntax(_))), "{source}");
        }
        // A raw block ends only where minijinja thinks it does.
        let source = "{% raw %}{% endrawx %}{{ '{%endraw -%}{% set ns.x = ns %}' }}";
        assert!(rewritten(source).contains("ns.x =S("));
    }

    #[test]
    fn list_literals_grow_only_where_lists_are_changed() {
        assert_eq!(
            rewritten("{% set x = [a[0], [1]] %}{{ x.append(b) }}"),
            "{% set x = L(a[0], L(1)) %}{{ x.append(b) }}"
        );
        assert_eq!(rewritten("{{ a.pop() if b in [1] else '[' }}"), "{{ a.pop() if b in L(1) else '[' }}");
    }

    #[test]
    fn generation_marks_become_blocks_that_are_always_taken() {
        assert_eq!(rewritten("{%- generation %}a{% endgeneration -%}"), "{%- if true %}a{% endif -%}");
    }
}
