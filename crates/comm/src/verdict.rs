//! Why a group is over. The first reason stays.

use crate::CommError;
use std::sync::OnceLock;

/// Longest reason or description that travels between ranks, in bytes.
pub(crate) const MAX_REASON_BYTES: usize = 200;

/// The end of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Dead {
        rank: usize,
        what: String,
    },
    Broken {
        rank: usize,
        what: String,
    },
    /// The link from `by`, who noticed, to `rank`.
    LinkFailed {
        rank: usize,
        by: usize,
        what: String,
    },
    Aborted {
        by: usize,
        reason: String,
    },
}

impl Verdict {
    /// The verdict as rank `own` must see it: of a link that failed, each end blames the other.
    pub(crate) fn seen_by(self, own: usize) -> Self {
        match self {
            Self::LinkFailed { rank, by, what } if rank == own => {
                Self::LinkFailed { rank: by, by: rank, what }
            }
            other => other,
        }
    }

    pub(crate) fn to_error(&self) -> CommError {
        match self.clone() {
            Self::Dead { rank, what } => CommError::PeerDead { rank, what },
            Self::Broken { rank, what } => CommError::Protocol { rank, what },
            Self::LinkFailed { rank, what, .. } => CommError::LinkFailed { rank, what },
            Self::Aborted { by, reason } => CommError::Aborted { by, reason },
        }
    }
}

/// A place for one verdict.
#[derive(Debug, Default)]
pub(crate) struct VerdictCell(OnceLock<Verdict>);

impl VerdictCell {
    /// Keeps `verdict` unless there is one already; says whether it was kept.
    pub(crate) fn set(&self, verdict: Verdict) -> bool {
        self.0.set(verdict).is_ok()
    }

    pub(crate) fn get(&self) -> Option<&Verdict> {
        self.0.get()
    }

    pub(crate) fn check(&self) -> Result<(), CommError> {
        self.0.get().map_or(Ok(()), |verdict| Err(verdict.to_error()))
    }
}

/// `reason` cut to what travels, at a character boundary.
pub(crate) fn cut_reason(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_of_a_link_blames_the_other() {
        let verdict = |rank, by| Verdict::LinkFailed { rank, by, what: "cut".into() };
        assert_eq!(verdict(1, 0).seen_by(1), verdict(0, 1));
        assert_eq!(verdict(1, 0).seen_by(0), verdict(1, 0));
        assert_eq!(verdict(1, 0).seen_by(2), verdict(1, 0));
    }
}
