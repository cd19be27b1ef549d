//! The one system call that the standard library lacks: waiting for a socket with a time limit.

use std::{net::TcpStream, os::fd::AsRawFd, time::Duration};

/// What to wait for.
#[derive(Clone, Copy)]
pub(super) enum Ready {
    ToRead,
    ToWrite,
}

/// Waits until `socket` is ready (or broken, which counts as ready), at most `within`. May return early.
pub(super) fn wait_ready(socket: &TcpStream, what: Ready, within: Duration) {
    let events = match what {
        Ready::ToRead => libc::POLLIN,
        Ready::ToWrite => libc::POLLOUT,
    };
    let mut ask = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    let millis = libc::c_int::try_from(within.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one pollfd, which outlives the call. Whatever it answers, the caller tries the socket next.
    unsafe { libc::poll(&raw mut ask, 1, millis) };
}
