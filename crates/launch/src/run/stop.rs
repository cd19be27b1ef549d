//! Ending ranks: first asking, then insisting; and the signals that make the launcher do so.

use std::{
    io,
    process::{Command, Stdio},
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};

/// From asking to leave to insisting, after the launcher was interrupted.
const TERMINATE_AFTER: Duration = Duration::from_secs(2);
const KILL_AFTER: Duration = Duration::from_secs(5);
/// The same, when one rank failed: the others have nothing to finish.
const KILL_AFTER_FAILURE: Duration = Duration::from_secs(3);
/// A process that has been killed is gone, or out of reach, this long afterwards.
const GIVE_UP_AFTER_KILL: Duration = Duration::from_secs(2);

/// Signals to send, each at its time.
pub(super) struct Stop {
    steps: Vec<(Instant, &'static str)>,
    give_up: Instant,
}

impl Stop {
    /// After SIGINT: the same for the ranks, then SIGTERM after 2 s and SIGKILL after 5 s. After others: SIGTERM first.
    pub(super) fn after_signal(signal: i32) -> Self {
        let term = (TERMINATE_AFTER, "TERM");
        if signal == SignalKind::interrupt().as_raw_value() {
            Self::new(&[(Duration::ZERO, "INT"), term], KILL_AFTER)
        } else {
            Self::new(&[(Duration::ZERO, "TERM")], KILL_AFTER)
        }
    }

    /// SIGTERM, then SIGKILL after 3 s.
    pub(super) fn after_failure() -> Self {
        Self::new(&[(Duration::ZERO, "TERM")], KILL_AFTER_FAILURE)
    }

    fn new(steps: &[(Duration, &'static str)], kill: Duration) -> Self {
        let now = Instant::now();
        let steps = steps.iter().copied().chain([(kill, "KILL")]).map(|(after, name)| (now + after, name));
        Self { steps: steps.collect(), give_up: now + kill + GIVE_UP_AFTER_KILL }
    }

    /// SIGKILL now.
    pub(super) fn hurry(&mut self) {
        let now = Instant::now();
        self.steps = vec![(now, "KILL")];
        self.give_up = self.give_up.min(now + GIVE_UP_AFTER_KILL);
    }

    /// Waits for the next step, or for ever when nothing is being stopped.
    pub(super) async fn due(stop: &Option<Self>) {
        match stop {
            None => std::future::pending().await,
            Some(stop) => sleep_until(stop.steps.first().map_or(stop.give_up, |(at, _)| *at)).await,
        }
    }

    /// The signal whose time has come.
    pub(super) fn next_signal(&mut self) -> Option<&'static str> {
        (!self.steps.is_empty()).then(|| self.steps.remove(0).1)
    }

    /// Nothing more can be done.
    pub(super) fn is_over(&self) -> bool {
        self.steps.is_empty() && Instant::now() >= self.give_up
    }
}

/// The signals that end a launch; none where it was started with that signal ignored, as by `nohup`, or by a script
/// with `&`.
pub(super) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let unless_ignored = |name, kind| if is_ignored(name) { Ok(None) } else { signal(kind).map(Some) };
        Ok(Self {
            interrupt: unless_ignored("INT", SignalKind::interrupt())?,
            terminate: unless_ignored("TERM", SignalKind::terminate())?,
            hangup: unless_ignored("HUP", SignalKind::hangup())?,
        })
    }

    /// The number of the next one.
    pub(super) async fn next(&mut self) -> i32 {
        let kind = tokio::select! {
            () = heard(&mut self.interrupt) => SignalKind::interrupt(),
            () = heard(&mut self.terminate) => SignalKind::terminate(),
            () = heard(&mut self.hangup) => SignalKind::hangup(),
        };
        kind.as_raw_value()
    }
}

async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether this process ignores a signal: if so, its children do, and one that sends it to itself lives on.
fn is_ignored(name: &str) -> bool {
    let sent = Command::new("sh").args(["-c", "kill -$0 $$", name]).stdin(Stdio::null()).status();
    sent.is_ok_and(|status| status.success())
}
