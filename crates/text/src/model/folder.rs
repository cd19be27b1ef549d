//! A model's text files in a folder of Hugging Face layout.
//!
//! | file | what is taken from it |
//! |---|---|
//! | `tokenizer.json` | the vocabulary; required |
//! | `chat_template.jinja`, `additional_chat_templates/NAME.jinja` | templates, before all others |
//! | `tokenizer_config.json` | templates (one, or a list of named ones), texts of BOS and EOS |
//! | `special_tokens_map.json` | texts of BOS and EOS, where the former has none |
//! | `generation_config.json`, else `config.json` | ids that end an answer |

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::{DEFAULT_TEMPLATE, ModelText, ModelTextError, NamedTemplate, TOOL_TEMPLATE, ends};
use crate::tokenizer::Tokenizer;

/// Largest accepted files, in bytes. `tokenizer_config.json` may list every added token.
const MAX_TOKENIZER_BYTES: u64 = 1 << 28;
const MAX_CONFIG_BYTES: u64 = 16 << 20;
const MAX_TEMPLATE_BYTES: u64 = 1 << 20;

pub(super) fn open(folder: &Path) -> Result<ModelText, ModelTextError> {
    let path = folder.join("tokenizer.json");
    let missing = || ModelTextError::NoTokenizer { folder: folder.to_owned() };
    let json = read(&path, MAX_TOKENIZER_BYTES)?.ok_or_else(missing)?;
    let tokenizer =
        Tokenizer::from_json_bytes(&json).map_err(|source| ModelTextError::Tokenizer { path, source })?;

    let config = Config::read(folder.join("tokenizer_config.json"))?;
    let map = Config::read(folder.join("special_tokens_map.json"))?;
    let text = |key| Ok::<_, ModelTextError>(config.token_text(key)?.or(map.token_text(key)?));
    let (bos_text, eos_text) = (text("bos_token")?, text("eos_token")?);
    let id = |text: &Option<String>| text.as_deref().and_then(|text| tokenizer.id_of(text));
    let (bos, eos) = (id(&bos_text), id(&eos_text));
    let tokenizer = tokenizer.with_ends(bos, eos);
    Ok(ModelText {
        templates: templates(folder, &config)?,
        end_tokens: ends::end_tokens(&tokenizer, named_ends(folder)?),
        bos_text,
        eos_text,
        tokenizer: Arc::new(tokenizer),
    })
}

fn templates(folder: &Path, config: &Config) -> Result<Vec<NamedTemplate>, ModelTextError> {
    let files = [
        (DEFAULT_TEMPLATE, folder.join("chat_template.jinja")),
        (TOOL_TEMPLATE, folder.join("additional_chat_templates").join("tool_use.jinja")),
    ];
    let mut found = Vec::new();
    for (name, path) in files {
        if let Some(bytes) = read(&path, MAX_TEMPLATE_BYTES)? {
            let source = String::from_utf8(bytes).map_err(|e| malformed(&path, e.to_string()))?;
            found.push(NamedTemplate::new(name, &source));
        }
    }
    found.extend(config.templates()?);
    Ok(found)
}

/// The ids that end an answer according to `generation_config.json`, else to `config.json`.
fn named_ends(folder: &Path) -> Result<Vec<u32>, ModelTextError> {
    for name in ["generation_config.json", "config.json"] {
        let ids = Config::read(folder.join(name))?.ids("eos_token_id")?;
        if !ids.is_empty() {
            return Ok(ids);
        }
    }
    Ok(Vec::new())
}

/// A JSON file; null when it is not there.
struct Config {
    path: PathBuf,
    value: Value,
}

impl Config {
    fn read(path: PathBuf) -> Result<Self, ModelTextError> {
        let value = match read(&path, MAX_CONFIG_BYTES)? {
            None => Value::Null,
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|e| malformed(&path, e.to_string()))?,
        };
        match value {
            Value::Null | Value::Object(_) => Ok(Config { path, value }),
            _ => Err(malformed(&path, "it is not a JSON object".to_owned())),
        }
    }

    /// The value of a key, unless it is absent or null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    /// A token is written as its text, or as an object that has it as `content`.
    fn token_text(&self, key: &str) -> Result<Option<String>, ModelTextError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        text.map(|text| Some(text.to_owned())).ok_or_else(|| self.wrong(key, "a token's text"))
    }

    /// Ids are written as one number or as a list of them.
    fn ids(&self, key: &str) -> Result<Vec<u32>, ModelTextError> {
        let values = match self.get(key) {
            None => &[],
            Some(Value::Array(list)) => list.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = values.iter().map(id).collect();
        ids.ok_or_else(|| self.wrong(key, "a token's id or a list of ids"))
    }

    /// Templates are written as one text or as a list of `{name, template}`.
    fn templates(&self) -> Result<Vec<NamedTemplate>, ModelTextError> {
        const KEY: &str = "chat_template";
        let one = |entry: &Value| {
            Some(NamedTemplate::new(entry.get("name")?.as_str()?, entry.get("template")?.as_str()?))
        };
        let found: Option<Vec<NamedTemplate>> = match self.get(KEY) {
            None => Some(Vec::new()),
            Some(Value::String(source)) => Some(vec![NamedTemplate::new(DEFAULT_TEMPLATE, source)]),
            Some(value) => value.as_array().and_then(|list| list.iter().map(one).collect()),
        };
        found.ok_or_else(|| self.wrong(KEY, "a text or a list of {name, template}"))
    }

    fn wrong(&self, key: &str, expected: &str) -> ModelTextError {
        malformed(&self.path, format!("{key:?} is not {expected}"))
    }
}

fn malformed(path: &Path, reason: String) -> ModelTextError {
    ModelTextError::Malformed { path: path.to_owned(), reason }
}

/// A whole file, or nothing if there is none.
fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, ModelTextError> {
    let failed = |source| ModelTextError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(malformed(path, format!("it is longer than {limit} bytes")));
    }
    Ok(Some(bytes))
}
