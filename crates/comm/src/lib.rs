//! Ranks that add up numbers and send each other bytes: the [`Group`] trait and its transports.
//!
//! A *group* is a fixed number of processes (or threads), the *ranks*, that make the same calls in the same order. What
//! it is for: the ranks of one model instance add their partial sums twice a layer, in a few microseconds, and hand
//! activations and step descriptions along. What it must never know: models, tensors, tokens, files.
//!
//! | transport | between | made with |
//! | --- | --- | --- |
//! | [`SoloGroup`] | nobody | [`SoloGroup::new`] |
//! | [`ShmGroup`] | processes on one machine | [`Segment::create`] by the parent, [`ShmGroup::attach`] by each rank |
//! | [`TcpGroup`] | processes that reach each other by IP | [`TcpListenerHandle::bind`], [`TcpGroup::connect`] |
//! | [`MpiGroup`] | the ranks of an MPI job | [`MpiGroup::join`] by each rank under `mpirun` |
//!
//! The promises, whatever the transport:
//!
//! - **Equal bits.** After `all_sum`, all ranks hold the same bits: integers wrap, floats are added in rank order.
//! - **No call waits for ever.** A deadline, an [`abort`](Group::abort) from any thread of any rank, or a peer that
//!   dies or hangs ends it, the last within two seconds and naming the rank.
//! - **No allocation per call**, and every buffer is bounded.
//! - **Nothing left behind**, however a process ends: shared memory has no name, sockets close with their process.
//!
//! ```
//! use pomar_comm::{Group, GroupOptions, Segment, ShmGroup};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Segment::create(2)?;
//! let other = segment.try_clone_fd()?;
//! // Threads here; processes get the descriptor with `Segment::inherit`.
//! let peer = std::thread::spawn(move || {
//!     let group = ShmGroup::attach(other, 1, 2, GroupOptions::default())?;
//!     let mut part = [10_i64, 20];
//!     group.all_sum(part.as_mut_slice().into())?;
//!     group.send_message(0, b"done")
//! });
//! let group = ShmGroup::attach(segment.into_owned_fd(), 0, 2, GroupOptions::default())?;
//! let mut part = [1_i64, 2];
//! group.all_sum(part.as_mut_slice().into())?;
//! assert_eq!(part, [11, 22]);
//! let mut message = Vec::new();
//! group.recv_message(1, &mut message)?;
//! assert_eq!(message, b"done");
//! # peer.join().unwrap()?;
//! # Ok(())
//! # }
//! ```
//!
//! To read it: `group` is the interface and `transport` what all transports share (every collective in terms of one
//! *exchange*); `shm`, `tcp` and `mpi` are one transport each; `record` frames what goes from rank to rank, `wait` is how a
//! rank waits, `spsc` the byte ring under both transports, `reduce` the arithmetic.

mod address;
pub mod auto;
mod buffer;
mod call;
mod environment;
mod error;
mod group;
mod memory;
mod mesh;
mod network;
pub mod mpi;
mod options;
mod pair;
pub mod rdma;
mod record;
mod reduce;
pub mod shm;
mod solo;
mod spsc;
mod stop;
pub mod tcp;
mod transport;
mod verdict;
mod vigil;
mod wait;

pub use address::{AddressError, address_text, parse_address};
pub use buffer::{BufferMut, DType};
pub use environment::from_env;
pub use error::CommError;
pub use group::{Group, MAX_MESSAGE_BYTES};
pub use mpi::MpiGroup;
pub use network::{IpNetwork, NetworkError};
pub use options::GroupOptions;
pub use rdma::{QpKind, RdmaDevices, RdmaOptions};
pub use shm::{Segment, ShmGroup, inherited_fd};
pub use solo::SoloGroup;
pub use tcp::{TcpGroup, TcpListenerHandle};
pub use transport::MAX_RANKS;
