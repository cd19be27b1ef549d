//! Streams of events, and texts that end them.

use crate::common::{Response, Server, chat};
use serde_json::{Value, json};

/// The texts of a chat stream's deltas.
fn deltas(response: &Response) -> String {
    response
        .chunks()
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let server = Server::new();
    for seed in 0..5 {
        let whole = server.chat(json!({"seed": seed})).json();
        let stream = server.chat(json!({"seed": seed, "stream": true}));
        assert_eq!(deltas(&stream), whole["choices"][0]["message"]["content"].as_str().unwrap());

        let whole = server.complete(json!({"seed": seed})).json();
        let stream = server.complete(json!({"seed": seed, "stream": true}));
        let text: String = stream
            .chunks()
            .iter()
            .filter_map(|c| c["choices"][0]["text"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap());
    }
}

#[test]
fn chat_chunks_are_framed_as_clients_expect() {
    let stream = Server::new().chat(json!({"stream": true}));
    assert_eq!(stream.status, 200);
    assert!(
        stream.body.split("\n\n").filter(|event| !event.is_empty()).all(|event| event.starts_with("data: "))
    );
    let chunks = stream.chunks();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let (last, middle) = chunks[1..].split_last().unwrap();
    for chunk in middle {
        let choice = &chunk["choices"][0];
        let delta = choice["delta"].as_object().unwrap();
        assert_eq!(delta.keys().collect::<Vec<_>>(), ["content"], "{chunk}");
        assert!(!delta["content"].as_str().unwrap().is_empty());
        assert_eq!(choice["finish_reason"], Value::Null);
        assert!(chunk.get("usage").is_none());
    }
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["id"] == chunks[0]["id"] && chunk["object"] == "chat.completion.chunk")
    );
}

#[test]
fn usage_comes_only_on_request_and_last() {
    let stream = Server::new().chat(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let chunks = stream.chunks();
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 24);
    assert!(others.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[test]
fn stop_strings_end_the_answer_and_never_leak() {
    let server = Server::new();
    let whole = server.chat(json!({})).json();
    let whole = whole["choices"][0]["message"]["content"].as_str().unwrap();
    let characters: Vec<char> = whole.chars().collect();
    for (start, length) in [(3, 1), (4, 3), (2, 7)] {
        let stop: String = characters[start..start + length].iter().collect();
        let before = whole.split(&stop).next().unwrap();
        for stream in [false, true] {
            let answer = server
                .post("/v1/chat/completions", &chat(json!({"stop": [stop, "never"], "stream": stream})));
            let (text, finish) = if stream {
                (deltas(&answer), answer.chunks().last().unwrap()["choices"][0]["finish_reason"].clone())
            } else {
                let answer = answer.json();
                let choice = &answer["choices"][0];
                (choice["message"]["content"].as_str().unwrap().to_owned(), choice["finish_reason"].clone())
            };
            assert_eq!((text.as_str(), finish), (before, json!("stop")), "stop {stop:?}");
        }
    }
}
