//! Reads little-endian fields one after another and never past the end.

use std::fmt::Display;

use crate::error::Fault;

use super::MAX_HEADER_BYTES;

/// A position in a GGUF header.
pub(super) struct Cursor<'a> {
    header: &'a [u8],
    position: usize,
    /// Why `header` ends where it does, for messages.
    end: &'static str,
}

impl<'a> Cursor<'a> {
    /// Starts at the first of the file's bytes; no more than [`MAX_HEADER_BYTES`] of them can be read.
    pub(super) fn new(file: &'a [u8]) -> Self {
        match file.get(..MAX_HEADER_BYTES) {
            Some(header) => Cursor { header, position: 0, end: "the longest accepted header" },
            None => Cursor { header: file, position: 0, end: "the file" },
        }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    fn remaining(&self) -> usize {
        self.header.len() - self.position
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: u64, what: impl Display + Copy) -> Result<&'a [u8], Fault> {
        let len = usize::try_from(len).ok().filter(|&len| len <= self.remaining()).ok_or_else(|| {
            Fault::damaged(format!(
                "{what} takes {len} bytes at byte {}, but {} ends {} bytes later",
                self.position,
                self.end,
                self.remaining()
            ))
        })?;
        let bytes = &self.header[self.position..self.position + len];
        self.position += len;
        Ok(bytes)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: impl Display + Copy) -> Result<[u8; N], Fault> {
        let bytes = self.take(N as u64, what)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: impl Display + Copy) -> Result<u32, Fault> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: impl Display + Copy) -> Result<u64, Fault> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of things that take at least `min_bytes` each, so that a count the rest of the header can't
    /// hold is refused before anything is allocated for it.
    pub(super) fn count(&mut self, things: &str, min_bytes: u64) -> Result<u64, Fault> {
        let count = self.u64("a count")?;
        let most = self.remaining() as u64 / min_bytes;
        if count > most {
            return Err(Fault::damaged(format!(
                "{count} {things} are announced, but the {} bytes left to the end of {} hold at most {most}",
                self.remaining(),
                self.end
            )));
        }
        Ok(count)
    }

    /// A string: length, then UTF-8.
    pub(super) fn string(&mut self, what: impl Display + Copy) -> Result<&'a str, Fault> {
        let len = self.u64(what)?;
        let bytes = self.take(len, what)?;
        str::from_utf8(bytes).map_err(|e| Fault::damaged(format!("{what} is not UTF-8: {e}")))
    }
}
