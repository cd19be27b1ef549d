//! Ranks that are killed, clients that go away, readers that are slow: what a server must get over.

use crate::common::{pomar, smollm2};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The promise: a request whose rank was killed ends within this time.
const TWO_SECONDS: Duration = Duration::from_secs(2);

/// A process that is ended with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        smollm2();
        let arguments = [&["serve", "smollm2", "--listen", "127.0.0.1:0", "--threads", "1"], more].concat();
        let mut child = pomar(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        Self { child, address }
    }

    fn ranks(&self) -> Vec<u32> {
        ranks_of(self.child.id())
    }

    /// Sends a chat request and returns the connection after the response's headers.
    fn chat(&self, body: &Value) -> BufReader<TcpStream> {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(
            stream,
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        BufReader::new(stream)
    }

    /// The whole response to a chat request.
    fn answer(&self, body: &Value) -> String {
        let mut response = String::new();
        self.chat(body).read_to_string(&mut response).unwrap();
        response
    }

    fn is_healthy(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(&self.address) else {
            return false;
        };
        let mut response = String::new();
        write!(stream, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_to_string(&mut response).unwrap();
        response.starts_with("HTTP/1.1 200")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ranks = self.ranks();
        let _ = self.child.kill();
        let _ = self.child.wait();
        wait_until("ranks end with their front", || ranks.iter().all(|&rank| !is_alive(rank)));
    }
}

fn question(max_tokens: usize, stream: bool) -> Value {
    json!({
        "model": "smollm2", "messages": [{"role": "user", "content": "Tell me a long story about a pear tree."}],
        "max_tokens": max_tokens, "temperature": 0, "stream": stream
    })
}

/// A prompt that takes seconds to read.
fn long_question(words: usize) -> Value {
    let mut body = question(8, false);
    body["messages"][0]["content"] = "pear tree ".repeat(words).into();
    body
}

/// Process numbers of a process's `pomar rank` children, by rank: they are started in that order.
fn ranks_of(parent: u32) -> Vec<u32> {
    let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat=,args="]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut ranks: Vec<u32> = listed
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_rank =
                words[1] == parent.to_string() && !words[2].starts_with('Z') && words.last() == Some(&"rank");
            is_rank.then(|| words[0].parse().unwrap())
        })
        .collect();
    ranks.sort_unstable();
    ranks
}

fn is_alive(process: u32) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", &process.to_string()]).output().unwrap().stdout;
    !state.is_empty() && !state.starts_with(b"Z")
}

fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited a minute for: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Names under /dev/shm, where there is one.
fn shared_memory() -> Vec<String> {
    let Ok(listed) = std::fs::read_dir("/dev/shm") else {
        return Vec::new();
    };
    let mut names: Vec<String> =
        listed.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn killed_during(
    what: &str,
    transport: &str,
    rank: usize,
    body: &Value,
    before_kill: impl Fn(&mut BufReader<TcpStream>),
) {
    let server = Server::start(&["--split", "tp2xpp2", "--transport", transport]);
    let ranks = server.ranks();
    assert_eq!(ranks.len(), 4);
    let mut response = server.chat(body);
    before_kill(&mut response);
    kill(ranks[rank]);
    let killed = Instant::now();
    let mut rest = String::new();
    response.read_to_string(&mut rest).unwrap();
    let took = killed.elapsed();
    println!("{transport}, rank {rank} killed during {what}: the request ended after {took:?}");
    assert!(took < TWO_SECONDS, "{took:?}");
    assert!(
        rest.contains(&format!("rank {rank} (process {}) was killed by signal 9", ranks[rank])),
        "{rest}"
    );
    assert!(!rest.contains("[DONE]"), "{rest}");
    wait_until("the others to exit", || ranks.iter().all(|&rank| !is_alive(rank)));
    wait_until("the ranks to be back", || server.is_healthy());
    let answer = server.answer(&question(4, false));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_rank_killed_while_decoding() {
    let shared = shared_memory();
    for (transport, rank) in [("shm", 0), ("shm", 1), ("shm", 3), ("tcp", 0), ("tcp", 2)] {
        killed_during("decode", transport, rank, &question(1500, true), |response| {
            let mut line = String::new();
            while !line.contains("\"content\"") {
                line.clear();
                assert!(response.read_line(&mut line).unwrap() > 0);
            }
        });
    }
    assert_eq!(shared_memory(), shared);
}

#[test]
fn a_rank_killed_while_reading_the_prompt() {
    for (transport, rank) in [("shm", 0), ("shm", 2), ("tcp", 1), ("tcp", 3)] {
        // No byte of an answer comes before the prompt is read, which takes seconds.
        killed_during("prefill", transport, rank, &long_question(3500), |_| {
            thread::sleep(Duration::from_millis(400))
        });
    }
}

#[test]
fn a_rank_killed_under_run() {
    smollm2();
    for split in ["tp2", "pp3"] {
        let arguments = ["run", "smollm2", "Tell me a very long story.", "--split", split];
        let mut run = pomar(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 8];
        run.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        let ranks = ranks_of(run.id());
        kill(ranks[1]);
        let killed = Instant::now();
        let output = run.wait_with_output().unwrap();
        assert!(killed.elapsed() < TWO_SECONDS, "{:?}", killed.elapsed());
        assert!(!output.status.success());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(&format!("rank 1 (process {}) was killed by signal 9", ranks[1])), "{error}");
        wait_until("the ranks to exit", || ranks.iter().all(|&rank| !is_alive(rank)));
    }
}

#[test]
fn ranks_end_when_their_front_is_killed() {
    let mut server = Server::start(&["--split", "tp2"]);
    let ranks = server.ranks();
    assert_eq!(ranks.len(), 2);
    let mut response = server.chat(&question(1500, true));
    response.read_line(&mut String::new()).unwrap();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    wait_until("the ranks to exit", || ranks.iter().all(|&rank| !is_alive(rank)));
}

#[test]
fn a_client_that_goes_away_frees_its_place() {
    let server = Server::start(&["--parallel", "1"]);
    let mut response = server.chat(&question(8000, true));
    response.read_line(&mut String::new()).unwrap();
    drop(response);
    // With one place, this is answered only because the first request gave its place up.
    let started = Instant::now();
    assert!(server.answer(&question(2, false)).starts_with("HTTP/1.1 200"));
    println!("answered {:?} after the client went away", started.elapsed());
}

#[test]
fn a_slow_reader_blocks_nobody() {
    let server = Server::start(&["--parallel", "2"]);
    let slow = server.chat(&question(600, true));
    for _ in 0..3 {
        assert!(server.answer(&question(4, false)).starts_with("HTTP/1.1 200"));
    }
    let mut rest = String::new();
    { slow }.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]"), "nothing of a slow reader's answer is lost");
}
