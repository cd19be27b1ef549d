//! Records: how one `send`, or one piece of a collective, looks in a byte stream between two ranks.
//!
//! A record is a header of three little-endian words (stamp, sequence number, length) and its bytes. The receiver
//! always knows what must come next, so every word is checked against that, and a rank that called something else is
//! named with both calls.

use crate::{
    CommError,
    call::{Op, Stamp},
    transport::Transport,
    wait::Wait,
};

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 24;

/// What stands before a record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) stamp: Stamp,
    /// Counts the records of one stream from 0.
    pub(crate) sequence: u64,
    /// Bytes that follow.
    pub(crate) length: u64,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [self.stamp.word(), self.sequence, self.length];
        for (field, word) in bytes.chunks_exact_mut(8).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self { stamp: Stamp::from_word(word(0)), sequence: word(8), length: word(16) }
    }

    /// Whether this is what `peer` should have sent next.
    fn check(&self, wanted: &Self, op: Op, peer: usize) -> Result<(), CommError> {
        if self.sequence != wanted.sequence {
            let what = format!("record {} where {} was due", self.sequence, wanted.sequence);
            return Err(CommError::Protocol { rank: peer, what });
        }
        wanted.stamp.check(self.stamp, op, peer)?;
        if self.length != wanted.length {
            let (expected, got) = (wanted.length, self.length);
            return Err(CommError::SizeMismatch { op: op.name(), rank: peer, expected, got });
        }
        Ok(())
    }
}

/// Where bytes for one peer go.
pub(crate) trait Sink: Send {
    /// Takes as much of `head` followed by `body` as there is room for now; 0 when full.
    fn try_write(&mut self, head: &[u8], body: &[u8]) -> Result<usize, CommError>;
}

/// Where bytes from one peer come from.
pub(crate) trait Source: Send {
    /// Gives what is there now, at most `into.len()`; 0 when empty.
    fn try_read(&mut self, into: &mut [u8]) -> Result<usize, CommError>;
}

/// One end of a stream of records, and its place in it.
#[derive(Debug)]
pub(crate) struct Stream<S> {
    pub(crate) end: S,
    sequence: u64,
}

impl<S> Stream<S> {
    pub(crate) fn new(end: S) -> Self {
        Self { end, sequence: 0 }
    }

    fn next_header(&mut self, stamp: Stamp, length: usize) -> Header {
        let sequence = self.sequence;
        self.sequence += 1;
        Header { stamp, sequence, length: length as u64 }
    }
}

/// Sends one record. When it ends half done, nobody can know where the stream is: the group is aborted.
pub(crate) fn write_record<T: Transport + ?Sized, S: Sink>(
    wait: &Wait<'_, T>,
    stream: &mut Stream<S>,
    peer: usize,
    stamp: Stamp,
    body: &[u8],
) -> Result<(), CommError> {
    let head = stream.next_header(stamp, body.len()).to_bytes();
    let total = HEADER_BYTES + body.len();
    let mut done = 0;
    while done < total {
        let (head, body) = (&head[done.min(HEADER_BYTES)..], &body[done.saturating_sub(HEADER_BYTES)..]);
        let step = wait.until(peer, || Ok(Some(stream.end.try_write(head, body)?).filter(|n| *n > 0)));
        match step {
            Ok(bytes) => done += bytes,
            Err(error) if done == 0 => {
                stream.sequence -= 1;
                return Err(error);
            }
            Err(error) => return Err(wait.give_up(error)),
        }
    }
    Ok(())
}

/// Receives one record of exactly `body.len()` bytes. Harmless to repeat when it timed out before the record began;
/// any other end aborts the group.
pub(crate) fn read_record<T: Transport + ?Sized, S: Source>(
    wait: &Wait<'_, T>,
    stream: &mut Stream<S>,
    peer: usize,
    stamp: Stamp,
    body: &mut [u8],
) -> Result<(), CommError> {
    let mut head = [0; HEADER_BYTES];
    match read_some(wait, stream, peer, &mut head) {
        Ok(first) => read_all(wait, stream, peer, &mut head[first..])?,
        // Nothing has begun, so the others may go on. A collective, which cannot, ends the group itself.
        Err(error) => return Err(error),
    }
    let wanted = stream.next_header(stamp, body.len());
    Header::from_bytes(head).check(&wanted, wait.op, peer).map_err(|error| wait.give_up(error))?;
    read_all(wait, stream, peer, body)
}

fn read_all<T: Transport + ?Sized, S: Source>(
    wait: &Wait<'_, T>,
    stream: &mut Stream<S>,
    peer: usize,
    into: &mut [u8],
) -> Result<(), CommError> {
    let mut done = 0;
    while done < into.len() {
        done += read_some(wait, stream, peer, &mut into[done..]).map_err(|error| wait.give_up(error))?;
    }
    Ok(())
}

/// Waits for at least one byte.
fn read_some<T: Transport + ?Sized, S: Source>(
    wait: &Wait<'_, T>,
    stream: &mut Stream<S>,
    peer: usize,
    into: &mut [u8],
) -> Result<usize, CommError> {
    wait.until(peer, || Ok(Some(stream.end.try_read(into)?).filter(|n| *n > 0)))
}
