//! The accepting side: takes connections until every higher rank has proved itself.
//!
//! Incoming connections are handled side by side without blocking, so that a stranger who connects and says nothing, or
//! says nonsense, holds nobody up; it is dropped after a short while. A rank with another key, or with other plain
//! networks, ends the setup: it will not get better by waiting. Since a stranger could claim to be such a rank, the
//! right one is given a moment to come first.

use super::{
    handshake::{
        Acceptor, HELLO_BYTES, HandshakeError, NOISE_BYTES, PROOF_BYTES, TERMS_BYTES, Terms, agreement,
        refusal,
    },
    setup::{Plan, Proved, is_early},
};
use crate::{CommError, address::address_text};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// How long an incoming connection may take for its handshake.
const STRANGER_TIME: Duration = Duration::from_secs(2);

/// How long a rank that fits may come after one that claimed to be it and did not fit.
const GRACE: Duration = Duration::from_secs(1);

/// Incoming connections in their handshake at a time; the oldest makes room.
const MOST_STRANGERS: usize = 64;

/// Time between two looks at incoming connections.
const LOOK: Duration = Duration::from_micros(500);

/// Takes connections until all higher ranks have come.
pub(super) fn accept_higher(
    plan: &Plan<'_>,
    listeners: &[TcpListener],
) -> Result<Vec<Option<Proved>>, CommError> {
    let mut door = Door::new(plan);
    for listener in listeners {
        let waiting = "waiting for the other ranks to connect";
        listener.set_nonblocking(true).map_err(|source| CommError::Io { what: waiting, source })?;
    }
    while let Some(missing) = door.first_missing() {
        if let Some(error) = door.misfit() {
            plan.give_up();
            return Err(error);
        }
        if plan.time_left(LOOK).is_zero() {
            plan.give_up();
            return Err(CommError::DidNotJoin { missing, after: plan.within });
        }
        if plan.is_given_up() {
            // The dialer that failed has the better error.
            break;
        }
        listeners.iter().for_each(|listener| door.greet(listener));
        door.talk();
        thread::sleep(LOOK);
    }
    Ok(door.proved)
}

/// Who has come, who is in its handshake, and who did not fit.
struct Door<'p> {
    plan: &'p Plan<'p>,
    proved: Vec<Option<Proved>>,
    strangers: Vec<Stranger>,
    misfit: Option<Misfit>,
}

/// A rank that does not fit in a way that waiting does not mend.
struct Misfit {
    rank: usize,
    address: SocketAddr,
    error: HandshakeError,
    at: Instant,
}

impl<'p> Door<'p> {
    fn new(plan: &'p Plan<'p>) -> Self {
        let proved = (0..plan.size()).map(|_| None).collect();
        Self { plan, proved, strangers: Vec::with_capacity(MOST_STRANGERS), misfit: None }
    }

    fn first_missing(&self) -> Option<usize> {
        (self.plan.rank + 1..self.plan.size()).find(|rank| self.proved[*rank].is_none())
    }

    /// The error of a rank that did not fit and has not come better since.
    fn misfit(&self) -> Option<CommError> {
        let Misfit { rank, address, error, at } = self.misfit.as_ref()?;
        let is_due = self.proved[*rank].is_none() && at.elapsed() >= GRACE;
        let (own, address) = (self.plan.rank, address_text(address));
        let what = format!("rank {own} and rank {rank} do not fit together ({address}: {error})");
        is_due.then_some(CommError::Setup { what })
    }

    /// Takes whoever waits.
    fn greet(&mut self, listener: &TcpListener) {
        while let Ok((socket, address)) = listener.accept() {
            if socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true)).is_err() {
                continue;
            }
            if self.strangers.len() == MOST_STRANGERS {
                self.strangers.remove(0);
            }
            self.strangers.push(Stranger {
                socket,
                address,
                since: Instant::now(),
                heard: [0; HELLO_BYTES],
                have: 0,
                stage: Stage::Hello,
            });
        }
    }

    /// Goes on with every handshake as far as the bytes that are there go.
    fn talk(&mut self) {
        let (plan, proved, misfit) = (self.plan, &mut self.proved, &mut self.misfit);
        self.strangers.retain_mut(|stranger| match stranger.go_on(plan) {
            Ok(Progress::Waiting) => stranger.since.elapsed() < STRANGER_TIME,
            Ok(Progress::Misfit(rank, error)) => {
                let at =
                    misfit.as_ref().filter(|known| known.rank == rank).map_or_else(Instant::now, |m| m.at);
                *misfit = Some(Misfit { rank, address: stranger.address, error, at });
                false
            }
            Ok(Progress::Welcome(rank, connection)) => {
                // A second connection of the same rank can only be that of a dialer that gave up on its first.
                proved[rank] = Some(connection);
                false
            }
            Err(_) => false,
        });
    }
}

/// An incoming connection in its handshake.
struct Stranger {
    socket: TcpStream,
    address: SocketAddr,
    since: Instant,
    heard: [u8; HELLO_BYTES],
    have: usize,
    stage: Stage,
}

enum Stage {
    /// Waits for the clear part of the hello.
    Hello,
    /// Waits for the rest of it.
    Noise(Terms),
    /// Waits for the proof.
    Proof(Terms, Box<Acceptor>),
    /// Refused, and told so: waits for the other end to hang up, lest closing first should destroy the answer.
    Refused,
}

enum Progress {
    Waiting,
    Misfit(usize, HandshakeError),
    Welcome(usize, Proved),
}

impl Stranger {
    /// # Errors
    /// Any error ends the conversation.
    fn go_on(&mut self, plan: &Plan<'_>) -> io::Result<Progress> {
        loop {
            let wanted = match self.stage {
                Stage::Hello => TERMS_BYTES,
                Stage::Noise(_) => NOISE_BYTES,
                Stage::Proof(..) => PROOF_BYTES,
                Stage::Refused => HELLO_BYTES,
            };
            match self.socket.read(&mut self.heard[self.have..wanted]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => self.have += more,
                Err(error) if is_early(&error) => return Ok(Progress::Waiting),
                Err(error) => return Err(error),
            }
            if self.have == wanted {
                self.have = 0;
                if let Some(progress) = self.answer(plan)? {
                    return Ok(progress);
                }
            }
        }
    }

    /// Answers what has been heard. What is written is less than any socket's buffer, so it never blocks.
    fn answer(&mut self, plan: &Plan<'_>) -> io::Result<Option<Progress>> {
        match std::mem::replace(&mut self.stage, Stage::Refused) {
            Stage::Hello => {
                // Both fit: a group has at most 64 ranks.
                match Terms::read(&self.heard(), plan.rank as u32, plan.size() as u32) {
                    Ok(terms) => self.stage = Stage::Noise(terms),
                    Err(error) => self.refuse(error)?,
                }
                Ok(None)
            }
            Stage::Noise(terms) => match self.agree(plan, terms)? {
                Ok((acceptor, message)) => {
                    self.socket.write_all(&[&agreement()[..], &message].concat())?;
                    self.stage = Stage::Proof(terms, Box::new(acceptor));
                    Ok(None)
                }
                Err(error) => {
                    self.refuse(error)?;
                    Ok(Some(Progress::Misfit(terms.from as usize, error)))
                }
            },
            Stage::Proof(terms, acceptor) => {
                let (keys, welcome) = acceptor.finish(&self.heard()).map_err(io::Error::other)?;
                self.socket.write_all(&welcome)?;
                let connection =
                    Proved { socket: self.socket.try_clone()?, keys: terms.sealed.then_some(keys) };
                Ok(Some(Progress::Welcome(terms.from as usize, connection)))
            }
            Stage::Refused => Ok(None),
        }
    }

    /// Checks the key, and then whether both ends want the link sealed or both do not.
    fn agree(
        &self,
        plan: &Plan<'_>,
        terms: Terms,
    ) -> io::Result<Result<(Acceptor, [u8; NOISE_BYTES]), HandshakeError>> {
        let answer = Acceptor::new(plan.key, terms, &self.heard())?;
        if terms.sealed != plan.seals(&self.socket)? {
            return Ok(answer.and(Err(HandshakeError::Sealing { dialer_seals: terms.sealed })));
        }
        Ok(answer)
    }

    fn heard<const N: usize>(&self) -> [u8; N] {
        std::array::from_fn(|i| self.heard[i])
    }

    fn refuse(&mut self, error: HandshakeError) -> io::Result<()> {
        match refusal(error) {
            Some(bytes) => {
                self.socket.write_all(&bytes)?;
                self.socket.shutdown(Shutdown::Write)
            }
            // Whoever does not speak the protocol is told nothing.
            None => Err(io::Error::other(error)),
        }
    }
}
