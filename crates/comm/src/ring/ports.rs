//! A rank's connections: as many to its right neighbour as to its left one.

use std::{
    net::{Shutdown, TcpStream},
    os::fd::AsRawFd,
    time::Duration,
};

/// Most connections to one neighbour. Bounds lanes and what is polled.
pub(super) const MAX_CONNECTIONS: usize = 16;

/// Most sockets that one call can wait for: each connection's both directions.
pub(super) const MAX_POLLED: usize = 4 * MAX_CONNECTIONS;

/// One of the two neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Right,
    Left,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Right => Self::Left,
            Self::Left => Self::Right,
        }
    }
}

/// One of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) side: Side,
    pub(super) connection: usize,
}

/// All connections; both sides are empty in a ring of one.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) right: Vec<TcpStream>,
    pub(super) left: Vec<TcpStream>,
}

impl Ports {
    pub(super) fn stream(&self, port: Port) -> &TcpStream {
        &self.side(port.side)[port.connection]
    }

    pub(super) fn side(&self, side: Side) -> &[TcpStream] {
        match side {
            Side::Right => &self.right,
            Side::Left => &self.left,
        }
    }

    /// Ends every connection in both directions; whoever waits on one is woken.
    pub(super) fn shut(&self) {
        for stream in self.right.iter().chain(&self.left) {
            // It may have ended already; then there is nothing to end.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether the neighbour on this side has closed a connection, even if bytes from before are still
    /// unread.
    pub(super) fn has_ended(&self, side: Side) -> bool {
        let mut polled = Polled::default();
        for stream in self.side(side) {
            polled.watch(stream, PEER_CLOSED);
        }
        polled.wait(Duration::ZERO);
        polled.list().iter().any(|entry| entry.revents & (PEER_CLOSED | libc::POLLHUP | libc::POLLERR) != 0)
    }
}

/// That the peer sends no more, where the system can say so without a read.
#[cfg(target_os = "linux")]
const PEER_CLOSED: libc::c_short = libc::POLLRDHUP;
/// Elsewhere a closed connection reports `POLLHUP`, which need not be asked for.
#[cfg(not(target_os = "linux"))]
const PEER_CLOSED: libc::c_short = 0;

/// Sockets to wait for, on the stack.
pub(super) struct Polled {
    entries: [libc::pollfd; MAX_POLLED],
    length: usize,
}

impl Default for Polled {
    fn default() -> Self {
        Self { entries: [libc::pollfd { fd: -1, events: 0, revents: 0 }; MAX_POLLED], length: 0 }
    }
}

impl Polled {
    pub(super) fn watch_to_read(&mut self, socket: &impl AsRawFd) {
        self.watch(socket, libc::POLLIN);
    }

    pub(super) fn watch_to_write(&mut self, socket: &impl AsRawFd) {
        self.watch(socket, libc::POLLOUT);
    }

    fn watch(&mut self, socket: &impl AsRawFd, events: libc::c_short) {
        if let Some(entry) = self.entries.get_mut(self.length) {
            *entry = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
            self.length += 1;
        }
    }

    fn list(&self) -> &[libc::pollfd] {
        &self.entries[..self.length]
    }

    /// Waits until one of them is ready or broken, `within` (rounded up to milliseconds) at most; says
    /// whether one is. May return early.
    pub(super) fn wait(&mut self, within: Duration) -> bool {
        let millis = within.as_micros().div_ceil(1000);
        let millis = libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX);
        // SAFETY: the first `length` entries are initialised and outlive the call. Whatever it answers, an
        // error included, the caller tries the sockets next.
        unsafe { libc::poll(self.entries.as_mut_ptr(), self.length as libc::nfds_t, millis) > 0 }
    }
}
