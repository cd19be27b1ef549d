//! Frames between queue pairs, over unix sockets.
//!
//! A frame is a kind (1 byte), the length of its body (4 bytes, little endian), and the body. The sender of messages
//! opens the stream, says [`Hello`] and then messages; answers come back on the same stream.

use crate::script::Kind;
use std::{
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
};

/// Longest message, in bytes.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

const HEADER: usize = 5;
const HELLO: usize = 32;

/// What travels.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    /// First on a stream.
    Hello(Hello),
    /// The bytes of a SEND.
    Message(Vec<u8>),
    /// RC: the oldest message that has no answer yet ended with this status.
    Done(u32),
    /// RC: the oldest message that has no answer yet gets none, as if nobody were there.
    Silent,
    /// RC: takes [`Frame::Silent`] back: somebody is there, who waits for a receive.
    Held,
}

/// What packets carry in truth: who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The sending queue pair.
    pub(crate) from: u32,
    /// Its first packet number.
    pub(crate) packet_sequence: u32,
    /// Bytes per packet, as the number of `enum ibv_mtu`.
    pub(crate) path_mtu: u32,
    pub(crate) kind: Kind,
    /// The address it is sent to.
    pub(crate) to: [u8; 16],
}

/// One stream, never blocking.
#[derive(Debug)]
pub(crate) struct Pipe {
    stream: UnixStream,
    output: Vec<u8>,
    /// Bytes of `output` that are written.
    written: usize,
    /// The frame that is being read.
    input: Vec<u8>,
    /// Bytes of `input` that are read.
    filled: usize,
}

impl Pipe {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, output: Vec::new(), written: 0, input: vec![0; HEADER], filled: 0 })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Adds a frame to what is to be written.
    pub(crate) fn push(&mut self, frame: &Frame) {
        if self.is_flushed() {
            self.output.clear();
            self.written = 0;
        }
        frame.write_to(&mut self.output);
    }

    /// Writes what fits now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.written == self.output.len()
    }

    /// The next frame, or `None` while it isn't here in full.
    ///
    /// # Errors
    /// The stream has ended, or carries something else than frames.
    pub(crate) fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            while self.filled < self.input.len() {
                match self.stream.read(&mut self.input[self.filled..]) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(count) => self.filled += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let whole = HEADER + body_length(&self.input)?;
            if self.input.len() == whole {
                let frame =
                    Frame::read_from(self.input[0], &self.input[HEADER..]).ok_or(ErrorKind::InvalidData)?;
                self.input.truncate(HEADER);
                self.filled = 0;
                return Ok(Some(frame));
            }
            self.input.resize(whole, 0);
        }
    }
}

fn body_length(frame: &[u8]) -> io::Result<usize> {
    let length = u32::from_le_bytes([frame[1], frame[2], frame[3], frame[4]]) as usize;
    if length > MAX_MESSAGE { Err(ErrorKind::InvalidData.into()) } else { Ok(length) }
}

impl Frame {
    fn write_to(&self, output: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => write_frame(output, 1, &hello.to_bytes()),
            Self::Message(bytes) => write_frame(output, 2, bytes),
            Self::Done(status) => write_frame(output, 3, &status.to_le_bytes()),
            Self::Silent => write_frame(output, 4, &[]),
            Self::Held => write_frame(output, 5, &[]),
        }
    }

    fn read_from(kind: u8, body: &[u8]) -> Option<Self> {
        match kind {
            1 => Hello::from_bytes(body.try_into().ok()?).map(Self::Hello),
            2 => Some(Self::Message(body.to_vec())),
            3 => Some(Self::Done(u32::from_le_bytes(body.try_into().ok()?))),
            4 => Some(Self::Silent),
            5 => Some(Self::Held),
            _ => None,
        }
    }
}

fn write_frame(output: &mut Vec<u8>, kind: u8, body: &[u8]) {
    output.push(kind);
    // At most MAX_MESSAGE.
    output.extend((body.len() as u32).to_le_bytes());
    output.extend(body);
}

impl Hello {
    fn to_bytes(self) -> [u8; HELLO] {
        let kind = match self.kind {
            Kind::Rc => 0u32,
            Kind::Uc => 1,
        };
        let mut bytes = [0; HELLO];
        for (index, word) in [self.from, self.packet_sequence, self.path_mtu, kind].into_iter().enumerate() {
            bytes[4 * index..4 * index + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&self.to);
        bytes
    }

    fn from_bytes(bytes: &[u8; HELLO]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let kind = match word(12) {
            0 => Kind::Rc,
            1 => Kind::Uc,
            _ => return None,
        };
        let to = bytes[16..].try_into().ok()?;
        Some(Self { from: word(0), packet_sequence: word(4), path_mtu: word(8), kind, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_stream() {
        let (left, right) = UnixStream::pair().expect("a pair");
        let (mut left, mut right) = (Pipe::new(left).expect("a pipe"), Pipe::new(right).expect("a pipe"));
        let hello = Hello { from: 17, packet_sequence: 7, path_mtu: 3, kind: Kind::Uc, to: [9; 16] };
        let frames =
            [Frame::Hello(hello), Frame::Message(vec![5; 100]), Frame::Done(12), Frame::Silent, Frame::Held];
        for frame in &frames {
            left.push(frame);
        }
        left.flush().expect("room");
        for frame in frames {
            assert_eq!(right.next().expect("alive"), Some(frame));
        }
        assert_eq!(right.next().expect("alive"), None);
        drop(left);
        assert!(right.next().is_err());
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        for bytes in [[9, 0, 0, 0, 0], [2, 0xff, 0xff, 0xff, 0xff], [1, 0, 0, 0, 0]] {
            let (mut left, right) = UnixStream::pair().expect("a pair");
            left.write_all(&bytes).expect("room");
            let error = Pipe::new(right).expect("a pipe").next().expect_err("not a frame");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
    }
}
