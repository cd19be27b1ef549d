//! Making the mesh: every pair of ranks ends up with one connection that both have proved.
//!
//! A rank dials all lower ranks, one thread each, and meanwhile takes connections from the higher ones.

use super::{
    accept::accept_higher,
    dial::dial,
    handshake::{InstanceKey, Keys, Terms},
};
use crate::{CommError, IpNetwork};
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
    thread,
    time::{Duration, Instant},
};

/// Everything that setting up needs to know.
pub(super) struct Plan<'a> {
    pub(super) rank: usize,
    /// Of each rank, best first.
    pub(super) addresses: &'a [Vec<SocketAddr>],
    pub(super) key: &'a InstanceKey,
    pub(super) plain_networks: &'a [IpNetwork],
    pub(super) within: Duration,
    pub(super) deadline: Instant,
    /// Set when one part of the setting up has failed: the others give up soon.
    failed: AtomicBool,
}

impl<'a> Plan<'a> {
    /// # Errors
    /// [`CommError::Setup`] for an address that cannot be dialed from here.
    pub(super) fn new(
        rank: usize,
        addresses: &'a [Vec<SocketAddr>],
        key: &'a InstanceKey,
        (plain_networks, within): (&'a [IpNetwork], Duration),
    ) -> Result<Self, CommError> {
        for (peer, addresses) in addresses.iter().enumerate().take(rank) {
            check_addresses(peer, addresses)?;
        }
        let (deadline, failed) = (Instant::now() + within, AtomicBool::new(false));
        Ok(Self { rank, addresses, key, plain_networks, within, deadline, failed })
    }

    pub(super) fn size(&self) -> usize {
        self.addresses.len()
    }

    /// The terms of a connection from rank `from` to rank `to`.
    pub(super) fn terms(&self, from: usize, to: usize, sealed: bool) -> Terms {
        // All fit: a group has at most 64 ranks.
        Terms { size: self.size() as u32, from: from as u32, to: to as u32, sealed }
    }

    /// Whether this rank wants a connection encrypted: unless it stays on this machine or in one plain network.
    pub(super) fn seals(&self, socket: &TcpStream) -> io::Result<bool> {
        let ends = [socket.local_addr()?, socket.peer_addr()?];
        let loopback = ends.iter().all(|end| end.ip().to_canonical().is_loopback());
        let both_in = |network: &IpNetwork| ends.iter().all(|end| network.contains(end));
        Ok(!loopback && !self.plain_networks.iter().any(both_in))
    }

    pub(super) fn give_up(&self) {
        self.failed.store(true, Release);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// Time that is left, at most `most`.
    pub(super) fn time_left(&self, most: Duration) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(most)
    }
}

fn check_addresses(peer: usize, addresses: &[SocketAddr]) -> Result<(), CommError> {
    let setup = |what| Err(CommError::Setup { what });
    if addresses.is_empty() {
        return setup(format!("rank {peer} has no address"));
    }
    for address in addresses {
        if address.ip().is_unspecified() || address.port() == 0 {
            return setup(format!("{address} of rank {peer} can be listened to but not dialed"));
        }
        if let SocketAddr::V6(v6) = address
            && v6.ip().is_unicast_link_local()
            && v6.scope_id() == 0
        {
            return setup(format!(
                "{address} of rank {peer} does not say which interface of this machine leads to it; \
                 write it as [{}%eth0]:{}",
                v6.ip(),
                v6.port()
            ));
        }
    }
    Ok(())
}

/// A connection whose handshake both ends have completed.
pub(super) struct Proved {
    pub(super) socket: TcpStream,
    /// Its keys, when the link is sealed.
    pub(super) keys: Option<Keys>,
}

/// Connects to all peers: one proved connection per peer, `None` at this rank's own place.
pub(super) fn connect_all(
    plan: &Plan<'_>,
    listeners: &[TcpListener],
) -> Result<Vec<Option<Proved>>, CommError> {
    thread::scope(|scope| {
        let dialing: Vec<_> = (0..plan.rank).map(|peer| scope.spawn(move || dial(plan, peer))).collect();
        let accepted = accept_higher(plan, listeners);
        let dialed: Vec<_> = dialing.into_iter().map(join).collect();
        let mut connections = accepted?;
        for (peer, connection) in dialed.into_iter().enumerate() {
            connections[peer] = Some(connection?);
        }
        Ok(connections)
    })
}

type Dialing<'s> = thread::ScopedJoinHandle<'s, Result<Proved, CommError>>;

fn join(dialing: Dialing<'_>) -> Result<Proved, CommError> {
    dialing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// True for an error of a socket that would have had to wait, or was interrupted.
pub(super) fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
