//! A group of one: every collective is already done.

use crate::{
    BufferMut, CommError, Group, GroupOptions,
    verdict::{Verdict, VerdictCell, cut_reason},
};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The group of a single rank, for running unsplit with the same code.
#[derive(Debug)]
pub struct SoloGroup {
    verdict: VerdictCell,
    deadline_ms: AtomicU64,
}

impl SoloGroup {
    /// A group of one rank.
    #[must_use]
    pub fn new() -> Self {
        let group = Self { verdict: VerdictCell::default(), deadline_ms: AtomicU64::new(0) };
        group.set_deadline(GroupOptions::default().deadline);
        group
    }
}

impl Default for SoloGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Group for SoloGroup {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms.load(Relaxed))
    }

    fn set_deadline(&self, deadline: Duration) {
        self.deadline_ms.store(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn all_sum(&self, _: BufferMut<'_>) -> Result<(), CommError> {
        self.verdict.check()
    }

    fn all_max(&self, _: BufferMut<'_>) -> Result<(), CommError> {
        self.verdict.check()
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<(), CommError> {
        self.verdict.check()?;
        if all.len() != mine.len() {
            return Err(CommError::BufferSize { op: "all_gather", expected: mine.len(), got: all.len() });
        }
        all.copy_from_slice(mine);
        Ok(())
    }

    fn broadcast(&self, root: usize, _: &mut [u8]) -> Result<(), CommError> {
        self.verdict.check()?;
        if root == 0 { Ok(()) } else { Err(CommError::NoSuchPeer { rank: root, size: 1 }) }
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.verdict.check()
    }

    fn send(&self, to: usize, _: &[u8]) -> Result<(), CommError> {
        Err(CommError::NoSuchPeer { rank: to, size: 1 })
    }

    fn recv_within(&self, from: usize, _: &mut [u8], _: Duration) -> Result<(), CommError> {
        Err(CommError::NoSuchPeer { rank: from, size: 1 })
    }

    fn abort(&self, reason: &str) {
        self.verdict.set(Verdict::Aborted { by: 0, reason: cut_reason(reason).to_owned() });
    }
}
