//! Making the connections, in MLX's order.
//!
//! Rank r listens for its left neighbour and dials its right one. All ranks but the last listen first, so
//! set-up runs as a chain: the last rank dials rank 0, which then dials rank 1, and so on round. A listener
//! takes exactly one connection and is closed. There is no handshake: whoever connects first is the left
//! neighbour.

use super::{
    hosts::{Hosts, resolve},
    plan::Ring,
    ports::{Polled, Ports},
};
use crate::CommError;
use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// Pause between two attempts to dial: doubles from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// Longest that one attempt to dial may take, when the address does not answer at all.
const LONGEST_DIAL: Duration = Duration::from_secs(5);

/// Connects `ring.rank` with both neighbours.
///
/// # Errors
/// [`CommError::NotConnected`] naming the neighbour, the address and what was tried; [`CommError::Setup`] for
/// an address that cannot be resolved or listened at.
pub(super) fn join(hosts: &Hosts, ring: Ring, within: Duration) -> Result<Ports, CommError> {
    if ring.size == 1 {
        return Ok(Ports { right: vec![], left: vec![] });
    }
    let joining = Joining { ring, within, started: Instant::now() };
    let own = resolve_all(hosts, ring.rank)?;
    let theirs = resolve_all(hosts, ring.right())?;
    if ring.rank + 1 < ring.size {
        let left = joining.accept_all(&own)?;
        let right = joining.dial_all(&theirs)?;
        Ok(Ports { right, left })
    } else {
        let right = joining.dial_all(&theirs)?;
        let left = joining.accept_all(&own)?;
        Ok(Ports { right, left })
    }
}

/// An address as written and as found.
struct Place<'a> {
    text: &'a str,
    address: SocketAddr,
}

fn resolve_all(hosts: &Hosts, rank: usize) -> Result<Vec<Place<'_>>, CommError> {
    hosts.of(rank).iter().map(|text| Ok(Place { text, address: resolve(rank, text)? })).collect()
}

struct Joining {
    ring: Ring,
    within: Duration,
    started: Instant,
}

impl Joining {
    fn left(&self) -> Duration {
        self.within.saturating_sub(self.started.elapsed())
    }

    fn accept_all(&self, places: &[Place<'_>]) -> Result<Vec<TcpStream>, CommError> {
        places.iter().map(|place| self.accept(place)).collect()
    }

    fn dial_all(&self, places: &[Place<'_>]) -> Result<Vec<TcpStream>, CommError> {
        places.iter().map(|place| self.dial(place)).collect()
    }

    /// Listens at one address until one connection has come.
    fn accept(&self, place: &Place<'_>) -> Result<TcpStream, CommError> {
        let listener =
            listen(place.address).map_err(|error| cannot_listen(self.ring.rank, place.text, &error))?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return ready(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The one who dialled gave up before it was taken, or a signal came: wait for the next.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(source) => return Err(CommError::Io { what: "waiting for the left neighbour", source }),
            }
            let left = self.left();
            if left.is_zero() {
                let what = format!("listened at {} and nobody connected", place.text);
                return Err(self.not_connected(self.ring.left(), what));
            }
            let mut polled = Polled::default();
            polled.watch_to_read(&listener);
            polled.wait(left);
        }
    }

    /// Dials one address until it answers.
    fn dial(&self, place: &Place<'_>) -> Result<TcpStream, CommError> {
        let mut pause = FIRST_PAUSE;
        let mut attempts = 0_u32;
        loop {
            attempts = attempts.saturating_add(1);
            let allowed = self.left().clamp(FIRST_PAUSE, LONGEST_DIAL);
            let error = match TcpStream::connect_timeout(&place.address, allowed) {
                Ok(stream) => return ready(stream),
                Err(error) => error,
            };
            if self.left().is_zero() {
                let what = format!("dialled {} {attempts} times; the last answer was: {error}", place.text);
                return Err(self.not_connected(self.ring.right(), what));
            }
            thread::sleep(pause.min(self.left()));
            pause = LAST_PAUSE.min(pause * 2);
        }
    }

    fn not_connected(&self, rank: usize, what: String) -> CommError {
        CommError::NotConnected { rank, after: self.within, what }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn cannot_listen(rank: usize, text: &str, error: &io::Error) -> CommError {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "; another program listens there",
        ErrorKind::AddrNotAvailable => "; is this the right rank, and is the address this machine's?",
        _ => "",
    };
    CommError::Setup { what: format!("rank {rank} cannot listen at its address {text}: {error}{hint}") }
}

/// A connection as calls need it.
///
/// Its buffers are left to the system, which lets them grow to some MiB as the connection is used. To ask for
/// a size would end that growth, and on a stock Linux (`net.core.rmem_max` 208 KiB) at a fraction of it: sums
/// of 1 MiB take twice as long.
fn ready(stream: TcpStream) -> Result<TcpStream, CommError> {
    let prepared = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
    prepared.map_err(|source| CommError::Io { what: "preparing a connection of the ring", source })?;
    Ok(stream)
}
