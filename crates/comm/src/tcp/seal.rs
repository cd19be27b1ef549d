//! Records: the bytes of a connection, encrypted and authenticated.
//!
//! What would travel in the clear is cut into pieces of at most [`PIECE_BYTES`]; each becomes a record: its length
//! (16 bits, little-endian) and a Noise transport message. Each direction numbers its messages, and a message only
//! opens under its own number: one that was changed, left out, repeated or moved ends the connection.

use super::handshake::{FIRST_NUMBER, Keys};
use std::{fmt, sync::Arc};

/// Most bytes of a Noise message, by its specification.
const MESSAGE_BYTES: usize = 65535;
const TAG_BYTES: usize = 16;
const LENGTH_BYTES: usize = 2;

/// Most bytes that one record carries.
pub(super) const PIECE_BYTES: usize = MESSAGE_BYTES - TAG_BYTES;

/// Most bytes of a record.
pub(super) const RECORD_BYTES: usize = LENGTH_BYTES + MESSAGE_BYTES;

/// A record that the peer has not written like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// A length that no record has.
    #[error("a sealed record of {0} bytes: the connection was tampered with")]
    Length(usize),
    /// It does not open under the number that is due.
    #[error("sealed record {0} does not open: it was changed, left out, repeated or moved on its way")]
    Forged(u64),
    /// 2^64 records.
    #[error("the connection has used up its numbers")]
    Exhausted,
}

/// The sending side.
pub(super) struct Sealer {
    keys: Arc<Keys>,
    number: u64,
    piece: Box<[u8]>,
    record: Box<[u8]>,
}

/// The receiving side.
pub(super) struct Opener {
    keys: Arc<Keys>,
    number: u64,
    piece: Box<[u8]>,
}

/// Both sides of this end of a connection.
pub(super) fn seal_with(keys: Keys) -> (Sealer, Opener) {
    let keys = Arc::new(keys);
    let sealer = Sealer {
        keys: Arc::clone(&keys),
        number: FIRST_NUMBER,
        piece: vec![0; PIECE_BYTES].into_boxed_slice(),
        record: vec![0; RECORD_BYTES].into_boxed_slice(),
    };
    // Room for the tag too: with less, the library would allocate.
    let opener = Opener { keys, number: FIRST_NUMBER, piece: vec![0; MESSAGE_BYTES].into_boxed_slice() };
    (sealer, opener)
}

impl Sealer {
    /// The next record, with what fits of `parts`, which are shortened by that from the front.
    pub(super) fn seal(&mut self, parts: &mut [&[u8]]) -> Result<&[u8], SealError> {
        let mut length = 0;
        for part in parts {
            let (taken, rest) = part.split_at(part.len().min(PIECE_BYTES - length));
            self.piece[length..length + taken.len()].copy_from_slice(taken);
            length += taken.len();
            *part = rest;
        }
        let (prefix, message) = self.record.split_at_mut(LENGTH_BYTES);
        let written = self.keys.write_message(self.number, &self.piece[..length], message);
        let bytes = written.map_err(|_| SealError::Exhausted)?;
        // A message has at most 65535 bytes.
        prefix.copy_from_slice(&(bytes as u16).to_le_bytes());
        self.number += 1;
        Ok(&self.record[..LENGTH_BYTES + bytes])
    }
}

/// A record, opened.
pub(super) struct Opened<'o> {
    pub(super) piece: &'o [u8],
    /// Bytes of the record.
    pub(super) record_bytes: usize,
}

impl Opener {
    /// Opens the record at the front of `bytes`; `None` until it is all there.
    pub(super) fn open(&mut self, bytes: &[u8]) -> Result<Option<Opened<'_>>, SealError> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes(*prefix));
        // An empty piece would say nothing.
        if length <= TAG_BYTES {
            return Err(SealError::Length(length));
        }
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let opened = self.keys.read_message(self.number, message, &mut self.piece);
        let bytes = opened.map_err(|_| SealError::Forged(self.number))?;
        self.number += 1;
        Ok(Some(Opened { piece: &self.piece[..bytes], record_bytes: LENGTH_BYTES + length }))
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::handshake::tests::both_keys, *};

    /// One direction of a connection: a sealer and the opener at the other end.
    fn direction() -> (Sealer, Opener) {
        let (dialer, acceptor) = both_keys();
        (seal_with(dialer).0, seal_with(acceptor).1)
    }

    fn record(sealer: &mut Sealer, text: &[u8]) -> Vec<u8> {
        sealer.seal(&mut [text]).unwrap().to_vec()
    }

    fn opened(opener: &mut Opener, record: &[u8]) -> Result<Vec<u8>, SealError> {
        let opened = opener.open(record)?.expect("a whole record");
        assert_eq!(opened.record_bytes, record.len());
        Ok(opened.piece.to_vec())
    }

    #[test]
    fn what_is_sealed_opens_in_order() {
        let (mut sealer, mut opener) = direction();
        for text in [&b"one"[..], b"two", &[7; PIECE_BYTES]] {
            let record = record(&mut sealer, text);
            assert!(!record.windows(3).any(|window| window == b"two"));
            assert_eq!(opened(&mut opener, &record).unwrap(), text);
        }
    }

    #[test]
    fn parts_are_joined_and_cut() {
        let (mut sealer, mut opener) = direction();
        let long = vec![3; PIECE_BYTES + 5];
        let mut parts = [&b"head"[..], b"", &long];
        let first = sealer.seal(&mut parts).unwrap().to_vec();
        assert_eq!(first.len(), RECORD_BYTES);
        assert_eq!(parts.map(<[u8]>::len), [0, 0, 9]);
        let second = sealer.seal(&mut parts).unwrap().to_vec();
        let mut text = opened(&mut opener, &first).unwrap();
        text.extend(opened(&mut opener, &second).unwrap());
        assert_eq!(text, [&b"head"[..], &long].concat());
    }

    #[test]
    fn half_a_record_waits_for_the_rest() {
        let (mut sealer, mut opener) = direction();
        let record = record(&mut sealer, b"text");
        for end in 0..record.len() {
            assert!(opener.open(&record[..end]).unwrap().is_none());
        }
        assert_eq!(opened(&mut opener, &[&record[..], b"more"].concat()[..record.len()]).unwrap(), b"text");
    }

    #[test]
    fn a_changed_bit_does_not_open() {
        let bytes = LENGTH_BYTES + b"some text".len() + TAG_BYTES;
        for bit in 0..bytes * 8 {
            let (mut sealer, mut opener) = direction();
            let mut record = record(&mut sealer, b"some text");
            assert_eq!(record.len(), bytes);
            record[bit / 8] ^= 1 << (bit % 8);
            // A greater length makes it wait for bytes that then do not fit either.
            record.resize(RECORD_BYTES + 100, 0);
            assert!(opener.open(&record).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn records_cannot_be_repeated_moved_or_left_out() {
        let (mut sealer, mut opener) = direction();
        let [first, second, third] = [b"1", b"2", b"3"].map(|text| record(&mut sealer, text));
        assert_eq!(opened(&mut opener, &second), Err(SealError::Forged(1)), "moved");
        assert_eq!(opened(&mut opener, &first).unwrap(), b"1");
        assert_eq!(opened(&mut opener, &first), Err(SealError::Forged(2)), "repeated");
        assert_eq!(opened(&mut opener, &third), Err(SealError::Forged(2)), "left out");
        assert_eq!(opened(&mut opener, &second).unwrap(), b"2");
    }

    #[test]
    fn a_record_does_not_open_at_its_sender_or_on_another_connection() {
        let (dialer, _) = both_keys();
        let (mut sealer, mut own_opener) = seal_with(dialer);
        let record = record(&mut sealer, b"text");
        assert_eq!(opened(&mut own_opener, &record), Err(SealError::Forged(1)));
        let (_, mut other_opener) = direction();
        assert_eq!(opened(&mut other_opener, &record), Err(SealError::Forged(1)));
    }

    #[test]
    fn lengths_that_no_record_has_are_errors() {
        let (_, mut opener) = direction();
        for length in [0, 1, TAG_BYTES as u16] {
            let bytes = length.to_le_bytes();
            assert_eq!(opener.open(&bytes).err(), Some(SealError::Length(usize::from(length))));
        }
    }
}
