//! The writing half of a connection.
//!
//! Control frames never wait: what does not fit into the socket is put in line. Data frames are written whole, by a
//! caller who waits.

use super::{
    frame::{FRAME_HEADER_BYTES, FrameHeader},
    seal::Sealer,
    socket::{Ready, wait_ready},
};
use crate::verdict::{MAX_REASON_BYTES, VerdictCell};
use std::{
    io::{ErrorKind, IoSlice, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

/// How long a frame that is half out when the group ends may still take, so that a verdict can follow it.
const LAST_FRAME: Duration = Duration::from_millis(200);

/// Longest wait for room in the socket between two looks at the verdict.
const LOOK: Duration = Duration::from_millis(20);

/// Control frames that usually wait in line at most. Heartbeats are left out while anything waits; credits are bounded
/// by the window, verdict and farewell come once.
const BACKLOG_FRAMES: usize = 16;

/// What has still to be written, and how.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// On a sealed connection.
    sealer: Option<Sealer>,
    /// Control frames, or the rest of one, that did not fit into the socket; sealed where the connection is.
    backlog: Vec<u8>,
    /// A frame stayed half written: nothing that follows would be understood.
    broken: bool,
    pub(super) told_verdict: bool,
}

/// The frame was not written: the group is over, or the connection takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsent;

impl Outgoing {
    pub(super) fn new(sealer: Option<Sealer>) -> Self {
        let backlog = Vec::with_capacity(BACKLOG_FRAMES * (FRAME_HEADER_BYTES + MAX_REASON_BYTES));
        Self { sealer, backlog, broken: false, told_verdict: false }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealer.is_some()
    }

    /// True when no control frame waits.
    pub(super) fn is_idle(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Puts a control frame in line and writes what the socket takes.
    pub(super) fn control(&mut self, socket: &TcpStream, header: FrameHeader, payload: &str) {
        let mut frame = [&header.to_bytes()[..], payload.as_bytes()];
        match &mut self.sealer {
            None => frame.iter().for_each(|part| self.backlog.extend_from_slice(part)),
            // A control frame fits into one record.
            Some(sealer) => match sealer.seal(&mut frame) {
                Ok(record) => self.backlog.extend_from_slice(record),
                Err(_) => self.broken = true,
            },
        }
        self.flush(socket);
    }

    /// Writes what the socket takes of the control frames in line.
    pub(super) fn flush(&mut self, mut socket: &TcpStream) {
        while !self.broken && !self.backlog.is_empty() {
            match socket.write(&self.backlog) {
                Ok(bytes) => drop(self.backlog.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.broken = true,
            }
        }
    }

    /// Writes a whole frame after all control frames, waiting for room.
    pub(super) fn frame(
        &mut self,
        socket: &TcpStream,
        mut frame: [&[u8]; 3],
        verdict: &VerdictCell,
    ) -> Result<(), Unsent> {
        while !self.broken && !self.backlog.is_empty() {
            self.flush(socket);
            if verdict.get().is_some() {
                return Err(Unsent);
            }
            if !self.backlog.is_empty() {
                wait_ready(socket, Ready::ToWrite, LOOK);
            }
        }
        if self.broken {
            return Err(Unsent);
        }
        let mut writing = Writing { socket, verdict, give_up_at: None };
        let written = match &mut self.sealer {
            None => writing.all(frame),
            Some(sealer) => loop {
                if frame.iter().all(|part| part.is_empty()) {
                    break Ok(());
                }
                let record = sealer.seal(&mut frame).map_err(|_| Unsent);
                if let Err(error) = record.and_then(|record| writing.all([record])) {
                    break Err(error);
                }
            },
        };
        self.broken = written.is_err();
        written
    }
}

/// One frame on its way.
struct Writing<'w> {
    socket: &'w TcpStream,
    verdict: &'w VerdictCell,
    /// Set when the group has ended meanwhile.
    give_up_at: Option<Instant>,
}

impl Writing<'_> {
    fn all<const N: usize>(&mut self, mut parts: [&[u8]; N]) -> Result<(), Unsent> {
        while parts.iter().any(|part| !part.is_empty()) {
            match self.socket.write_vectored(&parts.map(IoSlice::new)) {
                Ok(bytes) => advance(&mut parts, bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                Err(_) => return Err(Unsent),
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Unsent> {
        if self.verdict.get().is_some() {
            let at = *self.give_up_at.get_or_insert_with(|| Instant::now() + LAST_FRAME);
            if Instant::now() > at {
                return Err(Unsent);
            }
        }
        wait_ready(self.socket, Ready::ToWrite, LOOK);
        Ok(())
    }
}

/// Removes the first `bytes` from the parts of a frame.
fn advance(parts: &mut [&[u8]], mut bytes: usize) {
    for part in parts {
        let step = bytes.min(part.len());
        *part = &part[step..];
        bytes -= step;
    }
}
