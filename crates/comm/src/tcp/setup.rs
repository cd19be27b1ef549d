//! Making the mesh: every pair of ranks ends up with one connection that both have proved.
//!
//! A rank dials all lower ranks, one thread each, and meanwhile takes connections from the higher ones. Incoming
//! connections are handled side by side without blocking, so that a stranger who connects and says nothing, or says
//! nonsense, holds nobody up; it is dropped after a short while.

use super::handshake::{
    ANSWER_BYTES, Conversation, HELLO_BYTES, HandshakeError, InstanceKey, PROOF_BYTES, Pair,
};
use crate::CommError;
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// How long an incoming connection may take for its handshake.
const STRANGER_TIME: Duration = Duration::from_secs(2);

/// Incoming connections in their handshake at a time; the oldest makes room.
const MOST_STRANGERS: usize = 64;

/// Time between two attempts to dial, and between two looks at incoming connections.
const RETRY: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_micros(500);

/// Everything that setting up needs to know.
pub(super) struct Plan<'a> {
    pub(super) rank: usize,
    pub(super) addresses: &'a [SocketAddr],
    pub(super) key: &'a InstanceKey,
    pub(super) within: Duration,
}

impl Plan<'_> {
    fn size(&self) -> usize {
        self.addresses.len()
    }
}

/// Connects to all peers: one proved connection per peer, `None` at this rank's own place.
pub(super) fn connect_all(
    plan: &Plan<'_>,
    listener: &TcpListener,
) -> Result<Vec<Option<TcpStream>>, CommError> {
    let deadline = Instant::now() + plan.within;
    let failed = &AtomicBool::new(false);
    thread::scope(|scope| {
        let dialing: Vec<_> =
            (0..plan.rank).map(|peer| scope.spawn(move || dial(plan, peer, deadline, failed))).collect();
        let accepted = accept_higher(plan, listener, deadline, failed);
        // Dialers look at `failed` between attempts, so they end soon after it is set.
        let dialed: Vec<_> = dialing.into_iter().map(join).collect();
        let mut sockets = accepted?;
        for (peer, socket) in dialed.into_iter().enumerate() {
            sockets[peer] = Some(socket?);
        }
        Ok(sockets)
    })
}

type Dialing<'s> = thread::ScopedJoinHandle<'s, Result<TcpStream, CommError>>;

fn join(dialing: Dialing<'_>) -> Result<TcpStream, CommError> {
    dialing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Dials one lower rank until it answers rightly.
fn dial(
    plan: &Plan<'_>,
    peer: usize,
    deadline: Instant,
    failed: &AtomicBool,
) -> Result<TcpStream, CommError> {
    // What somebody who answered was wrong about says more than that nobody answers any more.
    let mut refusal = None;
    while Instant::now() < deadline && !failed.load(Relaxed) {
        match dial_once(plan, peer, deadline, failed) {
            Ok(socket) => return Ok(socket),
            Err(error) if is_refusal(&error) => refusal = Some(error),
            Err(_) => {}
        }
        thread::sleep(RETRY);
    }
    failed.store(true, Relaxed);
    let address = plan.addresses[peer];
    Err(match refusal {
        Some(error) => CommError::Setup {
            what: format!(
                "whoever listens at {address} is not rank {peer} of this group ({error}); \
                 do all ranks have the same addresses and the same key?"
            ),
        },
        None => CommError::DidNotJoin { missing: peer, after: plan.within },
    })
}

/// Somebody answered, but hung up on us or could not prove itself.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

fn dial_once(plan: &Plan<'_>, peer: usize, deadline: Instant, failed: &AtomicBool) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut socket = TcpStream::connect_timeout(&plan.addresses[peer], left)?;
    socket.set_nodelay(true)?;
    // Short, so that `read_all` can look at the deadline and at `failed`.
    socket.set_read_timeout(Some(RETRY))?;
    // Both fit: a group has at most 64 ranks.
    let pair = Pair { size: plan.size() as u32, from: plan.rank as u32, to: peer as u32 };
    let mut conversation = Conversation::dial(plan.key, pair, nonce()?);
    socket.write_all(conversation.hello())?;
    let answer: [u8; ANSWER_BYTES] = read_all(&mut socket, deadline, failed)?;
    let proof = conversation.check_answer(&answer).map_err(invalid)?;
    socket.write_all(&proof)?;
    let welcome: [u8; PROOF_BYTES] = read_all(&mut socket, deadline, failed)?;
    conversation.check_welcome(&welcome).map_err(invalid)?;
    Ok(socket)
}

fn invalid(error: HandshakeError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

fn read_all<const N: usize>(
    socket: &mut TcpStream,
    deadline: Instant,
    failed: &AtomicBool,
) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut have = 0;
    while have < N {
        match socket.read(&mut bytes[have..]) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it hung up")),
            Ok(more) => have += more,
            Err(error) if is_early(&error) => {
                if Instant::now() >= deadline || failed.load(Relaxed) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn nonce() -> io::Result<[u8; 32]> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

/// Takes connections until all higher ranks have come.
fn accept_higher(
    plan: &Plan<'_>,
    listener: &TcpListener,
    deadline: Instant,
    failed: &AtomicBool,
) -> Result<Vec<Option<TcpStream>>, CommError> {
    let io_error = |source| CommError::Io { what: "waiting for the other ranks to connect", source };
    let mut sockets: Vec<Option<TcpStream>> = (0..plan.size()).map(|_| None).collect();
    let mut strangers: Vec<Stranger> = Vec::with_capacity(MOST_STRANGERS);
    listener.set_nonblocking(true).map_err(io_error)?;
    while let Some(missing) = (plan.rank + 1..plan.size()).find(|rank| sockets[*rank].is_none()) {
        if Instant::now() >= deadline {
            failed.store(true, Relaxed);
            return Err(CommError::DidNotJoin { missing, after: plan.within });
        }
        if failed.load(Relaxed) {
            // The dialer that failed has the better error.
            return Ok(sockets);
        }
        greet(listener, &mut strangers);
        strangers.retain_mut(|stranger| match stranger.go_on(plan) {
            Progress::Waiting => stranger.since.elapsed() < STRANGER_TIME,
            Progress::Dropped => false,
            Progress::Welcome(rank, socket) => {
                // A second connection for the same rank can only be a dialer that gave up on its first.
                sockets[rank] = Some(socket);
                false
            }
        });
        thread::sleep(LOOK);
    }
    Ok(sockets)
}

/// Takes whoever waits at the door.
fn greet(listener: &TcpListener, strangers: &mut Vec<Stranger>) {
    while let Ok((socket, _)) = listener.accept() {
        if socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true)).is_err() {
            continue;
        }
        if strangers.len() == MOST_STRANGERS {
            strangers.remove(0);
        }
        strangers.push(Stranger {
            socket,
            since: Instant::now(),
            buffer: [0; HELLO_BYTES],
            have: 0,
            met: None,
        });
    }
}

/// An incoming connection in its handshake.
struct Stranger {
    socket: TcpStream,
    since: Instant,
    buffer: [u8; HELLO_BYTES],
    have: usize,
    /// After a good hello: who it says it is.
    met: Option<(u32, Conversation)>,
}

enum Progress {
    Waiting,
    Dropped,
    Welcome(usize, TcpStream),
}

impl Stranger {
    /// As far as the bytes that are there go.
    fn go_on(&mut self, plan: &Plan<'_>) -> Progress {
        self.try_go_on(plan).unwrap_or(Progress::Dropped)
    }

    fn try_go_on(&mut self, plan: &Plan<'_>) -> io::Result<Progress> {
        loop {
            let wanted = if self.met.is_none() { HELLO_BYTES } else { PROOF_BYTES };
            match self.socket.read(&mut self.buffer[self.have..wanted]) {
                Ok(0) => return Ok(Progress::Dropped),
                Ok(more) => self.have += more,
                Err(error) if is_early(&error) => return Ok(Progress::Waiting),
                Err(error) => return Err(error),
            }
            if self.have < wanted {
                continue;
            }
            self.have = 0;
            // What is written here is less than any socket's buffer, so it never blocks.
            if let Some((rank, conversation)) = &self.met {
                let proof = std::array::from_fn(|i| self.buffer[i]);
                let welcome = conversation.check_proof(&proof).map_err(invalid)?;
                self.socket.write_all(&welcome)?;
                return Ok(Progress::Welcome(*rank as usize, self.socket.try_clone()?));
            }
            let own = (plan.rank as u32, plan.size() as u32);
            let (rank, conversation) =
                Conversation::accept(plan.key, own, self.buffer, nonce()?).map_err(invalid)?;
            self.socket.write_all(&conversation.answer())?;
            self.met = Some((rank, conversation));
        }
    }
}
