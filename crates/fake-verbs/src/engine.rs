//! The background thread: a device goes on working while its program does something else.

use crate::world;
use std::{
    io::{Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::OnceLock,
    thread,
    time::Instant,
};

/// Wakes the thread, and starts it the first time.
pub(crate) fn wake() {
    static BELL: OnceLock<Option<UnixStream>> = OnceLock::new();
    if let Some(mut bell) = BELL.get_or_init(start).as_ref() {
        // A bell that is full has rung.
        let _ = bell.write(&[1]);
    }
}

/// `None`, and a word on standard error, when the system has no thread or no socket left: then polling alone drives.
fn start() -> Option<UnixStream> {
    let started = UnixStream::pair().and_then(|(ours, theirs)| {
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        thread::Builder::new().name("fake-verbs".to_owned()).spawn(move || run(&theirs))?;
        Ok(ours)
    });
    started.inspect_err(|error| eprintln!("pomar-fake-verbs: no background thread: {error}")).ok()
}

fn run(mut bell: &UnixStream) {
    loop {
        let mut streams = vec![watched(&(bell.as_raw_fd(), libc::POLLIN))];
        let Ok(mut world) = world::lock() else { return };
        let next = world.watch(&mut streams);
        drop(world);
        poll(&mut streams, milliseconds_until(next));
        // Empty it; nothing in it means anything.
        while matches!(bell.read(&mut [0; 64]), Ok(64)) {}
        let Ok(mut world) = world::lock() else { return };
        world.turn(|_| true);
    }
}

/// Rounded up, so that the moment is reached; -1: no moment.
fn milliseconds_until(next: Option<Instant>) -> i32 {
    next.map_or(-1, |moment| {
        let left = moment.saturating_duration_since(Instant::now());
        i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    })
}

/// A stream and the events it is waited for, in the system's form.
pub(crate) fn watched(&(fd, events): &(RawFd, i16)) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Sees which streams are ready, without waiting.
pub(crate) fn poll_now(watched: &mut [libc::pollfd]) {
    poll(watched, 0);
}

fn poll(watched: &mut [libc::pollfd], milliseconds: i32) {
    // SAFETY: a list with its length. A descriptor in it may be closed or another's by now: that is an event too many.
    // An error (a signal) is no event, and the next round asks again.
    unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, milliseconds) };
}
