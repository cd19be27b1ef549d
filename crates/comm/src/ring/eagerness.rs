//! How long a wait spins before it sleeps, learnt from how the last ones ended.
//!
//! Spinning wins some microseconds when the neighbour runs on another core and is about to answer. When both
//! share a core (a loaded machine does that to them) it only keeps the neighbour from answering. So a spin
//! that was in vain halves the next one, down to none, and one that paid doubles it; from time to time a
//! short one is tried anyway.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

/// Shorter spins than this are none.
const SHORTEST_NANOS: u32 = 4_000;

/// The spin that is tried when none has paid lately, and how many waits go by between two.
const TRIAL_NANOS: u32 = 20_000;
const TRIAL_EVERY: u32 = 64;

/// Shared by all calls of a group.
#[derive(Debug)]
pub(super) struct Eagerness {
    longest: u32,
    spin: AtomicU32,
    waits: AtomicU32,
}

impl Eagerness {
    /// Spins `longest` at most, and at first.
    pub(super) fn new(longest: Duration) -> Self {
        let longest = u32::try_from(longest.as_nanos()).unwrap_or(u32::MAX);
        Self { longest, spin: AtomicU32::new(longest), waits: AtomicU32::new(0) }
    }

    /// How long the wait that begins now shall spin.
    pub(super) fn spin(&self) -> Duration {
        let spin = self.spin.load(Relaxed);
        let waits = self.waits.fetch_add(1, Relaxed);
        let trial = spin == 0 && waits.is_multiple_of(TRIAL_EVERY);
        Duration::from_nanos(if trial { TRIAL_NANOS.min(self.longest) } else { spin }.into())
    }

    /// A spin saw what it waited for.
    pub(super) fn paid(&self) {
        let longer = self.spin.load(Relaxed).max(TRIAL_NANOS / 2).saturating_mul(2);
        self.spin.store(longer.min(self.longest), Relaxed);
    }

    /// A spin ended in a sleep.
    pub(super) fn was_in_vain(&self) {
        let shorter = self.spin.load(Relaxed) / 2;
        self.spin.store(if shorter < SHORTEST_NANOS { 0 } else { shorter }, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_in_vain_end_and_one_that_pays_brings_them_back() {
        let most = Duration::from_micros(100);
        let eagerness = Eagerness::new(most);
        assert_eq!(eagerness.spin(), most);
        (0..10).for_each(|_| eagerness.was_in_vain());
        let spins: Vec<_> =
            (0..TRIAL_EVERY).map(|_| eagerness.spin()).filter(|spin| !spin.is_zero()).collect();
        assert_eq!(spins, [Duration::from_nanos(TRIAL_NANOS.into())], "one trial");
        (0..10).for_each(|_| eagerness.paid());
        assert_eq!(eagerness.spin(), most);
    }

    #[test]
    fn no_spin_stays_none() {
        let never = Eagerness::new(Duration::ZERO);
        never.paid();
        assert!((0..2 * TRIAL_EVERY).all(|_| never.spin().is_zero()));
    }
}
