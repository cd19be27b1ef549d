//! A chat template, rendered for messages that are as hostile as the template.

use pomar_text::{ChatTemplate, Render};
use serde_json::{Value, json};

/// Most bytes of a prompt: this much, and this much for each byte of input.
const BASE_PROMPT: usize = 2 << 20;
const PROMPT_PER_BYTE: usize = 64;

/// `bytes` is the template's text; after a zero byte there can be the messages, a JSON array, instead of a short
/// conversation.
///
/// # Panics
/// When a prompt is far longer than template and messages warrant.
pub fn chat_template(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let source = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let messages = match parts.next().map(serde_json::from_slice) {
        Some(Ok(Value::Array(messages))) => messages,
        Some(_) => return,
        None => conversation(),
    };
    let Ok(template) = ChatTemplate::new(&source) else {
        return;
    };
    let tools = [json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}})];
    for tools in [None, Some(tools.as_slice())] {
        let request =
            Render { tools, bos_token: Some("<s>"), eos_token: Some("</s>"), ..Render::new(&messages) };
        if let Ok(prompt) = template.render(&request) {
            assert!(prompt.len() <= BASE_PROMPT + PROMPT_PER_BYTE * bytes.len());
        }
    }
}

fn conversation() -> Vec<Value> {
    vec![
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": [{"type": "text", "text": "What is 2 + 2?"}]}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 2, "b": [1.5, true]}}}
        ]}),
        json!({"role": "tool", "tool_call_id": "1", "content": "4"}),
        json!({"role": "user", "content": "Thanks. <|im_end|>"}),
    ]
}
