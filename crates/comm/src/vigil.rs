//! Noticing that a peer has gone silent.

use std::time::Duration;

/// One peer's sign of life: a counter that moves as long as its process runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence {
    seen: u64,
    silent: Duration,
}

impl Silence {
    /// Takes note of the counter `passed` after the last look, and says for how long it has not moved.
    ///
    /// A look that comes late counts as at most `longest`: when this process itself was stopped, or the machine asleep, it
    /// must not blame the peers.
    pub(crate) fn observe(&mut self, counter: u64, passed: Duration, longest: Duration) -> Duration {
        if counter == self.seen {
            self.silent += passed.min(longest);
        } else {
            self.seen = counter;
            self.silent = Duration::ZERO;
        }
        self.silent
    }

    /// For how long the counter has not moved, at the last look.
    pub(crate) fn lasted(&self) -> Duration {
        self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    #[test]
    fn a_counter_that_moves_is_never_silent() {
        let mut silence = Silence::default();
        for counter in 1..100 {
            assert_eq!(silence.observe(counter, TICK, TICK * 2), Duration::ZERO);
        }
    }

    #[test]
    fn silence_adds_up_and_ends() {
        let mut silence = Silence::default();
        silence.observe(7, TICK, TICK * 2);
        assert_eq!(silence.observe(7, TICK, TICK * 2), TICK);
        assert_eq!(silence.observe(7, TICK, TICK * 2), TICK * 2);
        assert_eq!(silence.observe(8, TICK, TICK * 2), Duration::ZERO);
    }

    #[test]
    fn an_observer_that_was_stopped_does_not_blame_the_peer() {
        let mut silence = Silence::default();
        silence.observe(7, TICK, TICK * 2);
        assert_eq!(silence.observe(7, Duration::from_secs(3600), TICK * 2), TICK * 2);
    }
}
