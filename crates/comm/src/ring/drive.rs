//! Moves the bytes of one call: one thread, all lanes, no socket ever blocks.
//!
//! Every pass gives each lane one write and one read, so a rank always reads while it writes and two
//! neighbours that both have much to send cannot block each other. When nothing moves it waits in the phases of
//! `wait`; to sleep is to `poll` exactly the sockets that it waits for.

use super::{
    hop,
    lane::{Incoming, Lane},
    ports::{Polled, Port, Ports, Side},
};
use crate::{
    BufferMut, CommError,
    reduce::Reduce,
    verdict::VerdictCell,
    wait::{LONGEST_SLEEP, Patience, Phase},
};
use std::{
    hint::spin_loop,
    io::{self, ErrorKind, Read, Write},
    ops::Range,
    thread,
    time::{Duration, Instant},
};

/// Most bytes of one write or one read: small enough to stay in the second-level cache until they are joined.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// The caller's memory in one call.
pub(super) enum Load<'a> {
    /// A message to send.
    Out(&'a [u8]),
    /// Bytes that are replaced as they come, and passed on.
    Through(&'a mut [u8]),
    /// Elements that are joined with what comes.
    Joined(BufferMut<'a>, Reduce),
}

impl Load<'_> {
    fn outgoing(&mut self, span: Range<usize>) -> &[u8] {
        match self {
            Self::Out(bytes) => &bytes[span],
            Self::Through(bytes) => &bytes[span],
            Self::Joined(elements, _) => &elements.as_bytes_mut()[span],
        }
    }

    /// Where bytes of `span` go; nowhere in a call that only sends.
    fn room(&mut self, span: Range<usize>) -> &mut [u8] {
        match self {
            Self::Out(_) => &mut [],
            Self::Through(bytes) => &mut bytes[span],
            Self::Joined(elements, _) => &mut elements.as_bytes_mut()[span],
        }
    }

    /// Bytes per element.
    fn width(&self) -> usize {
        match self {
            Self::Out(_) | Self::Through(_) => 1,
            Self::Joined(elements, _) => elements.dtype().bytes(),
        }
    }

    /// Joins whole elements that belong at byte `start`.
    fn join(&mut self, start: usize, received: &[u8]) {
        let width = self.width();
        if let Self::Joined(elements, how) = self {
            let first = start / width;
            hop::join(*how, elements.part(first..first + received.len() / width), received);
        }
    }
}

/// Why a call stopped before its end.
#[derive(Debug)]
pub(super) enum Halt {
    /// The group has been ended, for this reason.
    Over(CommError),
    /// A connection ended or broke.
    Ended { port: Port, what: String },
    /// A neighbour closed its connection and nothing has come from the other one since.
    Stranded { side: Side },
    /// The deadline passed; `side` is where the next bytes are due. `begun`: some bytes had moved.
    Late { side: Side, begun: bool },
}

/// The terms of one call.
pub(super) struct Drive<'a> {
    pub(super) ports: &'a Ports,
    pub(super) verdict: &'a VerdictCell,
    pub(super) patience: Patience,
    pub(super) within: Duration,
    /// How long to wait on when nothing moves and a neighbour has gone.
    pub(super) stranded_after: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Moved,
    Stuck,
    Done,
}

/// Since when a call waits, and what it has noticed.
struct Waiting {
    started: Instant,
    begun: bool,
    /// Since when nothing moves.
    idle_since: Option<Instant>,
    gone: Option<(Side, Instant)>,
}

impl Drive<'_> {
    /// Runs all lanes to their end. `scratch` has [`CHUNK_BYTES`] if a lane joins.
    pub(super) fn run(
        &self,
        lanes: &mut [Lane],
        load: &mut Load<'_>,
        scratch: &mut [u8],
    ) -> Result<(), Halt> {
        let mut waiting = Waiting { started: Instant::now(), begun: false, idle_since: None, gone: None };
        loop {
            match self.pass(lanes, load, scratch)? {
                Progress::Done => return Ok(()),
                Progress::Moved => {
                    waiting.begun = true;
                    waiting.idle_since = None;
                }
                Progress::Stuck => self.wait(lanes, &mut waiting)?,
            }
        }
    }

    fn pass(&self, lanes: &mut [Lane], load: &mut Load<'_>, scratch: &mut [u8]) -> Result<Progress, Halt> {
        let mut progress = Progress::Done;
        for lane in lanes {
            if lane.is_done() {
                continue;
            }
            let moved = self.push(lane, load)? | self.pull(lane, load, scratch)?;
            if moved {
                progress = Progress::Moved;
            } else if progress == Progress::Done {
                progress = Progress::Stuck;
            }
        }
        Ok(progress)
    }

    /// One write, if the lane has something to send; says whether bytes moved.
    fn push(&self, lane: &mut Lane, load: &mut Load<'_>) -> Result<bool, Halt> {
        let Some(ready) = lane.to_send() else { return Ok(false) };
        let port = lane.out();
        let chunk = at_most(ready, CHUNK_BYTES);
        let written = self.ports.stream(port).write(load.outgoing(chunk));
        let Some(bytes) = moved(port, written)? else { return Ok(false) };
        lane.sent(bytes);
        Ok(bytes > 0)
    }

    /// One read, if the lane is due something; says whether bytes moved.
    fn pull(&self, lane: &mut Lane, load: &mut Load<'_>, scratch: &mut [u8]) -> Result<bool, Halt> {
        let port = lane.inward();
        let mut stream = self.ports.stream(port);
        let (read, joined) = match lane.to_receive() {
            None => return Ok(false),
            Some(Incoming::Replace(span)) => (stream.read(load.room(at_most(span, CHUNK_BYTES))), None),
            Some(Incoming::Join(span)) => {
                let carried = lane.carry().bytes();
                scratch[..carried.len()].copy_from_slice(carried);
                let room = carried.len()..span.len().min(scratch.len());
                (stream.read(&mut scratch[room]), Some((span.start, carried.len())))
            }
        };
        let bytes = match moved(port, read)? {
            None => return Ok(false),
            Some(0) => return Err(Halt::Ended { port, what: "it closed its connection".into() }),
            Some(bytes) => bytes,
        };
        let Some((start, carried)) = joined else {
            lane.received(bytes);
            return Ok(true);
        };
        let have = carried + bytes;
        let whole = have - have % load.width();
        load.join(start, &scratch[..whole]);
        lane.keep(&scratch[whole..have]);
        lane.received(whole);
        Ok(true)
    }

    /// Waits for a moment, or ends the call.
    fn wait(&self, lanes: &[Lane], waiting: &mut Waiting) -> Result<(), Halt> {
        self.verdict.check().map_err(Halt::Over)?;
        let now = Instant::now();
        let left = self.within.saturating_sub(now - waiting.started);
        if left.is_zero() {
            return Err(Halt::Late { side: due_from(lanes), begun: waiting.begun });
        }
        match self.patience.phase(now - *waiting.idle_since.get_or_insert(now)) {
            Phase::Spin => spin_loop(),
            Phase::Yield => thread::yield_now(),
            Phase::Sleep => self.sleep(lanes, waiting, left.min(LONGEST_SLEEP))?,
        }
        Ok(())
    }

    /// Sleeps until a socket is ready, `at_most` as long; when none gets ready, somebody may have gone.
    fn sleep(&self, lanes: &[Lane], waiting: &mut Waiting, at_most: Duration) -> Result<(), Halt> {
        let mut polled = Polled::default();
        for lane in lanes {
            if lane.to_receive().is_some() {
                polled.watch_to_read(self.ports.stream(lane.inward()));
            }
            if lane.to_send().is_some() {
                polled.watch_to_write(self.ports.stream(lane.out()));
            }
        }
        if polled.wait(at_most) { Ok(()) } else { self.look_for_the_gone(waiting) }
    }

    /// A neighbour that closes its connection may have left in good order, with everything sent that this
    /// call needs; then the rest comes from the other side soon. When it does not, the ring is broken.
    fn look_for_the_gone(&self, waiting: &mut Waiting) -> Result<(), Halt> {
        if waiting.gone.is_none() {
            let gone = [Side::Right, Side::Left].into_iter().find(|side| self.ports.has_ended(*side));
            waiting.gone = gone.map(|side| (side, Instant::now()));
        }
        match (waiting.gone, waiting.idle_since) {
            (Some((side, seen)), Some(idle_since))
                if seen.max(idle_since).elapsed() >= self.stranded_after =>
            {
                Err(Halt::Stranded { side })
            }
            _ => Ok(()),
        }
    }
}

/// The first `most` of a span.
fn at_most(span: Range<usize>, most: usize) -> Range<usize> {
    span.start..span.end.min(span.start + most)
}

/// The neighbour whose bytes, or whose readiness to take some, a call waits for.
fn due_from(lanes: &[Lane]) -> Side {
    let open = lanes.iter().find(|lane| !lane.is_done());
    open.map_or(Side::Left, |lane| match lane.to_receive() {
        Some(_) => lane.inward().side,
        None => lane.out().side,
    })
}

/// The bytes that a read or write moved; `None` when it would have had to wait.
fn moved(port: Port, result: io::Result<usize>) -> Result<Option<usize>, Halt> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(Halt::Ended { port, what: format!("its connection broke: {error}") }),
    }
}
