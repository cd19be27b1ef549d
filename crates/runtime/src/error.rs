//! What can go wrong with an instance and its ranks.

use pomar_comm::CommError;
use pomar_engine::EngineError;
use std::io;

/// Why an instance could not be started or a rank could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The model or the split.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The other ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Shared memory could not be made or taken over.
    #[error("shared memory for the ranks: {0}; try --transport tcp")]
    Segment(#[source] io::Error),
    /// A process could not be started or spoken to.
    #[error("rank {rank} could not be started: {source}")]
    Spawn {
        /// Which.
        rank: usize,
        /// The system's answer.
        source: io::Error,
    },
    /// The front went away before it said where the others listen.
    #[error("the front gave no addresses of the other ranks")]
    NoAddresses,
    /// A step from the leader that can't be read.
    #[error("an order from the leader can't be read ({0}); do all ranks run the same version of pomar?")]
    Order(#[source] postcard::Error),
    /// The thread that receives logits is gone.
    #[error("the thread that receives logits is gone")]
    Collector,
    /// A rank died; the text names it and says how.
    #[error("{0}")]
    RankDied(String),
    /// A request that was not answered; the text says why.
    #[error("{0}")]
    Request(String),
    /// The ranks did not become ready in time.
    #[error("rank {rank} was not ready after {seconds} s")]
    NotReady {
        /// The first that was not.
        rank: usize,
        /// How long the front waited.
        seconds: u64,
    },
    /// The instance was stopped.
    #[error("the instance is stopped")]
    Stopped,
}
