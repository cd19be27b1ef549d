//! Waiting that is quick when the answer is near and cheap when it is far.
//!
//! Three phases: *spin* (an answer within microseconds, the hot all_sum), *yield* (more ranks than cores: whoever we
//! wait for may need this core), *sleep* (idle: futex on Linux, short naps elsewhere). The clock is read only
//! once per few dozen polls while spinning.

use crate::{CommError, call::Op, transport::Transport, verdict::Verdict};
use std::{
    hint::spin_loop,
    sync::atomic::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
    thread,
    time::{Duration, Instant},
};

/// Longest sleep before looking at the world again, in case a wake-up went missing with a killed peer.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// How long to yield before sleeping: longer than the usual imbalance between ranks in one layer.
const YIELD_FOR: Duration = Duration::from_millis(1);

/// How long to spin when every rank can have a core: as long as an answer over TCP takes. Yielding costs nothing while
/// nobody else wants the core; where somebody does, it may be the very rank that is waited for, and each exchange
/// takes twice this time.
const SPIN_FOR: Duration = Duration::from_micros(10);

/// Polls between two looks at the clock while spinning.
const POLLS_PER_LOOK: u32 = 32;

/// The phases of a wait, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Spin,
    Yield,
    Sleep,
}

/// How long to spin before yielding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    spin: Duration,
}

impl Patience {
    /// `chosen` by the caller, else by whether each of the `ranks` on this machine can have a core.
    pub(crate) fn new(chosen: Option<Duration>, ranks: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let by_cores = if ranks <= cores { SPIN_FOR } else { Duration::ZERO };
        Self { spin: chosen.unwrap_or(by_cores) }
    }

    /// What to do after `waited` without an answer.
    pub(crate) fn phase(self, waited: Duration) -> Phase {
        if waited < self.spin {
            Phase::Spin
        } else if waited < self.spin + YIELD_FOR {
            Phase::Yield
        } else {
            Phase::Sleep
        }
    }
}

/// What a rank sleeps on. Lies in shared memory or on the heap; all zeros is its initial state.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Bell {
    /// Threads that sleep, or are about to. Lets a ringer skip the system call.
    sleepers: AtomicU32,
    /// Changes with every ring that somebody may sleep through.
    rings: AtomicU32,
}

impl Bell {
    /// Wakes whoever sleeps. Call after publishing what they wait for.
    pub(crate) fn ring(&self) {
        // Pairs with the fence in `enter`: either we see the sleeper, or the sleeper's last poll sees what we
        // published.
        fence(SeqCst);
        if self.sleepers.load(Relaxed) != 0 {
            self.rings.fetch_add(1, SeqCst);
            system::wake_all(&self.rings);
        }
    }

    /// Announces a sleep. The caller polls once more before [`Sleep::sleep`].
    fn enter(&self) -> Sleep<'_> {
        self.sleepers.fetch_add(1, SeqCst);
        let seen = self.rings.load(SeqCst);
        fence(SeqCst);
        Sleep { bell: self, seen }
    }
}

/// A thread about to sleep on a bell.
struct Sleep<'a> {
    bell: &'a Bell,
    seen: u32,
}

impl Sleep<'_> {
    /// Returns at the next ring since `enter`, or after `at_most`, or early for no reason.
    fn sleep(&self, at_most: Duration) {
        system::wait(&self.bell.rings, self.seen, at_most);
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.bell.sleepers.fetch_sub(1, SeqCst);
    }
}

/// One call's waiting: what it is called, when it began and how long it may take.
pub(crate) struct Wait<'a, T: ?Sized> {
    pub(crate) transport: &'a T,
    pub(crate) op: Op,
    started: Instant,
    within: Duration,
}

impl<'a, T: Transport + ?Sized> Wait<'a, T> {
    pub(crate) fn new(transport: &'a T, op: Op, within: Duration) -> Self {
        Self { transport, op, started: Instant::now(), within }
    }

    /// Passes `error` on after telling all ranks, because this call ended half done and nobody can go on.
    pub(crate) fn give_up(&self, error: CommError) -> CommError {
        let verdict = match &error {
            // Known to all already.
            CommError::Aborted { .. } => return error,
            CommError::PeerDead { rank, what } => Verdict::Dead { rank: *rank, what: what.clone() },
            CommError::LinkFailed { rank, what } => {
                let by = self.transport.seat().rank;
                Verdict::LinkFailed { rank: *rank, by, what: what.clone() }
            }
            CommError::Protocol { rank, what } => Verdict::Broken { rank: *rank, what: what.clone() },
            other => {
                let reason = format!("{} failed: {other}", self.op.name());
                Verdict::Aborted { by: self.transport.seat().rank, reason }
            }
        };
        self.transport.end(verdict);
        error
    }

    /// Polls until there is an answer. `peer` is whom the answer needs: it is named when it does not come.
    pub(crate) fn until<A>(
        &self,
        peer: usize,
        mut poll: impl FnMut() -> Result<Option<A>, CommError>,
    ) -> Result<A, CommError> {
        if let Some(answer) = poll()? {
            return Ok(answer);
        }
        let begun = Instant::now();
        let patience = self.transport.seat().patience;
        while patience.phase(begun.elapsed()) == Phase::Spin {
            for _ in 0..POLLS_PER_LOOK {
                spin_loop();
                if let Some(answer) = poll()? {
                    return Ok(answer);
                }
            }
            self.transport.verdict()?;
        }
        while patience.phase(begun.elapsed()) == Phase::Yield {
            thread::yield_now();
            if let Some(answer) = self.poll_slowly(peer, &mut poll)? {
                return Ok(answer);
            }
        }
        loop {
            let sleep = self.transport.bell().enter();
            if let Some(answer) = self.poll_slowly(peer, &mut poll)? {
                return Ok(answer);
            }
            let nap = self.transport.longest_sleep(begun.elapsed());
            sleep.sleep(nap.min(self.within.saturating_sub(self.started.elapsed())));
        }
    }

    /// One poll with everything that can end the wait: answer, verdict, a peer that left, the deadline.
    fn poll_slowly<A>(
        &self,
        peer: usize,
        poll: &mut impl FnMut() -> Result<Option<A>, CommError>,
    ) -> Result<Option<A>, CommError> {
        // Asked before the poll: what a peer published before it left still counts.
        let left = self.transport.has_left(peer);
        if let Some(answer) = poll()? {
            return Ok(Some(answer));
        }
        self.transport.verdict()?;
        if left {
            return Err(CommError::PeerDead { rank: peer, what: "it left the group".into() });
        }
        if self.started.elapsed() >= self.within {
            return Err(CommError::Timeout { op: self.op.name(), after: self.within, waiting_for: peer });
        }
        Ok(None)
    }
}

#[cfg(target_os = "linux")]
mod system {
    //! Futexes that work across processes (no PRIVATE flag).

    use super::{AtomicU32, Duration};

    pub(super) fn wake_all(word: &AtomicU32) {
        // SAFETY: FUTEX_WAKE only uses the address of a live, aligned 32-bit word; it writes nothing.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    pub(super) fn wait(word: &AtomicU32, seen: u32, at_most: Duration) {
        let timeout = libc::timespec {
            tv_sec: at_most.as_secs() as libc::time_t,
            tv_nsec: at_most.subsec_nanos() as libc::c_long,
        };
        // SAFETY: a live, aligned 32-bit word and a timespec that outlives the call. Every way it returns (woken, word
        // changed, timed out, signal) means the same to the caller: look again.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout) };
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    //! No portable wait across processes: short naps.

    use super::{AtomicU32, Duration};

    pub(super) fn wake_all(_: &AtomicU32) {}

    pub(super) fn wait(_: &AtomicU32, _: u32, at_most: Duration) {
        std::thread::sleep(at_most.min(Duration::from_millis(1)));
    }
}
