//! Reading the fixtures.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use pomar_text::template::Clock;
use pomar_text::{ChatTemplate, Nulls, Render, TemplateError};
use serde_json::Value;

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub fn json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn ids(value: &Value) -> Vec<u32> {
    array(value)
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// 2026-01-15 12:34:56 UTC, when the renderings were made.
pub fn fixed_clock() -> Clock {
    Arc::new(|| UNIX_EPOCH + Duration::from_secs(1_768_480_496))
}

/// What became of the cases of a file of renderings.
#[derive(Debug, Default)]
pub struct Tally {
    pub equal: usize,
    /// The template refused the messages, as the reference says it must.
    pub refused: usize,
    /// The reference's engine failed on these; nothing is asked of ours.
    pub engine_failures: usize,
    pub wrong: Vec<String>,
}

/// Renders every case of `folder/vectors/name.json` and compares text exactly.
pub fn check_template(folder: &Path, name: &str, conversations: &Value) -> Tally {
    let source = std::fs::read_to_string(folder.join(format!("templates/{name}.jinja"))).unwrap();
    let vectors = json(&folder.join(format!("vectors/{name}.json")));
    let template = ChatTemplate::with_clock(&source, fixed_clock()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut tally = Tally::default();
    for case in array(&vectors["cases"]) {
        let rendered = render_case(&template, &vectors, case, conversations);
        match (case["text"].as_str(), case["error_type"].as_str(), rendered) {
            (Some(expected), _, Ok(text)) if text == expected => tally.equal += 1,
            (None, Some("TemplateError"), Err(TemplateError::Raised(message)))
                if Some(message.as_str()) == case["error"].as_str() =>
            {
                tally.refused += 1;
            }
            (None, Some(kind), _) if kind != "TemplateError" => tally.engine_failures += 1,
            (_, _, got) => tally.wrong.push(describe(name, case, &got)),
        }
    }
    tally
}

fn render_case(
    template: &ChatTemplate,
    vectors: &Value,
    case: &Value,
    conversations: &Value,
) -> Result<String, TemplateError> {
    let conversation = &conversations[case["conversation"].as_str().unwrap()];
    template.render(&Render {
        tools: conversation["tools"].as_array().map(Vec::as_slice),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
        bos_token: vectors["bos_token"].as_str(),
        eos_token: vectors["eos_token"].as_str(),
        kwargs: case["kwargs"].as_object(),
        nulls: match case["null"].as_str() {
            None => Nulls::Drop,
            Some("empty") => Nulls::EmptyContent,
            Some("kept") => Nulls::Keep,
            Some(other) => panic!("unknown null mode {other}"),
        },
        ..Render::new(array(&conversation["messages"]))
    })
}

fn describe(name: &str, case: &Value, got: &Result<String, TemplateError>) -> String {
    let what = format!(
        "{name} {} null={} kwargs={}",
        case["conversation"], case["null"], case["kwargs"]
    );
    format!(
        "{what}\n  expected {} {}\n  got      {got:?}",
        case["text"], case["error"]
    )
}
