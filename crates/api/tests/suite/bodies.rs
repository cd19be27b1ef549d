//! What answers look like.

use crate::common::{CONTEXT, Server};
use serde_json::{Value, json};

#[test]
fn a_chat_answer_has_the_shape_clients_expect() {
    let answer = Server::new().chat(json!({}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("tiny")));
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert!(answer["choices"][0].get("logprobs").is_none());
    let usage = &answer["usage"];
    assert_eq!(usage["completion_tokens"], 24);
    let sum = usage["prompt_tokens"].as_u64().unwrap() + 24;
    assert_eq!(usage["total_tokens"], sum);
}

#[test]
fn the_seed_decides() {
    let server = Server::new();
    let text = |seed: i64| server.complete(json!({"seed": seed})).json()["choices"][0]["text"].clone();
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
    assert_eq!(text(-3), text(-3));
}

#[test]
fn token_ids_are_prompts_too() {
    let server = Server::new();
    let answer = server.complete(json!({"prompt": [5, 6, 7]})).json();
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
    let refused = server.complete(json!({"prompt": [5, 512]}));
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("512"), "{}", refused.body);
}

#[test]
fn content_may_come_in_parts() {
    let server = Server::new();
    let parts = json!([{"type": "text", "text": "app"}, {"type": "text", "text": "le"}]);
    let in_parts = server.chat(json!({"messages": [{"role": "user", "content": parts}]})).json();
    assert_eq!(in_parts["choices"], server.chat(json!({})).json()["choices"]);
}

#[test]
fn penalties_and_bias_are_honoured() {
    let server = Server::new();
    let text = |change: Value| {
        let body = crate::common::completion(json!({"temperature": 0, "max_tokens": 8}));
        let mut body = body.as_object().unwrap().clone();
        body.extend(change.as_object().unwrap().clone());
        server.post("/v1/completions", &Value::Object(body)).json()["choices"][0]["text"].clone()
    };
    let plain = text(json!({}));
    assert_eq!(text(json!({"top_k": 1, "temperature": 2.0})), plain);
    assert_eq!(text(json!({"min_p": 1.0, "temperature": 2.0})), plain);
    assert_ne!(text(json!({"logit_bias": {"80": 100}})), plain);
    assert_ne!(text(json!({"temperature": 3.0})), plain);
}

#[test]
fn log_probabilities_of_chat() {
    let answer = Server::new().chat(json!({"logprobs": true, "top_logprobs": 3, "max_tokens": 4})).json();
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 4);
    for token in content {
        assert!(token["logprob"].as_f64().unwrap() <= 0.0 && token["bytes"].is_array());
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn log_probabilities_of_completions() {
    let answer = Server::new().complete(json!({"logprobs": 2, "max_tokens": 4, "temperature": 0})).json();
    let logprobs = &answer["choices"][0]["logprobs"];
    for part in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(logprobs[part].as_array().unwrap().len(), 4, "{part}");
    }
    assert_eq!(logprobs["text_offset"][0], 0);
}

#[test]
fn models_and_health() {
    let server = Server::new();
    let models = server.get("/v1/models").json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("tiny")));
    assert_eq!(server.get("/v1/models/tiny").json()["context_length"], CONTEXT);
    assert_eq!(server.get("/v1/models/other/model").status, 404);
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("ready")));
}
