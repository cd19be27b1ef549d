//! One connection to one peer: frames out, frames in, and what is known about the peer.
//!
//! Whoever waits for bytes *pumps* the connection itself: reads the socket without blocking and sorts what is there into
//! the channels' rings. That saves the hand-over between threads in the hot path. When nobody has pumped lately, the
//! connection's own thread does it, so that farewells, verdicts and heartbeats are always heard and the socket never
//! fills up. A window per channel makes sure that what arrives fits its ring, so pumping never blocks.
//!
//! Over a sealed connection the same frames go as records, cut anywhere.

use super::{
    frame::{CHANNELS, Decoder, FrameError, FrameHeader, FrameKind, Listener, MAX_PAYLOAD},
    outgoing::{Outgoing, Unsent},
    seal::{Opener, RECORD_BYTES, SealError, seal_with},
    setup::Proved,
    socket::{Ready, wait_ready},
};
use crate::{
    CommError,
    record::{Sink, Source},
    spsc::{Corrupt, Reader, Writer, heap_ring},
    transport::lock,
    verdict::{Verdict, VerdictCell, cut_reason},
    wait::Bell,
};
use std::{
    io::{self, ErrorKind, Read},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes of a channel that may be under way or unread: how far a sender can run ahead of its receiver.
pub(super) const WINDOW: usize = 1 << 20;

/// Consumed bytes that are worth a credit frame.
const CREDIT_STEP: u64 = WINDOW as u64 / 4;

/// Bytes read from a socket at a time.
const READ_BYTES: usize = 128 << 10;

/// How long the connection's thread leaves the socket alone after somebody else pumped it. Shorter than the time that a
/// waiting caller yields before it sleeps.
const LEAVE_ALONE: Duration = Duration::from_micros(500);

/// How long a rank that can't write any more looks for the peer's last words.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// What all connections of a group have in common.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// This rank.
    pub(super) rank: usize,
    pub(super) verdict: VerdictCell,
    pub(super) bell: Bell,
    pub(super) stop: crate::stop::Stop,
    /// Set before this side closes its sockets: what breaks afterwards is no news.
    pub(super) closing: AtomicBool,
}

impl Common {
    pub(super) fn new(rank: usize) -> Self {
        Self { rank, ..Self::default() }
    }

    /// Ends the group on this rank; the heartbeat thread tells the others at once.
    pub(super) fn end(&self, verdict: Verdict) {
        if self.verdict.set(verdict) {
            self.bell.ring();
            self.stop.hurry();
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: usize,
    socket: TcpStream,
    common: Arc<Common>,
    outgoing: Mutex<Outgoing>,
    inlet: Mutex<Inlet>,
    news: Arc<News>,
    /// Somebody other than the connection's thread has pumped since that thread last looked.
    pumped: AtomicBool,
    /// Messages that this rank has sent to the peer by other ways; told with every heartbeat.
    sent_elsewhere: AtomicU64,
}

/// What the peer has told about itself.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Counts reads that brought something: the peer's sign of life.
    heard: AtomicU64,
    left: AtomicBool,
    /// Bytes of each channel that the peer has consumed.
    consumed: [AtomicU64; CHANNELS],
    /// Messages that the peer has sent to this rank by other ways.
    announced: AtomicU64,
}

/// The reading half.
#[derive(Debug)]
struct Inlet {
    decoder: Decoder,
    sorter: Sorter,
    /// On a sealed connection.
    opener: Option<Opener>,
    buffer: Box<[u8]>,
    /// Bytes in the buffer that are the beginning of a record.
    have: usize,
    ended: bool,
}

// A record that is not all there leaves room to read.
const _: () = assert!(READ_BYTES > RECORD_BYTES);

/// Bytes that no correct peer would send over this connection.
#[derive(Debug, thiserror::Error)]
enum Nonsense {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Nonsense {
    /// Whose fault it is: a frame that opened comes from the peer itself, a record that does not open may have been
    /// changed by anybody.
    fn verdict(&self, rank: usize, by: usize) -> Verdict {
        let what = self.to_string();
        match self {
            Self::Seal(_) => Verdict::LinkFailed { rank, by, what },
            Self::Frame(_) => Verdict::Broken { rank, what },
        }
    }
}

impl Inlet {
    fn new(sorter: Sorter, opener: Option<Opener>) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self { decoder: Decoder::new(), sorter, opener, buffer, have: 0, ended: false }
    }

    /// Where the next bytes of the connection go.
    fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.have..]
    }

    /// Takes the `bytes` that have been read to [`Inlet::room`].
    fn take(&mut self, bytes: usize) -> Result<(), Nonsense> {
        let Some(opener) = &mut self.opener else {
            return Ok(self.decoder.push(&self.buffer[..bytes], &mut self.sorter)?);
        };
        let all = self.have + bytes;
        let mut done = 0;
        while let Some(opened) = opener.open(&self.buffer[done..all])? {
            self.decoder.push(opened.piece, &mut self.sorter)?;
            done += opened.record_bytes;
        }
        self.buffer.copy_within(done..all, 0);
        self.have = all - done;
        Ok(())
    }
}

/// Sorts what the decoder finds.
#[derive(Debug)]
pub(super) struct Sorter {
    rings: [Writer; CHANNELS],
    news: Arc<News>,
    common: Arc<Common>,
}

impl Sorter {
    /// A sorter and the readers of its channels.
    pub(super) fn new(window: usize, news: Arc<News>, common: Arc<Common>) -> (Self, [Reader; CHANNELS]) {
        let (first_in, first_out) = heap_ring(window);
        let (second_in, second_out) = heap_ring(window);
        (Self { rings: [first_in, second_in], news, common }, [first_out, second_out])
    }
}

impl Listener for Sorter {
    fn data(&mut self, channel: usize, bytes: &[u8]) -> Result<(), FrameError> {
        match self.rings[channel].write(bytes) {
            Ok(taken) if taken == bytes.len() => Ok(()),
            Ok(_) | Err(Corrupt) => Err(FrameError::Overrun),
        }
    }

    fn credit(&mut self, channel: usize, total: u64) {
        self.news.consumed[channel].fetch_max(total, Release);
    }

    fn verdict(&mut self, verdict: Verdict) {
        self.common.end(verdict.seen_by(self.common.rank));
    }

    fn announced(&mut self, total: u64) {
        self.news.announced.fetch_max(total, Release);
    }

    fn leave(&mut self) {
        self.news.left.store(true, Release);
    }
}

impl Link {
    /// A link over a connection whose handshake is done, and the readers of its channels.
    pub(super) fn new(
        peer: usize,
        Proved { socket, keys }: Proved,
        common: &Arc<Common>,
    ) -> io::Result<(Arc<Self>, [Reader; CHANNELS])> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let news = Arc::new(News::default());
        let (sorter, readers) = Sorter::new(WINDOW, Arc::clone(&news), Arc::clone(common));
        let (sealer, opener) = keys.map(seal_with).unzip();
        let link = Self {
            peer,
            socket,
            common: Arc::clone(common),
            outgoing: Mutex::new(Outgoing::new(sealer)),
            inlet: Mutex::new(Inlet::new(sorter, opener)),
            news,
            pumped: AtomicBool::new(false),
            sent_elsewhere: AtomicU64::new(0),
        };
        Ok((Arc::new(link), readers))
    }

    /// True when what goes over the connection is encrypted.
    pub(super) fn is_sealed(&self) -> bool {
        lock(&self.outgoing).is_sealed()
    }

    /// True after the peer's farewell.
    pub(crate) fn has_left(&self) -> bool {
        self.news.left.load(Acquire)
    }

    /// A counter that moves while the peer lives.
    pub(super) fn heard(&self) -> u64 {
        self.news.heard.load(Relaxed)
    }

    /// This rank.
    pub(crate) fn own(&self) -> usize {
        self.common.rank
    }

    /// Ends the group, unless it has ended before; gives the error that it has ended with.
    pub(crate) fn end(&self, verdict: Verdict) -> CommError {
        let error = verdict.to_error();
        self.common.end(verdict);
        self.common.verdict.get().map_or(error, Verdict::to_error)
    }

    /// Counts a message that goes to the peer by another way. Call before it is sent.
    pub(crate) fn count_sent_elsewhere(&self) {
        self.sent_elsewhere.fetch_add(1, Release);
    }

    /// Messages that the peer has said it sent by other ways; what it says last, it says when it leaves.
    pub(crate) fn announced(&self) -> u64 {
        self.news.announced.load(Acquire)
    }

    fn sign_of_life(&self, kind: FrameKind) -> FrameHeader {
        FrameHeader { kind, channel: 0, value: self.sent_elsewhere.load(Acquire), length: 0 }
    }

    /// Reads what is there, unless somebody else is just doing so.
    fn pump(&self) {
        self.pumped.store(true, Relaxed);
        self.read_socket();
    }

    /// The connection's thread: pumps when nobody else does, until the connection ends.
    pub(super) fn keep_reading(&self) {
        const LOOK_UP: Duration = Duration::from_secs(1);
        while !self.common.closing.load(Acquire) {
            wait_ready(&self.socket, Ready::ToRead, LOOK_UP);
            if self.pumped.swap(false, Relaxed) {
                thread::sleep(LEAVE_ALONE);
            } else if !self.read_socket() {
                return;
            }
        }
    }

    /// One read without waiting; says whether the connection goes on.
    fn read_socket(&self) -> bool {
        let Ok(mut inlet) = self.inlet.try_lock() else {
            thread::yield_now();
            return true;
        };
        if inlet.ended {
            return false;
        }
        let verdict = match (&self.socket).read(inlet.room()) {
            Ok(0) => self.lost("it closed its connection without a farewell"),
            Ok(bytes) => {
                self.news.heard.fetch_add(1, Relaxed);
                match inlet.take(bytes) {
                    Ok(()) => {
                        self.common.bell.ring();
                        return true;
                    }
                    Err(error) => Some(error.verdict(self.peer, self.common.rank)),
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return true;
            }
            Err(error) => self.lost(&format!("its connection broke: {error}")),
        };
        inlet.ended = true;
        if let Some(verdict) = verdict {
            self.common.end(verdict);
        }
        false
    }

    /// The connection is gone: no news after a farewell from either side.
    fn lost(&self, what: &str) -> Option<Verdict> {
        let expected = self.has_left() || self.common.closing.load(Acquire);
        (!expected).then(|| Verdict::Dead { rank: self.peer, what: what.to_owned() })
    }

    /// Sends a heartbeat or, once there is one, the verdict. Says whether the verdict still has to be told.
    pub(super) fn beat(&self) -> bool {
        let verdict = self.common.verdict.get();
        let Ok(mut outgoing) = self.outgoing.try_lock() else {
            return verdict.is_some();
        };
        self.tell(&mut outgoing, verdict);
        false
    }

    fn tell(&self, outgoing: &mut Outgoing, verdict: Option<&Verdict>) {
        match verdict {
            Some(verdict) if !outgoing.told_verdict => {
                outgoing.told_verdict = true;
                let (header, reason) = verdict_frame(verdict);
                outgoing.control(&self.socket, header, reason);
            }
            Some(_) => {}
            None if outgoing.is_idle() => {
                outgoing.control(&self.socket, self.sign_of_life(FrameKind::Heartbeat), "");
            }
            None => outgoing.flush(&self.socket),
        }
    }

    /// Says goodbye (or the verdict, if that is still untold) and closes the connection.
    pub(super) fn close(&self) {
        let mut outgoing = lock(&self.outgoing);
        match self.common.verdict.get() {
            Some(verdict) => self.tell(&mut outgoing, Some(verdict)),
            None => outgoing.control(&self.socket, self.sign_of_life(FrameKind::Leave), ""),
        }
        // The peer may be gone already, which is all that can go wrong here.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    fn send_credit(&self, channel: usize, total: u64) {
        let header = FrameHeader { kind: FrameKind::Credit, channel: channel as u8, value: total, length: 0 };
        lock(&self.outgoing).control(&self.socket, header, "");
    }

    /// Writes one whole data frame, waiting for room in the socket. The peer always makes room while it lives.
    fn send_data(&self, header: FrameHeader, head: &[u8], body: &[u8]) -> Result<(), CommError> {
        let frame = [&header.to_bytes()[..], head, body];
        let written = lock(&self.outgoing).frame(&self.socket, frame, &self.common.verdict);
        written.map_err(|Unsent| self.write_error())
    }

    /// Why nothing can be written: the verdict if there is one, which may lie unread in front of the connection's end;
    /// else the peer's end, which reading finds too.
    fn write_error(&self) -> CommError {
        let until = Instant::now() + LAST_WORDS;
        while self.common.verdict.get().is_none() && self.read_socket() && Instant::now() < until {
            wait_ready(&self.socket, Ready::ToRead, LEAVE_ALONE);
        }
        if let Some(verdict) = self.lost("its connection broke while sending to it") {
            self.common.end(verdict);
        }
        let left = || CommError::PeerDead { rank: self.peer, what: "it left the group".into() };
        self.common.verdict.get().map_or_else(left, Verdict::to_error)
    }
}

fn verdict_frame(verdict: &Verdict) -> (FrameHeader, &str) {
    let (kind, rank, reason) = match verdict {
        Verdict::Dead { rank, what } => (FrameKind::Dead, *rank, what),
        Verdict::Broken { rank, what } => (FrameKind::Broken, *rank, what),
        Verdict::LinkFailed { rank, by, what } => (FrameKind::LinkFailed, by << 32 | rank, what),
        Verdict::Aborted { by, reason } => (FrameKind::Abort, *by, reason),
    };
    let reason = cut_reason(reason);
    // `cut_reason` leaves 200 bytes at most.
    (FrameHeader { kind, channel: 0, value: rank as u64, length: reason.len() as u32 }, reason)
}

/// The sending end of one channel.
#[derive(Debug)]
pub(crate) struct TcpSink {
    link: Arc<Link>,
    channel: usize,
    sent: u64,
}

impl TcpSink {
    pub(super) fn new(link: &Arc<Link>, channel: usize) -> Self {
        Self { link: Arc::clone(link), channel, sent: 0 }
    }

    /// Bytes that the peer has room for.
    fn room(&self) -> Result<usize, CommError> {
        let consumed = self.link.news.consumed[self.channel].load(Acquire);
        let under_way = self.sent.checked_sub(consumed).ok_or_else(|| CommError::Protocol {
            rank: self.link.peer,
            what: format!("it consumed {consumed} bytes of {} sent", self.sent),
        })?;
        // Never more than the window is sent.
        Ok(WINDOW - under_way as usize)
    }
}

impl Sink for TcpSink {
    fn try_write(&mut self, head: &[u8], body: &[u8]) -> Result<usize, CommError> {
        let mut room = self.room()?;
        if room == 0 {
            self.link.pump();
            room = self.room()?;
        }
        let room = room.min(MAX_PAYLOAD);
        let head = &head[..head.len().min(room)];
        let body = &body[..body.len().min(room - head.len())];
        let length = head.len() + body.len();
        if length == 0 {
            return Ok(0);
        }
        let (channel, value) = (self.channel as u8, self.sent);
        let header = FrameHeader { kind: FrameKind::Data, channel, value, length: length as u32 };
        self.link.send_data(header, head, body)?;
        self.sent += length as u64;
        Ok(length)
    }
}

/// The receiving end of one channel.
#[derive(Debug)]
pub(crate) struct TcpSource {
    link: Arc<Link>,
    channel: usize,
    reader: Reader,
    consumed: u64,
    credited: u64,
}

impl TcpSource {
    pub(super) fn new(link: &Arc<Link>, channel: usize, reader: Reader) -> Self {
        Self { link: Arc::clone(link), channel, reader, consumed: 0, credited: 0 }
    }

    fn read_ring(&mut self, into: &mut [u8]) -> Result<usize, CommError> {
        let what = || "a ring in this process is damaged".into();
        self.reader.read(into).map_err(|Corrupt| CommError::Protocol { rank: self.link.peer, what: what() })
    }
}

impl Source for TcpSource {
    fn try_read(&mut self, into: &mut [u8]) -> Result<usize, CommError> {
        let mut bytes = self.read_ring(into)?;
        if bytes == 0 {
            self.link.pump();
            bytes = self.read_ring(into)?;
        }
        self.consumed += bytes as u64;
        if self.consumed - self.credited >= CREDIT_STEP {
            self.link.send_credit(self.channel, self.consumed);
            self.credited = self.consumed;
        }
        Ok(bytes)
    }
}

/// Feeds `bytes` to the reading side of a connection as if they came from a peer, in pieces of `step`, and drains the
/// channels as a receiver would; says how the connection would have ended. For fuzzing: it must never panic, nor use
/// more memory than its windows.
///
/// # Errors
/// The first [`FrameError`].
pub fn fuzz_frames(bytes: &[u8], step: usize) -> Result<(), FrameError> {
    const SMALL_WINDOW: usize = 4096;
    let common = Arc::new(Common::default());
    let (mut sorter, mut readers) = Sorter::new(SMALL_WINDOW, Arc::default(), common);
    let mut decoder = Decoder::new();
    let mut drained = [0; SMALL_WINDOW];
    for piece in bytes.chunks(step.max(1)) {
        decoder.push(piece, &mut sorter)?;
        for reader in &mut readers {
            let _ = reader.read(&mut drained);
        }
    }
    Ok(())
}
