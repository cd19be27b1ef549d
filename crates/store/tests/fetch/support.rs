//! A model hub on loopback that can misbehave in every way that the tests need.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pomar_store::{Limits, Settings};
use sha1::{Digest, Sha1};
use sha2::Sha256;

/// The commit that the hub's `main` stands for.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How the next request for a file is answered; when none is left, properly.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Properly.
    Fine,
    /// Properly, with this entity tag instead of the usual one.
    Tag(&'static str),
    /// The range asked for, with this tag, whatever tag was asked for.
    TagOfRange(&'static str),
    /// So many bytes before the range asked for.
    EarlierRange(usize),
    /// The whole file, whatever range was asked for.
    IgnoreRange,
    /// 416, whatever range was asked for.
    Refuse,
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// The `Content-Length` is this one.
    Length(u64),
    /// No `Content-Length`, and so many bytes more than there should be.
    TooLong(usize),
    /// So many bytes at a time, with a pause after each.
    Drip(usize, Duration),
    /// The head, then silence for so long.
    Stall(Duration),
    /// The last byte is another one.
    WrongByte,
    /// A redirect to that place.
    Redirect(String),
    /// That status, with a `Retry-After` in seconds if any.
    Status(u16, Option<u32>),
}

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// First byte of the range asked for.
    pub(crate) fn range_start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

struct State {
    /// What `main` and every other branch stand for.
    commit: String,
    files: Vec<(String, Vec<u8>)>,
    /// What the listing says of each file.
    listing: Vec<serde_json::Value>,
    faults: VecDeque<Fault>,
    requests: Vec<Request>,
}

/// A hub with one repository `o/r`.
#[derive(Clone)]
pub(crate) struct Hub {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl Hub {
    /// Starts a hub whose repository holds these files. It serves until the test process ends.
    pub(crate) fn start(files: &[(&str, &[u8])]) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let listing = files.iter().map(|(name, content)| entry(name, content)).collect();
        let files = files.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
        let state = State {
            commit: COMMIT.to_owned(),
            files,
            listing,
            faults: VecDeque::new(),
            requests: Vec::new(),
        };
        let hub = Hub { url, state: Arc::new(Mutex::new(state)) };
        let serving = hub.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hub = serving.clone();
                // A client that goes away is part of the tests.
                thread::spawn(move || drop(hub.serve(stream)));
            }
        });
        hub
    }

    /// Queues answers for the next requests of files.
    pub(crate) fn faults(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().expect("no panic").faults.extend(faults);
    }

    /// From now on every branch stands for that commit.
    pub(crate) fn move_main(&self, commit: &str) {
        self.state.lock().expect("no panic").commit = commit.to_owned();
    }

    /// All requests for files so far.
    pub(crate) fn downloads(&self) -> Vec<Request> {
        let state = self.state.lock().expect("no panic");
        state.requests.iter().filter(|r| !r.path.starts_with("/api/")).cloned().collect()
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().expect("no panic").requests.clone()
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let request = read_request(&stream)?;
        let mut state = self.state.lock().expect("no panic");
        state.requests.push(request.clone());
        let path = request.path.split('?').next().unwrap_or_default();
        let mut out = &stream;
        if path.starts_with("/api/models/o/r/revision/") {
            return write_reply(&mut out, 200, &[], format!("{{\"sha\":\"{}\"}}", state.commit).as_bytes());
        }
        if path.starts_with("/api/models/o/r/tree/") {
            return serve_tree(&mut out, &request.path, &state.listing);
        }
        let name =
            path.strip_prefix(&format!("/o/r/resolve/{}/", state.commit)).or(path.strip_prefix("/cdn/"));
        let file = name.and_then(|name| state.files.iter().find(|(n, _)| n == name)).cloned();
        let Some((_, content)) = file else {
            return write_reply(&mut out, 404, &[], b"no such thing");
        };
        let fault = state.faults.pop_front().unwrap_or(Fault::Fine);
        drop(state);
        serve_file(&mut out, &request, content, fault)
    }
}

/// Two files a page, so that every listing of more has a `Link` to follow.
fn serve_tree(out: &mut impl Write, path: &str, listing: &[serde_json::Value]) -> std::io::Result<()> {
    let page: usize = path.split("page=").nth(1).and_then(|page| page.parse().ok()).unwrap_or(0);
    let entries: Vec<_> = listing.iter().skip(2 * page).take(2).cloned().collect();
    let body = serde_json::Value::Array(entries).to_string();
    let link = format!("</api/models/o/r/tree/x?page={}>; rel=\"next\"", page + 1);
    let more = listing.len() > 2 * (page + 1);
    let headers: &[(&str, &str)] = if more { &[("link", &link)] } else { &[] };
    write_reply(out, 200, headers, body.as_bytes())
}

/// Small files are listed with their git hash, others with their SHA-256, as the hub does.
fn entry(name: &str, content: &[u8]) -> serde_json::Value {
    let mut git = Sha1::new_with_prefix(format!("blob {}\0", content.len()));
    git.update(content);
    let mut entry = serde_json::json!({
        "type": "file", "path": name, "size": content.len(), "oid": hex(&git.finalize()),
    });
    if content.len() > 1000 {
        entry["lfs"] = serde_json::json!({"oid": hex(&Sha256::digest(content)), "size": content.len()});
    }
    entry
}

fn serve_file(
    out: &mut impl Write,
    request: &Request,
    mut content: Vec<u8>,
    fault: Fault,
) -> std::io::Result<()> {
    match &fault {
        Fault::Redirect(to) => return write_reply(out, 302, &[("location", to)], b""),
        Fault::Refuse => return write_reply(out, 416, &[], b""),
        Fault::Status(status, None) => return write_reply(out, *status, &[], b"sorry"),
        Fault::Status(status, Some(seconds)) => {
            return write_reply(out, *status, &[("retry-after", &seconds.to_string())], b"sorry");
        }
        Fault::WrongByte => *content.last_mut().expect("not empty") ^= 1,
        _ => {}
    }
    let tag = match fault {
        Fault::Tag(tag) | Fault::TagOfRange(tag) => tag,
        _ => "\"one\"",
    };
    let changed = request.header("if-range").is_some_and(|asked| asked != tag);
    let whole = matches!(fault, Fault::IgnoreRange) || (changed && !matches!(fault, Fault::TagOfRange(_)));
    let earlier = if let Fault::EarlierRange(n) = fault { n } else { 0 };
    let start = request.range_start().filter(|_| !whole).map(|start| start - earlier);
    let total = content.len();
    let body = &content[start.unwrap_or(0)..];
    let mut head = match start {
        Some(start) => {
            format!("HTTP/1.1 206 Partial\r\ncontent-range: bytes {start}-{}/{total}\r\n", total - 1)
        }
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    head += &format!("etag: {tag}\r\nconnection: close\r\n");
    match fault {
        Fault::TooLong(_) => {}
        Fault::Length(length) => head += &format!("content-length: {length}\r\n"),
        _ => head += &format!("content-length: {}\r\n", body.len()),
    }
    out.write_all((head + "\r\n").as_bytes())?;
    match fault {
        Fault::Cut(n) => out.write_all(&body[..n.min(body.len())]),
        Fault::TooLong(n) => out.write_all(body).and_then(|()| out.write_all(&vec![0; n])),
        Fault::Stall(time) => {
            thread::sleep(time);
            Ok(())
        }
        Fault::Drip(n, pause) => body.chunks(n).try_for_each(|piece| {
            thread::sleep(pause);
            out.write_all(piece)
        }),
        _ => out.write_all(body),
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Request> {
    let mut reader = BufReader::new(stream.take(64 * 1024));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
            None => return Ok(Request { path, headers }),
        }
    }
}

fn write_reply(
    out: &mut impl Write,
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    out.write_all((head + "\r\n").as_bytes())?;
    out.write_all(body)
}

/// Settings for a hub on loopback, with waits short enough for tests.
pub(crate) fn settings(hub: &Hub) -> Settings {
    let limits = Limits {
        connect: Duration::from_secs(2),
        stall: Duration::from_millis(1500),
        slow_window: Duration::from_millis(600),
        min_bytes: 1000,
        failures: 4,
        first_wait: Duration::from_millis(5),
        longest_wait: Duration::from_millis(50),
        redirects: 3,
        lock: Duration::from_secs(20),
        pip: Duration::from_secs(20),
    };
    Settings {
        endpoint: hub.url.clone(),
        token: None,
        python: "/no/such/python".into(),
        limits,
        free_space: |_| Ok(u64::MAX),
    }
}

/// Bytes that look like nothing and are the same every time.
pub(crate) fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..len).map(next).collect()
}

/// The names of all files below a folder, sorted, with `/` between folders.
pub(crate) fn files_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => open.push(path),
                path => names.push(path.strip_prefix(folder).expect("inside").to_string_lossy().into_owned()),
            }
        }
    }
    names.sort();
    names
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
