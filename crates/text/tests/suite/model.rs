//! Model folders and GGUF metadata: what is found, and what is said when it is damaged.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::fixtures;
use pomar_text::{ModelText, ModelTextError, Render, TemplateError};
use serde_json::{Value, json};
use tempfile::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = fixtures().join("tokenizers/llama3-style-own/tokenizer.json");
    fs::copy(tokenizer, folder.path().join("tokenizer.json")).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn render(model: &ModelText, tools: Option<&[Value]>) -> Result<String, ModelTextError> {
    model.render(&Render { tools, ..Render::new(&[json!({"role": "user", "content": "hi"})]) })
}

#[test]
fn a_folder_gives_tokenizer_template_and_end_tokens() {
    let folder = folder(&[
        ("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}"),
        (
            "tokenizer_config.json",
            r#"{"bos_token": {"content": "<|begin_of_text|>"}, "eos_token": "<|end_of_text|>"}"#,
        ),
        ("generation_config.json", r#"{"eos_token_id": [1201, 1205]}"#),
        ("config.json", r#"{"eos_token_id": 7}"#),
    ]);
    let model = ModelText::open(folder.path()).unwrap();
    assert_eq!(render(&model, None).unwrap(), "<|begin_of_text|>hi");
    assert_eq!((model.tokenizer().bos(), model.tokenizer().eos()), (Some(1200), Some(1201)));
    // 1204 is <|eot_id|>, which ends a turn though no file says so.
    assert_eq!(*model.end_tokens(), BTreeSet::from([1201, 1204, 1205]));
}

#[test]
fn config_json_names_the_end_token_when_generation_config_does_not() {
    let folder = folder(&[("generation_config.json", "{}"), ("config.json", r#"{"eos_token_id": 7}"#)]);
    assert!(ModelText::open(folder.path()).unwrap().end_tokens().contains(&7));
}

#[test]
fn named_templates_are_chosen_by_whether_there_are_tools() {
    let folder = folder(&[(
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}"#,
    )]);
    let model = ModelText::open(folder.path()).unwrap();
    assert_eq!(render(&model, None).unwrap(), "D");
    assert_eq!(render(&model, Some(&[json!({})])).unwrap(), "T");
}

#[test]
fn a_model_without_a_usable_template_still_opens() {
    let without = ModelText::open(folder(&[]).path()).unwrap();
    assert!(matches!(render(&without, None), Err(ModelTextError::NoTemplate)));
    let broken = ModelText::open(folder(&[("chat_template.jinja", "{% if %}")]).path()).unwrap();
    assert!(matches!(render(&broken, None), Err(ModelTextError::Template(TemplateError::Syntax(_)))));
}

#[test]
fn damaged_files_are_named() {
    let cases = [
        ("tokenizer.json", "{", "tokenizer.json"),
        ("tokenizer_config.json", "[]", "not a JSON object"),
        ("tokenizer_config.json", r#"{"bos_token": 5}"#, "\"bos_token\""),
        ("tokenizer_config.json", r#"{"chat_template": [{"name": "x"}]}"#, "\"chat_template\""),
        ("generation_config.json", r#"{"eos_token_id": "x"}"#, "\"eos_token_id\""),
        ("config.json", "nonsense", "config.json"),
    ];
    for (name, text, expected) in cases {
        let message = ModelText::open(folder(&[(name, text)]).path()).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(expected), "{name}: {message}");
    }
    let empty = tempfile::tempdir().unwrap();
    let message = ModelText::open(empty.path()).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json"), "{message}");
}

#[test]
fn gguf_metadata_gives_the_same_kinds_of_things() {
    let model = ModelText::open(&gguf("smollm2-trunc")).unwrap();
    assert_eq!(model.bos_text(), Some("<|im_start|>"));
    assert_eq!(model.eos_text(), Some("<|im_end|>"));
    let id = |token| model.tokenizer().id_of(token).unwrap();
    assert_eq!(*model.end_tokens(), BTreeSet::from([id("<|im_end|>"), id("<|endoftext|>")]));
    assert!(matches!(model.template(false), Err(ModelTextError::NoTemplate)));
    // In Harmony's format <|end|> ends a message, not the answer.
    let harmony = ModelText::open(&gguf("gpt_oss-trunc")).unwrap();
    let id = |token| harmony.tokenizer().id_of(token).unwrap();
    assert!(harmony.end_tokens().contains(&id("<|return|>")));
    assert!(!harmony.end_tokens().contains(&id("<|end|>")));
}

fn gguf(name: &str) -> std::path::PathBuf {
    fixtures().join("tokenizers").join(name).join("vocab.gguf")
}

#[test]
fn a_file_that_is_no_model_is_an_error() {
    assert!(ModelText::open(Path::new("/no/such/model.gguf")).is_err());
}
