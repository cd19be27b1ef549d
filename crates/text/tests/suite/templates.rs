//! Chat templates against the renderings of `transformers`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::common::{array, fixtures, json};
use pomar_text::template::Clock;
use pomar_text::{ChatTemplate, Nulls, Render, TemplateError};
use serde_json::Value;

#[test]
fn own_templates_render_as_the_reference_does() {
    let folder = fixtures().join("chat");
    let conversations = json(&folder.join("conversations.json"));
    for name in ["llama3_own", "gemma_own"] {
        let tally = check_template(&folder, name, &conversations);
        assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
        assert_eq!((tally.equal, tally.engine_failures), (21, 0), "{name}");
    }
}

/// Templates that others published are not part of this project. Where the folder that holds them
/// lies beside it, all of them are checked.
#[test]
fn published_templates_render_as_the_reference_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/text/chat");
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return;
    }
    let conversations = json(&folder.join("conversations.json"));
    let mut sum = Tally::default();
    let templates = templates(&folder);
    for path in &templates {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let tally = check_template(&folder, name, &conversations);
        sum.equal += tally.equal;
        sum.refused += tally.refused;
        sum.engine_failures += tally.engine_failures;
        sum.wrong.extend(tally.wrong);
    }
    println!(
        "{} templates: {} texts equal, {} refusals equal, {} cases on which the reference's engine fails",
        templates.len(),
        sum.equal,
        sum.refused,
        sum.engine_failures
    );
    assert!(sum.wrong.is_empty(), "{} wrong:\n{}", sum.wrong.len(), sum.wrong.join("\n"));
    assert!(sum.equal > 500, "only {} texts were compared", sum.equal);
}

fn templates(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("templates")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// 2026-01-15 12:34:56 UTC, when the renderings were made.
fn fixed_clock() -> Clock {
    Arc::new(|| UNIX_EPOCH + Duration::from_secs(1_768_480_496))
}

/// What became of the cases of a file of renderings.
#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    /// The template refused the messages, as the reference says it must.
    refused: usize,
    /// The reference's engine failed on these; nothing is asked of ours.
    engine_failures: usize,
    wrong: Vec<String>,
}

/// Renders every case of `folder/vectors/name.json` and compares text exactly.
fn check_template(folder: &Path, name: &str, conversations: &Value) -> Tally {
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
    let what = format!("{name} {} null={} kwargs={}", case["conversation"], case["null"], case["kwargs"]);
    format!("{what}\n  expected {} {}\n  got      {got:?}", case["text"], case["error"])
}
