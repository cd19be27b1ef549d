//! A server in this process and a plain HTTP client.

use pomar_api::Served;
use pomar_engine::Split;
use pomar_runtime::{Instance, InstanceSpec, Limits, Transport};
use pomar_text::ModelText;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

pub(crate) const CONTEXT: usize = 256;

/// A server; it ends with the test.
pub(crate) struct Server {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

/// A response taken apart.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The `data:` lines of a stream.
    pub(crate) fn events(&self) -> Vec<&str> {
        assert!(self.head.to_lowercase().contains("content-type: text/event-stream"), "{}", self.head);
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }

    /// The chunks of a stream that ends as it should.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let events = self.events();
        let (last, chunks) = events.split_last().unwrap();
        assert_eq!(*last, "[DONE]");
        chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
    }
}

impl Server {
    /// A server that runs `sequences` requests at a time and lets `waiting` wait.
    pub(crate) fn with_limits(sequences: usize, waiting: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
        for model in ["llama", "tokenizer-512"] {
            for file in std::fs::read_dir(fixtures.join(model)).unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
            }
        }
        let limits = Limits { context: CONTEXT, pages: 32, step_tokens: 64, sequences, waiting };
        let instance = Instance::start(InstanceSpec {
            model: folder.path().into(),
            split: Split::ONE,
            threads: 1,
            limits,
            transport: Transport::Shm,
            program: None,
        });
        let served = Served {
            name: "tiny".into(),
            text: Arc::new(ModelText::open(folder.path()).unwrap()),
            instance: Arc::new(instance.unwrap()),
            context: CONTEXT,
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(pomar_api::serve(listener, served, std::future::pending()));
        Self { address, _runtime: runtime, _folder: folder }
    }

    pub(crate) fn new() -> Self {
        Self::with_limits(4, 64)
    }

    /// Sends raw bytes and returns the connection.
    pub(crate) fn send(&self, bytes: &[u8]) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // A server that refuses early may close before it has read everything.
        let _ = stream.write_all(bytes);
        BufReader::new(stream)
    }

    pub(crate) fn start_post(&self, path: &str, body: &str) -> BufReader<TcpStream> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        self.send(&[head.as_bytes(), body.as_bytes()].concat())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        response(self.start_post(path, &body.to_string()))
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        response(self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()))
    }

    pub(crate) fn chat(&self, change: Value) -> Response {
        self.post("/v1/chat/completions", &chat(change))
    }

    pub(crate) fn complete(&self, change: Value) -> Response {
        self.post("/v1/completions", &completion(change))
    }
}

/// A chat request with some fields changed or added.
pub(crate) fn chat(change: Value) -> Value {
    let base = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "apple"}], "max_tokens": 24, "seed": 7,
        "temperature": 0.7
    });
    merged(base, change)
}

/// A text completion request with some fields changed or added.
pub(crate) fn completion(change: Value) -> Value {
    merged(
        json!({"model": "tiny", "prompt": "apple", "max_tokens": 24, "seed": 7, "temperature": 0.7}),
        change,
    )
}

fn merged(mut base: Value, change: Value) -> Value {
    let Value::Object(change) = change else { panic!("{change}") };
    base.as_object_mut().unwrap().extend(change);
    base
}

/// Reads a response to its end.
pub(crate) fn response(mut connection: BufReader<TcpStream>) -> Response {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(connection.read_line(&mut head).unwrap() > 0, "the connection ended within the head: {head}");
    }
    let mut body = Vec::new();
    connection.read_to_end(&mut body).unwrap();
    if head.to_lowercase().contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head, body: String::from_utf8(body).unwrap() }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend(&body[end + 2..end + 2 + length]);
        body = &body[end + 4 + length..];
    }
}
