//! The dialing side: tries a peer's addresses in turn until one of them proves to be that peer.

use super::{
    handshake::{ANSWER_BYTES, Dialer, HandshakeError, NOISE_BYTES, PROOF_BYTES, check_proof},
    setup::{Plan, Proved, is_early},
};
use crate::{CommError, address::address_text};
use std::{
    fmt::Write as _,
    io::{self, Read, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// How long one address may take to be reached, and again to answer.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Time between two rounds of attempts, and between two looks at whether others have failed.
const RETRY: Duration = Duration::from_millis(20);

/// What became of an attempt at one address.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("not tried")]
    NotTried,
    #[error("no answer within {0:.1?}")]
    NoAnswer(Duration),
    #[error("connection refused")]
    Refused,
    #[error("it hung up")]
    HungUp,
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
}

impl Failure {
    /// Trying again will not help: a rank of pomar answered, and does not fit.
    fn is_final(&self) -> bool {
        matches!(self, Self::Handshake(error) if *error != HandshakeError::NotPomar)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::HungUp,
            _ => Self::Io(error),
        }
    }
}

/// Dials one lower rank until one of its addresses answers rightly.
pub(super) fn dial(plan: &Plan<'_>, peer: usize) -> Result<Proved, CommError> {
    let addresses = &plan.addresses[peer];
    let mut failures: Vec<Failure> = addresses.iter().map(|_| Failure::NotTried).collect();
    while !plan.time_left(ATTEMPT).is_zero() && !plan.is_given_up() {
        for (address, failure) in addresses.iter().zip(&mut failures) {
            let within = plan.time_left(ATTEMPT);
            if within.is_zero() || plan.is_given_up() {
                break;
            }
            match attempt(plan, peer, address, within) {
                Ok(proved) => return Ok(proved),
                Err(error) => *failure = error,
            }
        }
        if failures.iter().any(Failure::is_final) {
            break;
        }
        thread::sleep(RETRY);
    }
    plan.give_up();
    Err(explain(plan, peer, &failures))
}

/// Names the pair, every address and what happened at each.
fn explain(plan: &Plan<'_>, peer: usize, failures: &[Failure]) -> CommError {
    let mut tried = String::new();
    for (address, failure) in plan.addresses[peer].iter().zip(failures) {
        let comma = if tried.is_empty() { "" } else { "; " };
        // Writing to a string does not fail.
        let _ = write!(tried, "{comma}{}: {failure}", address_text(address));
    }
    if failures.iter().any(Failure::is_final) {
        let what = format!("rank {} and rank {peer} do not fit together ({tried})", plan.rank);
        return CommError::Setup { what };
    }
    CommError::NoPath { from: plan.rank, to: peer, after: plan.within, tried }
}

fn attempt(plan: &Plan<'_>, peer: usize, address: &SocketAddr, within: Duration) -> Result<Proved, Failure> {
    let timed_out =
        |error: io::Error| if is_early(&error) { Failure::NoAnswer(within) } else { error.into() };
    let mut socket = TcpStream::connect_timeout(address, within).map_err(timed_out)?;
    let until = Instant::now() + plan.time_left(ATTEMPT);
    socket.set_nodelay(true)?;
    // Short, so that `hear` can look at the time and at the others.
    socket.set_read_timeout(Some(RETRY))?;
    let sealed = plan.seals(&socket)?;
    let (dialer, hello) = Dialer::new(plan.key, plan.terms(plan.rank, peer, sealed))?;
    socket.write_all(&hello)?;
    let mut hear = Hearing { plan, socket: &socket, until };
    dialer.check_answer(&hear.exactly::<ANSWER_BYTES>().map_err(timed_out)?)?;
    let message = hear.exactly::<NOISE_BYTES>().map_err(timed_out)?;
    let (keys, proof) = dialer.finish(&message)?;
    (&socket).write_all(&proof)?;
    // It holds the key, so it is the right one. Once it has the proof it listens no more: to give up now, because this machine
    // or the other one had a hiccup, would be for good.
    hear.until = plan.deadline;
    let welcome = hear.exactly::<PROOF_BYTES>().map_err(timed_out)?;
    check_proof(&keys, &welcome)?;
    Ok(Proved { socket, keys: sealed.then_some(keys) })
}

/// Hears what the other end answers.
struct Hearing<'h> {
    plan: &'h Plan<'h>,
    socket: &'h TcpStream,
    until: Instant,
}

impl Hearing<'_> {
    /// The next `N` bytes.
    fn exactly<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        let mut have = 0;
        while have < N {
            match self.socket.read(&mut bytes[have..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => have += more,
                Err(error) if is_early(&error) => {
                    if Instant::now() >= self.until || self.plan.is_given_up() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}
