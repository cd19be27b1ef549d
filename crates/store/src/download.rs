//! One file over HTTP, so that it can be cut at any point and taken up again.
//!
//! Bytes go to `<file>.part`; beside it `<file>.part.json` says of which content they are the start. When all
//! are there and their hash is the promised one, the part gets its final name in one step.
//!
//! What may go wrong, and what is done about it:
//!
//! | the server | then |
//! | --- | --- |
//! | cuts the connection, stalls or drips | another attempt goes on where this one ended |
//! | ignores `Range` (200) | the part starts over with this very answer |
//! | refuses `Range` (416) | the part starts over with a request for the whole file |
//! | has another `ETag` than the part | the same: two contents are never spliced |
//! | promises another size than its listing | final error |
//! | sends other bytes than promised | a resumed file starts over once; else it is set aside: final error |

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, RANGE};
use ureq::http::{HeaderName, Uri};

use crate::disk;
use crate::error::StoreError;
use crate::hash::{ContentHash, Promise, for_each_chunk};
use crate::http::{Answer, Client, Failure, header, shown};

/// Bytes taken from the connection at a time.
const CHUNK: usize = 256 * 1024;

/// New bytes after which earlier failures no longer count.
const USEFUL: u64 = 1 << 20;

/// A file to download.
pub(crate) struct Wanted {
    pub(crate) url: Uri,
    /// Size in bytes, as listed by the source.
    pub(crate) size: u64,
    pub(crate) promise: Promise,
    /// Its final name.
    pub(crate) target: PathBuf,
}

/// Downloads a file, or the rest of it, and returns its SHA-256. `at` hears how many of its bytes are there.
pub(crate) fn download(
    client: &Client,
    wanted: &Wanted,
    at: &mut dyn FnMut(u64),
) -> Result<String, StoreError> {
    disk::create_parent(&wanted.target)?;
    disk::remove_all(&set_aside_name(&wanted.target))?;
    let mut part = Part::open(wanted)?;
    let mut may_start_over = true;
    loop {
        client.with_retries(&wanted.url, || part.fill(client, at))?;
        let hashes = part.take_hashes();
        let Some((expected, got)) = hashes.mismatch(&wanted.promise) else {
            part.publish()?;
            return Ok(hashes.sha256);
        };
        if !(part.resumed && may_start_over) {
            return Err(part.set_aside(expected, got)?);
        }
        may_start_over = false;
        part.restart()?;
    }
}

/// Bytes of a file that an earlier run left; they need not be fetched, unless they turn out to be of no use.
pub(crate) fn bytes_at_hand(target: &Path) -> u64 {
    fs::metadata(part_name(target)).map_or(0, |meta| meta.len())
}

/// What the bytes of a part belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sidecar {
    size: u64,
    /// The promised hash.
    hash: String,
    /// The server's name for the content, when it gave one.
    etag: Option<String>,
}

/// A file of which the first `len` bytes are there.
struct Part<'a> {
    wanted: &'a Wanted,
    path: PathBuf,
    file: File,
    len: u64,
    /// The largest `len` so far, since attempts that only repeat what was there before are not useful.
    most: u64,
    hash: ContentHash,
    etag: Option<String>,
    /// Whether the bytes come from more than one answer.
    resumed: bool,
}

impl<'a> Part<'a> {
    /// Opens what an earlier run left, if it is of the same content, or starts an empty part.
    fn open(wanted: &'a Wanted) -> Result<Self, StoreError> {
        let path = part_name(&wanted.target);
        let sidecar = read_sidecar(&sidecar_name(&path), wanted);
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let file = file.map_err(StoreError::io("write", &path))?;
        let len = file.metadata().map_err(StoreError::io("read", &path))?.len();
        let hash = ContentHash::new(&wanted.promise, wanted.size);
        let mut part = Part { wanted, path, file, len, most: 0, hash, etag: None, resumed: false };
        match sidecar {
            Some(sidecar) if len > 0 && len <= wanted.size => part.take_up(sidecar)?,
            _ => part.restart()?,
        }
        Ok(part)
    }

    fn take_up(&mut self, sidecar: Sidecar) -> Result<(), StoreError> {
        let hash = &mut self.hash;
        for_each_chunk(&mut self.file, |bytes| hash.update(bytes))
            .map_err(StoreError::io("read", &self.path))?;
        self.etag = sidecar.etag;
        self.most = self.len;
        self.resumed = true;
        Ok(())
    }

    /// Back to no bytes.
    fn restart(&mut self) -> Result<(), StoreError> {
        self.file.set_len(0).map_err(StoreError::io("write", &self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(StoreError::io("write", &self.path))?;
        self.len = 0;
        self.hash = ContentHash::new(&self.wanted.promise, self.wanted.size);
        self.etag = None;
        self.resumed = false;
        Ok(())
    }

    /// One attempt to get all the bytes that are missing.
    fn fill(&mut self, client: &Client, at: &mut dyn FnMut(u64)) -> Result<(), Failure> {
        at(self.len);
        if self.len == self.wanted.size && (self.len > 0 || self.resumed) {
            return Ok(());
        }
        let body = self.ask(client)?;
        let before = self.most;
        let pumped = self.pump(body, client, at);
        let useful = self.most >= before.saturating_add(USEFUL);
        match pumped {
            Err(Failure::Temporary { why, wait, .. }) => Err(Failure::Temporary { why, wait, useful }),
            other => other,
        }
    }

    /// Asks for the missing bytes; afterwards `len` is where the answer's body begins.
    fn ask(&mut self, client: &Client) -> Result<impl Read + use<>, Failure> {
        let mut answer = client.get(&self.wanted.url, &self.range_headers())?;
        if self.len > 0 && (answer.status == 416 || !self.continues(&answer)) {
            let whole = answer.status == 200;
            self.restart()?;
            if !whole {
                answer = client.get(&self.wanted.url, &[])?;
            }
        }
        let status = answer.status;
        if status != if self.len > 0 { 206 } else { 200 } {
            return Err(StoreError::Status { url: shown(&self.wanted.url), status }.into());
        }
        self.check_length(&answer.headers)?;
        if self.len == 0 {
            self.etag = header(&answer.headers, &ETAG).map(str::to_owned);
            self.write_sidecar()?;
        } else {
            self.resumed = true;
        }
        Ok(answer.body)
    }

    /// `If-Range` takes strong tags only (RFC 9110 section 13.1.5).
    fn range_headers(&self) -> Vec<(HeaderName, String)> {
        if self.len == 0 {
            return Vec::new();
        }
        let strong = self.etag.as_ref().filter(|etag| etag.starts_with('"'));
        let if_range = strong.map(|etag| (IF_RANGE, etag.clone()));
        [(RANGE, format!("bytes={}-", self.len))].into_iter().chain(if_range).collect()
    }

    /// Whether an answer goes on exactly where the part ends, in the same content.
    fn continues(&self, answer: &Answer) -> bool {
        let etag = header(&answer.headers, &ETAG);
        let same = self.etag.is_none() || etag.is_none() || self.etag.as_deref() == etag;
        let range = header(&answer.headers, &CONTENT_RANGE).and_then(parse_content_range);
        let fits = range.is_some_and(|(start, total)| {
            start == self.len && total.is_none_or(|total| total == self.wanted.size)
        });
        answer.status == 206 && same && fits
    }

    fn check_length(&self, headers: &HeaderMap) -> Result<(), StoreError> {
        let length: Option<u64> = header(headers, &CONTENT_LENGTH).and_then(|text| text.parse().ok());
        match length.map(|length| length.saturating_add(self.len)) {
            Some(got) if got != self.wanted.size => Err(self.wrong_size(got)),
            _ => Ok(()),
        }
    }

    /// Moves the body to disk, never more than the wanted size.
    fn pump(&mut self, mut body: impl Read, client: &Client, at: &mut dyn FnMut(u64)) -> Result<(), Failure> {
        let limits = client.limits();
        let mut buffer = vec![0; CHUNK];
        let (mut window, mut window_start) = (Instant::now(), self.len);
        loop {
            let n = match body.read(&mut buffer) {
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Failure::temporary(e)),
            };
            if n == 0 {
                break;
            }
            self.append(&buffer[..n])?;
            at(self.len);
            if window.elapsed() >= limits.slow_window {
                if self.len - window_start < limits.min_bytes {
                    return Err(Failure::temporary("the connection is too slow"));
                }
                (window, window_start) = (Instant::now(), self.len);
            }
        }
        if self.len < self.wanted.size {
            return Err(Failure::temporary("the answer ended early"));
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let len = self.len.saturating_add(bytes.len() as u64);
        if len > self.wanted.size {
            return Err(self.wrong_size(len));
        }
        self.file.write_all(bytes).map_err(StoreError::io("write", &self.path))?;
        self.hash.update(bytes);
        self.len = len;
        self.most = self.most.max(len);
        Ok(())
    }

    fn write_sidecar(&self) -> Result<(), StoreError> {
        let sidecar = sidecar_of(self.wanted, self.etag.clone());
        let path = sidecar_name(&self.path);
        let text = serde_json::to_vec(&sidecar).map_err(|e| StoreError::io("write", &path)(e.into()))?;
        disk::write_atomically(&path, &text)
    }

    fn take_hashes(&mut self) -> crate::hash::Hashes {
        let fresh = ContentHash::new(&self.wanted.promise, self.wanted.size);
        std::mem::replace(&mut self.hash, fresh).finish()
    }

    fn publish(&self) -> Result<(), StoreError> {
        disk::publish(&self.file, &self.path, &self.wanted.target)?;
        disk::remove_all(&sidecar_name(&self.path))
    }

    fn set_aside(&self, expected: String, got: String) -> Result<StoreError, StoreError> {
        let set_aside = set_aside_name(&self.wanted.target);
        disk::remove_all(&sidecar_name(&self.path))?;
        fs::rename(&self.path, &set_aside).map_err(StoreError::io("rename to", &set_aside))?;
        Ok(StoreError::WrongHash { file: shown(&self.wanted.url), expected, got, set_aside })
    }

    fn wrong_size(&self, got: u64) -> StoreError {
        StoreError::WrongSize { file: shown(&self.wanted.url), expected: self.wanted.size, got }
    }
}

/// Start and total of `bytes <start>-<end>/<total or *>`.
fn parse_content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let start = range.split_once('-')?.0.trim().parse().ok()?;
    let total = if total.trim() == "*" { None } else { Some(total.trim().parse().ok()?) };
    Some((start, total))
}

/// The sidecar of a part, if the part is of the wanted content.
fn read_sidecar(path: &Path, wanted: &Wanted) -> Option<Sidecar> {
    /// A sidecar is a few hundred bytes.
    const MAX: u64 = 64 * 1024;
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX).read_to_end(&mut text).ok()?;
    let found: Sidecar = serde_json::from_slice(&text).ok()?;
    (found == sidecar_of(wanted, found.etag.clone())).then_some(found)
}

fn sidecar_of(wanted: &Wanted, etag: Option<String>) -> Sidecar {
    let hash = match &wanted.promise {
        Promise::Sha256(hex) => format!("sha256:{hex}"),
        Promise::GitBlob(hex) => format!("git:{hex}"),
    };
    Sidecar { size: wanted.size, hash, etag }
}

fn part_name(target: &Path) -> PathBuf {
    disk::with_suffix(target, ".part")
}

fn sidecar_name(part: &Path) -> PathBuf {
    disk::with_suffix(part, ".json")
}

fn set_aside_name(target: &Path) -> PathBuf {
    disk::with_suffix(target, ".rejected")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        assert_eq!(parse_content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((5, None)));
        for bad in ["", "bytes */10", "bytes 5-9", "5-9/10", "bytes -/10", "bytes 5-9/x"] {
            assert_eq!(parse_content_range(bad), None, "{bad}");
        }
    }
}
