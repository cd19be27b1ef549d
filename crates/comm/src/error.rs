//! What can go wrong between ranks, and what to do about each.

use crate::address::address_text;
use std::{io, net::SocketAddr, time::Duration};

/// Why a call on a [`Group`](crate::Group) did not do its work.
///
/// [`CommError::Timeout`] of a receive that had not begun is the only error after which the group is still
/// good; after every other error that names a peer the group must be dropped and a new one made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// A peer's process is gone, stopped, or closed its side of the group.
    #[error("rank {rank} is dead ({what}); drop this group and start the ranks again")]
    PeerDead {
        /// The rank that is gone.
        rank: usize,
        /// How that was noticed.
        what: String,
    },
    /// The deadline passed while a live peer had not done its part.
    #[error(
        "{op} waited {after:?} for rank {waiting_for}, which is alive but did not take part; \
         see what that rank is doing, or raise the deadline"
    )]
    Timeout {
        /// The call that waited.
        op: &'static str,
        /// How long it waited.
        after: Duration,
        /// The (first) rank whose part is missing.
        waiting_for: usize,
    },
    /// A rank called [`Group::abort`](crate::Group::abort), or gave up on a call half done.
    #[error("rank {by} aborted the group: {reason}; drop this group and start the ranks again")]
    Aborted {
        /// The rank that aborted.
        by: usize,
        /// The reason it gave.
        reason: String,
    },
    /// Two ranks gave different sizes for the same call.
    #[error(
        "{op}: rank {rank} brought {got} bytes where this rank has {expected}; \
         all ranks must call with equal sizes"
    )]
    SizeMismatch {
        /// The call.
        op: &'static str,
        /// The rank whose size differs.
        rank: usize,
        /// Bytes on this rank.
        expected: u64,
        /// Bytes on the other rank.
        got: u64,
    },
    /// Two ranks are in different calls at the same point of their sequence.
    #[error(
        "rank {rank} is in {theirs} while this rank is in {ours}; all ranks must make the same calls in the same order"
    )]
    OutOfStep {
        /// The rank that is elsewhere.
        rank: usize,
        /// What this rank called.
        ours: String,
        /// What the other rank called.
        theirs: String,
    },
    /// Bytes from a peer, or from shared memory, that no correct rank would have written.
    #[error("rank {rank} broke the protocol ({what}); do all ranks run the same version of pomar?")]
    Protocol {
        /// The rank whose bytes they are.
        rank: usize,
        /// What is wrong with them.
        what: String,
    },
    /// The way to a peer failed, while both ends live.
    #[error(
        "the link to rank {rank} failed ({what}); look at its cable and port, then start the ranks again"
    )]
    LinkFailed {
        /// The rank at the other end.
        rank: usize,
        /// How it failed.
        what: String,
    },
    /// A message longer than [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES).
    #[error("a message of {bytes} bytes is longer than the limit of {limit}; split it")]
    MessageTooLarge {
        /// The length asked for, by the caller or by the peer's prefix.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A rank that does not exist, or the caller's own where a peer is meant.
    #[error("rank {rank} is not a peer in this group of {size}; peers are 0 to {size} without oneself")]
    NoSuchPeer {
        /// The rank asked for.
        rank: usize,
        /// Ranks in the group.
        size: usize,
    },
    /// A caller's buffer whose length does not fit the call.
    #[error("{op}: the buffer has {got} bytes and must have {expected}")]
    BufferSize {
        /// The call.
        op: &'static str,
        /// Bytes it must have.
        expected: usize,
        /// Bytes it has.
        got: usize,
    },
    /// A group cannot be made like this (size, rank, segment, addresses).
    #[error("cannot make the group: {what}")]
    Setup {
        /// What is wrong and what would be right.
        what: String,
    },
    /// Not all ranks came while the group was being made.
    #[error("rank {missing} did not join the group within {after:?}; did its process start?")]
    DidNotJoin {
        /// The first rank that is missing.
        missing: usize,
        /// How long this rank waited.
        after: Duration,
    },
    /// A connection to a neighbour in the ring was not made in time.
    #[error("no connection with rank {rank} within {after:?} ({what}); was it started, with the same hosts?")]
    NotConnected {
        /// The neighbour.
        rank: usize,
        /// How long this rank tried, for all its connections.
        after: Duration,
        /// The address and what was tried.
        what: String,
    },
    /// A message to or from a rank that is not next to this one in a ring.
    #[error(
        "rank {rank} is not a neighbour: in this ring, {left} and {right} are; \
         pass the message along, or use a transport that joins all pairs"
    )]
    NotNeighbour {
        /// The rank asked for.
        rank: usize,
        /// The neighbour on the left.
        left: usize,
        /// The neighbour on the right.
        right: usize,
    },
    /// None of a peer's addresses led to it while the group was being made.
    #[error("rank {from} found no way to rank {to} within {after:?} ({tried}); did its process start?")]
    NoPath {
        /// The rank that tried.
        from: usize,
        /// The rank it looked for.
        to: usize,
        /// How long it tried.
        after: Duration,
        /// Every address, and what happened there at last.
        tried: String,
    },
    /// An address that cannot be listened to.
    #[error("cannot listen at {}: {source}", address_text(address))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// MPI refused something.
    #[error("MPI's {call} failed: {text}; drop this group and start the job again")]
    Mpi {
        /// The MPI function.
        call: &'static str,
        /// MPI's words.
        text: String,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl CommError {
    /// True for an expired deadline, the error that a caller waiting for work simply waits through.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// The peer that the error blames, where there is one.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::PeerDead { rank, .. }
            | Self::SizeMismatch { rank, .. }
            | Self::OutOfStep { rank, .. }
            | Self::Protocol { rank, .. }
            | Self::LinkFailed { rank, .. } => Some(*rank),
            Self::Timeout { waiting_for, .. } => Some(*waiting_for),
            Self::Aborted { by, .. } => Some(*by),
            Self::DidNotJoin { missing, .. } => Some(*missing),
            Self::NoPath { to, .. } => Some(*to),
            Self::NotConnected { rank, .. } => Some(*rank),
            _ => None,
        }
    }
}
