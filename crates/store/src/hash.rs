//! Hashes of contents: the SHA-256 that manifests record, and the git blob hash that the hub states for small
//! files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Bytes read from disk at a time.
const CHUNK: usize = 1 << 20;

/// What a source promised about a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Its SHA-256, hex.
    Sha256(String),
    /// Its git blob hash, hex: SHA-1 over `blob <size>\0` and the content.
    GitBlob(String),
}

/// Hashes a content piece by piece.
pub(crate) struct ContentHash {
    sha256: Sha256,
    git: Option<Sha1>,
}

/// The finished hashes, in lower-case hex.
pub(crate) struct Hashes {
    pub(crate) sha256: String,
    git: Option<String>,
}

impl ContentHash {
    /// Starts on a content of `size` bytes. The git hash is made only when `promise` needs it.
    pub(crate) fn new(promise: &Promise, size: u64) -> Self {
        let git = matches!(promise, Promise::GitBlob(_))
            .then(|| Sha1::new().chain_update(format!("blob {size}\0").as_bytes()));
        ContentHash { sha256: Sha256::new(), git }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        if let Some(git) = &mut self.git {
            git.update(bytes);
        }
    }

    pub(crate) fn finish(self) -> Hashes {
        Hashes { sha256: hex(&self.sha256.finalize()), git: self.git.map(|git| hex(&git.finalize())) }
    }
}

impl Hashes {
    /// The promised hash and the one seen, when they differ.
    pub(crate) fn mismatch(&self, promise: &Promise) -> Option<(String, String)> {
        let (promised, seen) = match promise {
            Promise::Sha256(promised) => (promised, &self.sha256),
            Promise::GitBlob(promised) => (promised, self.git.as_ref()?),
        };
        (!promised.eq_ignore_ascii_case(seen)).then(|| (promised.clone(), seen.clone()))
    }
}

/// Feeds all bytes of a reader to `take`.
pub(crate) fn for_each_chunk(mut from: impl Read, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => take(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// SHA-256 of a file in lower-case hex; `each` hears the size of every chunk.
pub(crate) fn sha256_of_file(path: &Path, mut each: impl FnMut(u64)) -> io::Result<String> {
    let mut hash = Sha256::new();
    for_each_chunk(File::open(path)?, |bytes| {
        hash.update(bytes);
        each(bytes.len() as u64);
    })?;
    Ok(hex(&hash.finalize()))
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

/// Whether `text` is a hash of `bytes` bytes in hex.
pub(crate) fn is_hex_of(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both hashes of `hello\n` as `sha256sum` and `git hash-object` print them.
    #[test]
    fn known_hashes() {
        let git = Promise::GitBlob("ce013625030ba8dba906f756967f9e9ca394464a".into());
        let mut hash = ContentHash::new(&git, 6);
        hash.update(b"hel");
        hash.update(b"lo\n");
        let hashes = hash.finish();
        assert_eq!(hashes.mismatch(&git), None);
        let sha = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(hashes.mismatch(&Promise::Sha256(sha.to_uppercase())), None);
        assert!(hashes.mismatch(&Promise::Sha256(sha.replace('5', "6"))).is_some());
    }
}
