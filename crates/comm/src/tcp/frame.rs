//! Frames: how two ranks share one connection.
//!
//! A connection carries two *channels*, streams of bytes with a window each (point to point, and collectives), and a
//! few words about the connection itself. A frame is a header of 24 bytes and at most [`MAX_PAYLOAD`] bytes:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..4 | magic "PMRF" |
//! | 4 | version, 1 |
//! | 5 | kind |
//! | 6 | channel: 0 point to point, 1 collectives; 0 where it means nothing |
//! | 7 | 0 |
//! | 8..16 | value, little-endian: see [`FrameKind`] |
//! | 16..20 | payload bytes, little-endian |
//! | 20..24 | 0 |
//!
//! Reading is a pure state machine over whatever bytes arrive; it allocates nothing and keeps at most a header and a
//! reason.

use crate::verdict::{MAX_REASON_BYTES, Verdict};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 24;

/// Most payload bytes of one frame.
pub const MAX_PAYLOAD: usize = 256 << 10;

const MAGIC: [u8; 4] = *b"PMRF";
const VERSION: u8 = 1;

/// What a frame is for, and what its value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Bytes of a channel. Value: how many bytes of this channel came before.
    Data = 1,
    /// The receiver has made room. Value: how many bytes of this channel it has consumed in all.
    Credit = 2,
    /// A sign of life. Value: as of [`FrameKind::Leave`].
    Heartbeat = 3,
    /// A rank is dead. Value: which. Payload: how that was noticed.
    Dead = 4,
    /// A rank aborted the group. Value: which. Payload: its reason.
    Abort = 5,
    /// A rank sent what no correct rank would. Value: which. Payload: what was wrong.
    Broken = 7,
    /// A link between two ranks failed. Value: one of them, and in the upper half the one that noticed. Payload: how.
    LinkFailed = 8,
    /// The sender leaves in good order and sends no more. Value: how many messages it has sent to this peer by other
    /// ways than this connection.
    Leave = 6,
}

impl FrameKind {
    const ALL: [Self; 8] = [
        Self::Data,
        Self::Credit,
        Self::Heartbeat,
        Self::Dead,
        Self::Abort,
        Self::Broken,
        Self::Leave,
        Self::LinkFailed,
    ];

    /// Most payload bytes that such a frame may have.
    fn payload_limit(self) -> usize {
        match self {
            Self::Data => MAX_PAYLOAD,
            Self::Dead | Self::Abort | Self::Broken | Self::LinkFailed => MAX_REASON_BYTES,
            Self::Credit | Self::Heartbeat | Self::Leave => 0,
        }
    }
}

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is for.
    pub kind: FrameKind,
    /// 0 point to point, 1 collectives.
    pub channel: u8,
    /// See [`FrameKind`].
    pub value: u64,
    /// Bytes that follow; at most [`MAX_PAYLOAD`].
    pub length: u32,
}

/// Bytes that are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Too few bytes for a header.
    #[error("a frame header has {FRAME_HEADER_BYTES} bytes, here are {0}")]
    Short(usize),
    /// The first four bytes are others.
    #[error("not a frame: it begins with {0:02x?}")]
    Magic([u8; 4]),
    /// A version that this program does not speak.
    #[error("frame version {0}, this program speaks {VERSION}")]
    Version(u8),
    /// A kind that does not exist.
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    /// A channel that does not exist, or one where none belongs.
    #[error("frame on channel {0}")]
    Channel(u8),
    /// More payload than such a frame can have.
    #[error("{kind:?} frame with {length} bytes, the limit is {limit}")]
    Length {
        /// The frame's kind.
        kind: FrameKind,
        /// What it claims.
        length: u32,
        /// What it may have.
        limit: usize,
    },
    /// Bytes that must be 0 are not.
    #[error("frame with reserved bytes set")]
    Reserved,
    /// Data that does not follow what came before.
    #[error("data at {got} where {expected} was due")]
    OutOfOrder {
        /// Where this frame says it belongs.
        got: u64,
        /// Bytes of the channel so far.
        expected: u64,
    },
    /// More data than the receiver has made room for.
    #[error("data beyond the window")]
    Overrun,
    /// Anything after the farewell.
    #[error("a frame after the last one")]
    AfterLeave,
}

impl FrameHeader {
    /// The header as it travels.
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..7].copy_from_slice(&[VERSION, self.kind as u8, self.channel]);
        bytes[8..16].copy_from_slice(&self.value.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }
}

/// Reads and checks a header from the first [`FRAME_HEADER_BYTES`] of `bytes`.
///
/// # Errors
/// [`FrameError`], one for each way of being wrong.
pub fn parse_frame_header(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
    let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Err(FrameError::Short(bytes.len()));
    };
    let [m0, m1, m2, m3, version, kind, channel, zero, value @ .., l0, l1, l2, l3, r0, r1, r2, r3] = *header;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(FrameError::Magic([m0, m1, m2, m3]));
    }
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let known = FrameKind::ALL.into_iter().find(|known| *known as u8 == kind);
    let kind = known.ok_or(FrameError::Kind(kind))?;
    let channels = if matches!(kind, FrameKind::Data | FrameKind::Credit) { CHANNELS } else { 1 };
    if usize::from(channel) >= channels {
        return Err(FrameError::Channel(channel));
    }
    if [zero, r0, r1, r2, r3] != [0; 5] {
        return Err(FrameError::Reserved);
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    let limit = kind.payload_limit();
    if length as usize > limit {
        return Err(FrameError::Length { kind, length, limit });
    }
    Ok(FrameHeader { kind, channel, value: u64::from_le_bytes(value), length })
}

/// Number of channels.
pub(crate) const CHANNELS: usize = 2;

/// Who hears what the frames say.
pub(super) trait Listener {
    /// The next bytes of a channel.
    fn data(&mut self, channel: usize, bytes: &[u8]) -> Result<(), FrameError>;
    /// The peer has consumed `total` bytes of a channel.
    fn credit(&mut self, channel: usize, total: u64);
    /// The group is over.
    fn verdict(&mut self, verdict: Verdict);
    /// The peer has sent `total` messages by other ways.
    fn announced(&mut self, total: u64);
    /// The peer leaves.
    fn leave(&mut self);
}

/// Where the decoder is between two pushes.
#[derive(Debug)]
enum State {
    /// In a header, of which so many bytes are here.
    Header(usize),
    /// In the payload of a frame, of which so many bytes are still to come.
    Payload(FrameHeader, usize),
    /// After the farewell.
    Done,
}

/// Turns the bytes of a connection, cut anywhere, into calls of a [`Listener`].
#[derive(Debug)]
pub(super) struct Decoder {
    state: State,
    header: [u8; FRAME_HEADER_BYTES],
    reason: [u8; MAX_REASON_BYTES],
    /// Bytes of each channel so far.
    received: [u64; CHANNELS],
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            state: State::Header(0),
            header: [0; FRAME_HEADER_BYTES],
            reason: [0; MAX_REASON_BYTES],
            received: [0; CHANNELS],
        }
    }

    /// Takes the next bytes. After an error the connection is of no more use.
    pub(super) fn push(&mut self, mut bytes: &[u8], listener: &mut impl Listener) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Header(have) => self.push_header(have, bytes, listener)?,
                State::Payload(header, left) => self.push_payload(header, left, bytes, listener)?,
                State::Done => return Err(FrameError::AfterLeave),
            };
        }
        Ok(())
    }

    /// Completes the header as far as `bytes` go; returns the rest.
    fn push_header<'b>(
        &mut self,
        have: usize,
        bytes: &'b [u8],
        listener: &mut impl Listener,
    ) -> Result<&'b [u8], FrameError> {
        let (taken, rest) = bytes.split_at(bytes.len().min(FRAME_HEADER_BYTES - have));
        self.header[have..have + taken.len()].copy_from_slice(taken);
        let have = have + taken.len();
        if have < FRAME_HEADER_BYTES {
            self.state = State::Header(have);
            return Ok(rest);
        }
        let header = parse_frame_header(&self.header)?;
        if header.kind == FrameKind::Data {
            let expected = self.received[usize::from(header.channel)];
            if header.value != expected {
                return Err(FrameError::OutOfOrder { got: header.value, expected });
            }
        }
        self.state = State::Payload(header, header.length as usize);
        if header.length == 0 {
            self.finish(header, listener);
        }
        Ok(rest)
    }

    /// Passes on the payload as far as `bytes` go; returns the rest.
    fn push_payload<'b>(
        &mut self,
        header: FrameHeader,
        left: usize,
        bytes: &'b [u8],
        listener: &mut impl Listener,
    ) -> Result<&'b [u8], FrameError> {
        let (taken, rest) = bytes.split_at(bytes.len().min(left));
        if header.kind == FrameKind::Data {
            let channel = usize::from(header.channel);
            listener.data(channel, taken)?;
            self.received[channel] += taken.len() as u64;
        } else {
            let have = header.length as usize - left;
            self.reason[have..have + taken.len()].copy_from_slice(taken);
        }
        self.state = State::Payload(header, left - taken.len());
        if taken.len() == left {
            self.finish(header, listener);
        }
        Ok(rest)
    }

    /// A frame is complete.
    fn finish(&mut self, header: FrameHeader, listener: &mut impl Listener) {
        self.state = State::Header(0);
        // No group has that many ranks; a wrong rank only makes a wrong message.
        let rank = usize::try_from(header.value).unwrap_or(usize::MAX);
        let reason = || String::from_utf8_lossy(&self.reason[..header.length as usize]).into_owned();
        match header.kind {
            FrameKind::Data => {}
            FrameKind::Heartbeat => listener.announced(header.value),
            FrameKind::Credit => listener.credit(usize::from(header.channel), header.value),
            FrameKind::Dead => listener.verdict(Verdict::Dead { rank, what: reason() }),
            FrameKind::Broken => listener.verdict(Verdict::Broken { rank, what: reason() }),
            FrameKind::LinkFailed => {
                let (rank, by) = (rank & 0xffff_ffff, rank >> 32);
                listener.verdict(Verdict::LinkFailed { rank, by, what: reason() });
            }
            FrameKind::Abort => listener.verdict(Verdict::Aborted { by: rank, reason: reason() }),
            FrameKind::Leave => {
                self.state = State::Done;
                listener.announced(header.value);
                listener.leave();
            }
        }
    }
}
