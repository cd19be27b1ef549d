//! Requests that are refused, and what they are told.

use crate::common::{Server, response};
use serde_json::{Value, json};

/// The request is answered with 400 about `param`.
fn assert_refused(response: &crate::common::Response, param: &str) {
    assert_eq!(response.status, 400, "{param}: {}", response.body);
    let error = response.json()["error"].clone();
    assert_eq!(error["type"], "invalid_request_error");
    assert!(error["message"].as_str().unwrap().contains(param), "{param}: {error}");
}

#[test]
fn fields_that_are_not_supported_are_named() {
    let server = Server::new();
    let both: [(&str, Value); 5] = [
        ("n", json!(2)),
        ("no_such_field", json!(1)),
        ("store", json!(true)),
        ("service_tier", json!("flex")),
        ("stream_options", json!({"include_usage": true})),
    ];
    for (field, value) in both {
        let change = json!({field: value});
        assert_refused(&server.chat(change.clone()), field);
        assert_refused(&server.complete(change), field);
    }
    let chat = [
        ("response_format", json!({"type": "json_object"})),
        ("tool_choice", json!("required")),
        ("functions", json!([])),
        ("reasoning_effort", json!("high")),
        ("audio", json!({})),
        ("top_logprobs", json!(2)),
    ];
    for (field, value) in chat {
        assert_refused(&server.chat(json!({field: value})), field);
    }
    for (field, value) in [("echo", json!(true)), ("best_of", json!(2)), ("suffix", json!("x"))] {
        assert_refused(&server.complete(json!({field: value})), field);
    }
    // Null and default values mean the same as no field.
    let answer = server.chat(
        json!({"n": 1, "functions": null, "tools": [], "user": "u", "response_format": {"type": "text"}}),
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn values_of_the_wrong_type_or_range_are_named() {
    let server = Server::new();
    let cases = [
        ("temperature", json!("hot")),
        ("temperature", json!(-1)),
        ("top_p", json!(0)),
        ("top_k", json!(-1)),
        ("seed", json!(1.5)),
        ("stop", json!("")),
        ("stop", json!([1])),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-1)),
        ("logit_bias", json!({"x": 1})),
        ("logit_bias", json!({"5": 200})),
        ("stream", json!("yes")),
        ("presence_penalty", json!(3)),
    ];
    for (field, value) in cases {
        assert_refused(&server.chat(json!({field: value})), field);
    }
    assert_refused(&server.chat(json!({"top_logprobs": 21, "logprobs": true})), "top_logprobs");
    assert_refused(&server.complete(json!({"logprobs": 6})), "logprobs");
    assert_refused(&server.complete(json!({"prompt": {"a": 1}})), "prompt");
    assert_refused(&server.complete(json!({"prompt": ""})), "prompt");
}

#[test]
fn messages_are_checked_one_by_one() {
    let server = Server::new();
    let good = json!({"role": "user", "content": "x"});
    let cases = [
        (json!([]), "messages"),
        (json!("x"), "messages"),
        (json!([good, 5]), "messages[1]"),
        (json!([good, {"content": "x"}]), "messages[1].role"),
        (json!([{"role": "robot", "content": "x"}]), "messages[0].role"),
        (json!([{"role": "user", "content": 5}]), "messages[0].content"),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
            "messages[0].content[0]",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ];
    for (messages, param) in cases {
        assert_refused(&server.chat(json!({"messages": messages})), param);
    }
    let tool_turn = json!([
        good,
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}
        ]},
        {"role": "tool", "tool_call_id": "1", "content": "2"}
    ]);
    let answer = server.chat(json!({"messages": tool_turn}));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn prompts_that_do_not_fit_are_told_the_numbers() {
    let server = Server::new();
    let long = server.complete(json!({"prompt": "apple pear ".repeat(60)}));
    assert_refused(&long, "256");
    let longer = server.complete(json!({"prompt": "apple pear ".repeat(2000)}));
    assert_refused(&longer, "22000 bytes");
    assert_refused(&server.complete(json!({"max_tokens": 1000})), "1000 answer tokens");
}

#[test]
fn unknown_models_paths_and_methods() {
    let server = Server::new();
    let answer = server.chat(json!({"model": "gpt-5"}));
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert!(answer.body.contains("tiny"));
    assert_eq!(server.get("/v2/anything").json()["error"]["type"], "invalid_request_error");
    let wrong = server.get("/v1/chat/completions");
    assert_eq!((wrong.status, &wrong.json()["error"]["type"]), (405, &json!("invalid_request_error")));
}

#[test]
fn bodies_that_are_no_requests() {
    let server = Server::new();
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let deep = format!("{{\"model\": {deep}}}");
    for body in ["", "{", "[]", "5", "\u{feff}{}", &deep] {
        let answer = response(server.start_post("/v1/chat/completions", body));
        assert_eq!(answer.status, 400, "{body:.20}: {}", answer.body);
        assert!(answer.body.contains("body"), "{}", answer.body);
    }
}
