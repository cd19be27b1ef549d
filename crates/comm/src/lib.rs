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
//! | [`rdma`] | machines with RDMA devices: moves a TCP mesh's data to them | [`rdma::connect`] |
//! | [`auto`] | the same where it is measured to be quicker, pair by pair | [`auto::choose`] |
//! | [`RingGroup`] | MLX's ranks and ours, in MLX's ring | [`RingGroup::connect`], [`RingGroup::from_env`] |
//! | [`MpiGroup`] | the ranks of an MPI job | [`MpiGroup::join`] by each rank under `mpirun` |
//!
//! The promises, whatever the transport:
//!
//! - **Equal bits.** After `all_sum`, all ranks hold the same bits: integers wrap, floats are added in rank order (on
//!   MLX's ring in the order of that ring).
//! - **No call waits for ever.** A deadline, an [`abort`](Group::abort) from any thread of any rank, or a peer that
//!   dies or hangs ends it, the last within two seconds and naming the rank.
//! - **Nobody else reads along**, or joins: TCP connections are proved with the instance's key, and sealed unless they stay
//!   on loopback or on a network that [`GroupOptions::plain_networks`] declares to be a cable.
//! - **No allocation per call**, and every buffer is bounded.
//! - **Nothing left behind**, however a process ends: shared memory has no name, sockets close with their process.
//!
//! A program that is started once per rank, by `pomar launch -n 4 -- prog` or `mpirun -n 4 prog`, joins the group that
//! the environment describes ([`from_env`]); by itself it is a group of one:
//!
//! ```
//! use pomar_comm::{CommError, GroupOptions, from_env};
//!
//! fn main() -> Result<(), CommError> {
//!     let group = from_env(GroupOptions::default())?;
//!     let (rank, size) = (group.rank(), group.size());
//!
//!     // Every rank integrates its share of 4 / (1 + x^2) over 0..1; the sum of the shares is pi.
//!     let steps = 1_000_000;
//!     let share = (rank..steps).step_by(size).map(|i| (i as f64 + 0.5) / steps as f64);
//!     let area: f64 = share.map(|x| 4.0 / (1.0 + x * x) / steps as f64).sum();
//!     let mut pi = [area as f32];
//!     group.all_sum(pi.as_mut_slice().into())?;
//!
//!     // A word from each rank to its right neighbour.
//!     if size > 1 {
//!         group.send_message((rank + 1) % size, format!("rank {rank} has {pi:?}").as_bytes())?;
//!         let mut word = Vec::new();
//!         group.recv_message((rank + size - 1) % size, &mut word)?;
//!         println!("{}", String::from_utf8_lossy(&word));
//!     }
//! #   assert!((pi[0] - std::f32::consts::PI).abs() < 1e-5);
//!     group.barrier()
//! }
//! ```
//!
//! The parent of its ranks can also make the parts of a group itself, as [`Segment`] and [`TcpListenerHandle`] show.
//! `examples/lu` factors a matrix, `examples/copy.rs` copies a file, `examples/soak.rs` makes random calls.
//!
//! What each transport promises when ranks die, hang or differ is in `tests/faults/README.md`, with the command that tries a
//! thousand deaths.
//!
//! To read it: `group` is the interface and `transport` what most transports share (every collective in terms of one
//! *exchange*); `shm`, `tcp`, `mpi` and `ring` are one transport each. `mesh` makes collectives of pairs, a `pair` goes by TCP or
//! by `rdma`, and `auto` chooses. `record` frames what goes from rank to rank, `wait` is how a rank waits, `spsc` the byte
//! ring under shm and tcp, `reduce` the arithmetic.

mod address;
pub mod auto;
mod buffer;
mod call;
mod environment;
mod error;
mod group;
mod memory;
mod mesh;
pub mod mpi;
mod network;
mod options;
mod pair;
pub mod rdma;
mod record;
mod reduce;
pub mod ring;
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
pub use ring::RingGroup;
pub use shm::{Segment, ShmGroup, inherited_fd};
pub use solo::SoloGroup;
pub use tcp::{TcpGroup, TcpListenerHandle};
pub use transport::MAX_RANKS;
