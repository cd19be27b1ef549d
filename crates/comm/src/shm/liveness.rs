//! The thread that shows that this rank lives, and watches whether the others do.

use super::{Shared, layout::Control};
use crate::{verdict::Verdict, vigil::Silence};
use std::{
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
    time::{Duration, Instant},
};

/// Time between two heartbeats, and between two looks at the peers'.
const BEAT: Duration = Duration::from_millis(100);

/// Beats and watches until the group is dropped.
pub(super) fn keep_watch(shared: &Arc<Shared>) {
    let size = shared.seat.size;
    let mut silences = vec![Silence::default(); size];
    let mut processes: Vec<Option<system::Process>> = (0..size).map(|_| None).collect();
    let mut last_look = Instant::now();
    while !shared.stop.wait(BEAT) {
        shared.word(shared.seat.rank, Control::Heartbeat).fetch_add(1, Relaxed);
        let passed = last_look.elapsed();
        last_look = Instant::now();
        for peer in shared.seat.peers().filter(|peer| shared.is_present(*peer)) {
            let pid = shared.word(peer, Control::Pid).load(Acquire);
            let process = processes[peer].get_or_insert_with(|| system::Process::new(pid));
            let counter = shared.word(peer, Control::Heartbeat).load(Relaxed);
            let silent = silences[peer].observe(counter, passed, BEAT * 2);
            // A peer may leave between the two looks; only one that is still present is missed.
            let what = if process.is_gone() {
                format!("its process {pid} is gone")
            } else if silent > shared.dead_after {
                format!("no sign of life for {silent:.1?}; is process {pid} stopped?")
            } else {
                continue;
            };
            if shared.is_present(peer) {
                shared.end(Verdict::Dead { rank: peer, what });
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    //! Process descriptors: they tell a dead process from another one that got its number, and see it die even while
    //! its parent has not collected it.

    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    pub(super) struct Process {
        descriptor: Option<OwnedFd>,
        gone_at_once: bool,
    }

    impl Process {
        pub(super) fn new(pid: u64) -> Self {
            let number = libc::pid_t::try_from(pid).unwrap_or(0);
            // SAFETY: plain integers.
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
            let error = std::io::Error::last_os_error().raw_os_error();
            match i32::try_from(fd) {
                Ok(fd) if fd >= 0 => {
                    // SAFETY: just made, and nobody else knows it.
                    let own = unsafe { OwnedFd::from_raw_fd(fd) };
                    Self { descriptor: Some(own), gone_at_once: false }
                }
                // Other errors (an old kernel, a strict sandbox) leave it to the heartbeat.
                _ => Self { descriptor: None, gone_at_once: error == Some(libc::ESRCH) },
            }
        }

        pub(super) fn is_gone(&self) -> bool {
            let Some(descriptor) = &self.descriptor else {
                return self.gone_at_once;
            };
            let mut ask = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, which outlives the call; a timeout of 0 does not wait.
            unsafe { libc::poll(&raw mut ask, 1, 0) == 1 }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    //! Signal 0: is there a process of that number.

    pub(super) struct Process {
        pid: Option<libc::pid_t>,
    }

    impl Process {
        pub(super) fn new(pid: u64) -> Self {
            Self { pid: libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) }
        }

        pub(super) fn is_gone(&self) -> bool {
            let Some(pid) = self.pid else { return true };
            // SAFETY: signal 0 is sent to nobody; the call only reports whether it could be.
            let answer = unsafe { libc::kill(pid, 0) };
            answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
        }
    }
}
