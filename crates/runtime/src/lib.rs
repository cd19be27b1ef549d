//! Ranks at work: the process of a rank, the leader's step loop, and the instance that starts and watches them.
//!
//! # Concepts
//!
//! - An [`Instance`] is a model that runs, seen from the front: requests in, events out. It starts one process per
//!   rank, ends all of them when one dies, says which and how, and starts them again.
//! - A *rank* ([`rank`]) loads its shard and runs steps. It lives exactly as long as its standard input.
//! - The *leader*, rank 0, decides each step (continuous batching, chunked prefill) and samples.
//!
//! # What it must never know
//!
//! Text: requests hold token ids. HTTP, users, where models come from.
//!
//! # How to read it
//!
//! `scheduler` (who runs next), `leader` (the loop), [`rank`] (a step on one rank), `team` and [`instance`]
//! (processes), [`protocol`] (what they say to each other).

mod error;
pub mod instance;
mod leader;
mod pages;
pub mod protocol;
pub mod rank;
mod scheduler;
mod team;

pub use error::RuntimeError;
pub use instance::{Instance, InstanceSpec, State, Ticket};
pub use protocol::{FinishReason, Limits, QueuePairs, RdmaCabling, Request, RequestEvent, Want};
pub use team::Transport;
