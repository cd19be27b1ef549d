//! A group of ranks and its transports: shared memory and a TCP mesh.
mod buffer;
mod call;
mod error;
mod group;
mod memory;
mod options;
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

pub use buffer::{BufferMut, DType};
pub use error::CommError;
pub use group::{Group, MAX_MESSAGE_BYTES};
pub use options::GroupOptions;
pub use shm::{Segment, ShmGroup, inherited_fd};
pub use solo::SoloGroup;
pub use tcp::{TcpGroup, TcpListenerHandle};
pub use transport::MAX_RANKS;
