//! Frames: what one SEND carries.
//!
//! A header of 32 bytes, little-endian, and at most a frame class less 32 bytes of one channel's stream:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..4 | magic "PMRV" |
//! | 4 | version, 1 |
//! | 5 | kind: 1 data, 2 credit |
//! | 6 | channel: 0 point to point, 1 collectives; 0 for a credit |
//! | 7 | 1 with a checksum, 0 without |
//! | 8..16 | sequence number: counts all frames of this queue pair and direction from 0 |
//! | 16..20 | payload bytes |
//! | 20..28 | for each channel: data frames of this queue pair that the sender has consumed, modulo 2^32 |
//! | 28..32 | CRC-32 of bytes 0..28 and the payload, or 0 |

use crate::tcp::CHANNELS;

/// Bytes of a frame's header.
pub(super) const HEADER_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"PMRV";
const VERSION: u8 = 1;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The next bytes of a channel.
    Data = 1,
    /// Nothing but the news in the header, when there is no data to carry it.
    Credit = 2,
}

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) channel: usize,
    pub(super) sequence: u64,
    pub(super) length: usize,
    pub(super) consumed: [u32; CHANNELS],
}

/// A message that no correct rank would have sent, or that was damaged on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a message of {0} bytes is no frame")]
    Short(usize),
    #[error("a message that is not a frame of this version")]
    Magic,
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    #[error("a frame on channel {0}")]
    Channel(u8),
    #[error("a frame that says it has {said} bytes in a message with {got}")]
    Length { said: usize, got: usize },
    #[error("a frame whose checksum is missing or unexpected")]
    ChecksumKind,
    #[error("a frame whose bytes were damaged on the way (checksum {got:08x} instead of {wanted:08x})")]
    Damaged { got: u32, wanted: u32 },
}

impl Header {
    /// Writes the header in front of the payload that already lies in `frame`.
    pub(super) fn write(self, frame: &mut [u8], checksum: bool) {
        let (header, payload) = frame.split_at_mut(HEADER_BYTES);
        header[..4].copy_from_slice(&MAGIC);
        // A channel is 0 or 1.
        header[4..8].copy_from_slice(&[VERSION, self.kind as u8, self.channel as u8, u8::from(checksum)]);
        header[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        // Payloads are shorter than a frame class, 512 KiB at most.
        header[16..20].copy_from_slice(&(self.length as u32).to_le_bytes());
        for (field, consumed) in header[20..28].chunks_exact_mut(4).zip(self.consumed) {
            field.copy_from_slice(&consumed.to_le_bytes());
        }
        let sum = if checksum { checksum_of(&header[..28], &payload[..self.length]) } else { 0 };
        header[28..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads and checks a whole message.
    pub(super) fn read(message: &[u8], checksum: bool) -> Result<Self, FrameError> {
        let Some((header, payload)) = message.split_at_checked(HEADER_BYTES) else {
            return Err(FrameError::Short(message.len()));
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        if header[..4] != MAGIC || header[4] != VERSION {
            return Err(FrameError::Magic);
        }
        if header[7] != u8::from(checksum) {
            return Err(FrameError::ChecksumKind);
        }
        let length = word(16) as usize;
        if length != payload.len() {
            return Err(FrameError::Length { said: length, got: payload.len() });
        }
        let (got, wanted) = (word(28), if checksum { checksum_of(&header[..28], payload) } else { 0 });
        if got != wanted {
            return Err(FrameError::Damaged { got, wanted });
        }
        let kind = match header[5] {
            1 => Kind::Data,
            2 => Kind::Credit,
            other => return Err(FrameError::Kind(other)),
        };
        let channel = usize::from(header[6]);
        if channel >= CHANNELS || (kind == Kind::Credit && channel != 0) {
            return Err(FrameError::Channel(header[6]));
        }
        let sequence = u64::from_le_bytes(std::array::from_fn(|i| header[8 + i]));
        Ok(Self { kind, channel, sequence, length, consumed: [word(20), word(24)] })
    }
}

fn checksum_of(header: &[u8], payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(header);
    sum.update(payload);
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { kind: Kind::Data, channel: 1, sequence: 1 << 40, length: 3, consumed: [7, u32::MAX] };

    fn framed(checksum: bool) -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES + 3];
        frame[HEADER_BYTES..].copy_from_slice(b"abc");
        HEADER.write(&mut frame, checksum);
        frame
    }

    #[test]
    fn what_is_written_is_read() {
        for checksum in [false, true] {
            assert_eq!(Header::read(&framed(checksum), checksum), Ok(HEADER));
            assert_eq!(Header::read(&framed(checksum), !checksum), Err(FrameError::ChecksumKind));
        }
    }

    #[test]
    fn every_damaged_bit_is_noticed() {
        let good = framed(true);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::read(&bad, true).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn foreign_messages_are_refused_by_name() {
        let with = |at: usize, value: u8| {
            let mut frame = framed(false);
            frame[at] = value;
            Header::read(&frame, false)
        };
        assert_eq!(Header::read(&[0; 31], false), Err(FrameError::Short(31)));
        assert_eq!(with(0, 0), Err(FrameError::Magic));
        assert_eq!(with(4, 9), Err(FrameError::Magic));
        assert_eq!(with(5, 3), Err(FrameError::Kind(3)));
        assert_eq!(with(6, 2), Err(FrameError::Channel(2)));
        assert_eq!(with(16, 4), Err(FrameError::Length { said: 4, got: 3 }));
        assert_eq!(with(28, 1), Err(FrameError::Damaged { got: 1, wanted: 0 }));
    }
}
