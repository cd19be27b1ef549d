//! A device's counters, and which of its faults have come about.

use crate::script::{FakeDevice, Kind};
use std::{
    num::NonZeroU64,
    time::{Duration, Instant},
};

#[derive(Debug)]
pub(crate) struct DeviceState {
    pub(crate) script: FakeDevice,
    opened_at: Option<Instant>,
    sends: u64,
    unreliable_sends: u64,
    receives: u64,
    deaf: bool,
    dead: bool,
}

/// What becomes of a message that is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It leaves.
    Leave,
    /// It leaves, and its last byte is changed on the way.
    Damaged,
    /// It leaves and never arrives.
    Lost,
    /// It does not leave, and its send ends with this status.
    Fail(u32),
}

impl DeviceState {
    pub(crate) fn new(script: FakeDevice) -> Self {
        Self { script, opened_at: None, sends: 0, unreliable_sends: 0, receives: 0, deaf: false, dead: false }
    }

    pub(crate) fn opened(&mut self, now: Instant) {
        self.opened_at.get_or_insert(now);
    }

    /// Counts a send and decides about it.
    pub(crate) fn depart(&mut self, kind: Kind) -> Fate {
        self.sends += 1;
        if let Some(fail) = self.script.faults.fail_send
            && fail.nth == self.sends
        {
            return Fate::Fail(fail.status);
        }
        let falls_on = |every: Option<NonZeroU64>, count: u64| {
            every.is_some_and(|every| count.is_multiple_of(every.get()))
        };
        self.unreliable_sends += u64::from(kind == Kind::Uc);
        if kind == Kind::Uc && falls_on(self.script.faults.lose_every, self.unreliable_sends) {
            Fate::Lost
        } else if falls_on(self.script.faults.damage_every, self.sends) {
            Fate::Damaged
        } else {
            Fate::Leave
        }
    }

    /// Counts a delivered message.
    pub(crate) fn delivered(&mut self) {
        self.receives += 1;
    }

    /// True when it delivers and answers nothing any more.
    pub(crate) fn is_deaf(&self, now: Instant) -> bool {
        let faults = &self.script.faults;
        faults.deaf_after_receives.is_some_and(|most| self.receives >= most)
            || self.reached(faults.deaf_after_ms, now)
    }

    /// True once, when it has become deaf.
    pub(crate) fn falls_deaf(&mut self, now: Instant) -> bool {
        let falls = !self.deaf && self.is_deaf(now);
        self.deaf |= falls;
        falls
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// True once, when it is time to die.
    pub(crate) fn dies_now(&mut self, now: Instant) -> bool {
        let faults = &self.script.faults;
        let due = faults.die_after_sends.is_some_and(|most| self.sends >= most)
            || self.reached(faults.die_after_ms, now);
        let dies = due && !self.dead;
        self.dead |= due;
        dies
    }

    /// The next moment at which a fault by time comes about.
    pub(crate) fn next_change(&self, now: Instant) -> Option<Instant> {
        let faults = &self.script.faults;
        let moments = [faults.die_after_ms, faults.deaf_after_ms];
        moments.into_iter().filter_map(|after| self.moment(after)).filter(|moment| *moment > now).min()
    }

    fn reached(&self, after_ms: Option<u64>, now: Instant) -> bool {
        self.moment(after_ms).is_some_and(|moment| now >= moment)
    }

    fn moment(&self, after_ms: Option<u64>) -> Option<Instant> {
        Some(self.opened_at? + Duration::from_millis(after_ms?))
    }
}
