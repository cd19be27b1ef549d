//! Queues, sizes, and clients that misbehave.

use crate::common::{CONTEXT, Server, chat, response};
use serde_json::json;
use std::io::{BufRead, Read};

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = Server::new();
    let answer = response(server.start_post("/v1/completions", &" ".repeat((8 << 20) + 1)));
    assert_eq!(answer.status, 413, "{}", answer.body);
}

#[test]
fn headers_that_are_too_large_are_refused() {
    let server = Server::new();
    let head =
        format!("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    assert_eq!(response(server.send(head.as_bytes())).status, 431);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_full_queue_says_try_again() {
    let server = Server::with_limits(1, 1);
    let long = chat(json!({"max_tokens": CONTEXT - 60, "stream": true})).to_string();
    // One runs, one waits, and of the many that come after at least one finds the queue full.
    let streams: Vec<_> = (0..12).map(|_| server.start_post("/v1/chat/completions", &long)).collect();
    let answers: Vec<_> = streams.into_iter().map(response).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty());
    for answer in refused {
        assert_eq!(answer.status, 429, "{}", answer.body);
        assert!(answer.head.to_lowercase().contains("retry-after: 1"), "{}", answer.head);
    }
    assert_eq!(server.chat(json!({})).status, 200);
}

#[test]
fn a_client_that_goes_away_makes_room() {
    let server = Server::with_limits(1, 64);
    for _ in 0..20 {
        let mut stream = server.start_post(
            "/v1/chat/completions",
            &chat(json!({"max_tokens": CONTEXT - 60, "stream": true})).to_string(),
        );
        stream.read_line(&mut String::new()).unwrap();
        drop(stream);
    }
    assert_eq!(server.chat(json!({"max_tokens": 1})).status, 200);
}

#[test]
fn a_reader_that_waits_loses_nothing_and_blocks_nobody() {
    let server = Server::with_limits(2, 64);
    let body = chat(json!({"max_tokens": 150, "stream": true})).to_string();
    let mut slow = server.start_post("/v1/chat/completions", &body);
    (0..3).for_each(|_| assert_eq!(server.chat(json!({})).status, 200));
    let mut rest = String::new();
    slow.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]"));
}
