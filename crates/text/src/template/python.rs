//! What templates take for granted because Python has it.

use std::fmt;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

use super::invalid;

/// How deep a value may nest for `tojson` and for printing.
const MAX_DEPTH: usize = 128;

pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| text_of(value));
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        let raised = Raised(message.to_string());
        Err(invalid(raised.0.clone()).with_source(raised))
    });
    environment.set_formatter(|out, _, value| {
        let written = match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&text_of(value)?),
        };
        written.map_err(|_| Error::from(ErrorKind::WriteFailure))
    });
}

/// Whether the value has a length and items, which in Python strings and dicts do too.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

/// Marks an error as the template's own refusal.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// The message given to `raise_exception`, if that is where the error began.
pub(super) fn raised_message(error: &Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return Some(raised.0.clone());
        }
        cause = current.source();
    }
    None
}

/// `json.dumps` as `transformers` calls it: key order kept, neither ASCII nor HTML escapes.
fn tojson(state: &State, value: &Value, indent: Option<&Value>, options: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent.clone()),
        None => options.get::<Option<Value>>("indent")?,
    };
    let indent = indent.filter(|value| !value.is_none() && !value.is_undefined());
    let indent =
        indent.map(|value| value.as_usize().ok_or_else(|| invalid("tojson: indent is not a number")));
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let mut writer = JsonWriter {
        state,
        out: String::new(),
        charged: 0,
        indent: indent.transpose()?.map(|width| width.min(32)),
        comma: if separators.is_none() { ", ".to_owned() } else { ",".to_owned() },
        colon: ": ".to_owned(),
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    match separators.as_deref() {
        None => {}
        Some([comma, colon]) => (writer.comma, writer.colon) = (comma.clone(), colon.clone()),
        Some(_) => return Err(invalid("tojson: separators are not two strings")),
    }
    if writer.indent.is_some() && writer.comma == ", " {
        writer.comma = ",".to_owned();
    }
    options.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(Value::from_safe_string(writer.out))
}

struct JsonWriter<'a, 'b> {
    state: &'a State<'b, 'b>,
    out: String,
    /// Length of `out` that fuel has been paid for.
    charged: usize,
    indent: Option<usize>,
    comma: String,
    colon: String,
    ascii: bool,
    sort_keys: bool,
}

impl JsonWriter<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("tojson: the value nests deeper than {MAX_DEPTH}")));
        }
        self.charge()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            kind => {
                return Err(invalid(format!("tojson: a value of type {kind} is not JSON serializable")));
            }
        }
        Ok(())
    }

    /// Pays one unit of fuel per value and per 64 bytes written.
    fn charge(&mut self) -> Result<(), Error> {
        let new = self.out.len() - self.charged;
        self.charged = self.out.len();
        self.state.consume_fuel(1 + new as u64 / 64)
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.separate(&mut empty, depth + 1);
            self.value(&item, depth + 1)?;
        }
        self.close(']', empty, depth);
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('{');
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        let mut empty = true;
        for key in keys {
            self.separate(&mut empty, depth + 1);
            match key.as_str() {
                Some(text) => self.string(text),
                None => self.string(&text_of(&key)?),
            }
            let colon = std::mem::take(&mut self.colon);
            self.out.push_str(&colon);
            self.colon = colon;
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.close('}', empty, depth);
        Ok(())
    }

    fn separate(&mut self, first: &mut bool, depth: usize) {
        if !std::mem::replace(first, false) {
            self.out.push_str(&self.comma);
        }
        self.new_line(depth);
    }

    fn close(&mut self, bracket: char, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(width) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', width * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{C}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A number as Python writes it: `2.5`, `1.0`, `1e+16`, `1e-05`.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) => python_float(float),
        Err(_) => value.to_string(),
    }
}

fn python_float(float: f64) -> String {
    if !float.is_finite() {
        return if float.is_nan() {
            "nan"
        } else if float > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    let text = float.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// `str(value)`.
fn text_of(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => {
            let mut out = String::new();
            push_repr(&mut out, value, 0)?;
            Ok(out)
        }
    }
}

/// `repr(value)`, except that undefined is empty.
fn push_repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("a value that is printed nests deeper than {MAX_DEPTH}")));
    }
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => push_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq => push_items(out, value, depth)?,
        ValueKind::Map => push_entries(out, value, depth)?,
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn push_items(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
    out.push(open);
    for (index, item) in value.try_iter()?.enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        push_repr(out, &item, depth + 1)?;
    }
    out.push(close);
    Ok(())
}

fn push_entries(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    out.push('{');
    for (index, key) in value.try_iter()?.enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        push_repr(out, &key, depth + 1)?;
        out.push_str(": ");
        push_repr(out, &value.get_item(&key)?, depth + 1)?;
    }
    out.push('}');
    Ok(())
}

/// Single quotes, unless the text has some and no double ones.
fn push_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c < ' ' || c == '\u{7F}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
}
