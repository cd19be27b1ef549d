//! RDMA verbs, loaded at run time: `libibverbs` on Linux, `librdma` on macOS, with no dependency at build time.
//!
//! What an RDMA device offers is called *verbs*: open a [`Device`], make a [`ProtectionDomain`] and a
//! [`CompletionQueue`], register memory, connect a [`QueuePair`] with one of another machine, post work requests, poll
//! their completions. This crate gives each of these an owner that frees it in the right order, and no more: no
//! threads, no retries, no waiting. How messages are framed and when a peer counts as dead is the business of whoever
//! uses it. **It must never know** what the messages are for.
//!
//! ```no_run
//! # fn main() -> Result<(), pomar_verbs::VerbsError> {
//! use pomar_verbs::{Completion, Depth, Library, LocalEnd, PathMtu, QpKind, RemoteEnd};
//!
//! let library = Library::load()?;
//! let device = library.open_device("rxe0")?;
//! let (gid_index, gid) = *device.gids()?.iter().find(|(_, gid)| gid.ipv4().is_some()).expect("an IPv4 address");
//! let domain = device.protection_domain()?;
//! let completions = device.completion_queue(64)?;
//! let pair = domain.queue_pair(&completions, QpKind::Rc, Depth { send: 32, receive: 32 })?;
//! let memory = domain.register(1 << 20)?;
//!
//! pair.init()?;
//! // SAFETY: nobody uses these bytes until the completion.
//! unsafe { pair.post_receive(1, &memory, 0..4096)? };
//! // Tell the peer pair.number(), gid and the first packet number; and hear the same from it. Then:
//! # let remote = RemoteEnd { queue_pair: 17, packet_sequence: 7, lid: 0, gid };
//! pair.connect(&LocalEnd { gid_index, packet_sequence: 7, path_mtu: PathMtu::M1024 }, &remote)?;
//! let mut found = [Completion::default(); 16];
//! let count = completions.poll(&mut found)?;
//! for completion in &found[..count] {
//!     println!("{}: {}", completion.id, completion.status);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # How to read it
//! [`sys`] is the binary interface. `library` finds and opens the file; `device`, `domain`, `completion` and
//! `queue_pair` hold one kind of object each, with its owner; `memory` maps the pages; `error` says what to do when a
//! call fails.
//!
//! # What is few on Macs
//! Apple's devices have about 10 queue pairs and 100 memory regions, and what a process loses comes back with a reboot
//! only (as users of JACCL report). So look at [`Device::limits`] first, make few objects, and never try again in a
//! loop. Nothing here does.

mod completion;
mod device;
mod domain;
mod error;
mod gid;
mod library;
mod memory;
mod queue_pair;
pub mod sys;

pub use completion::{Completion, CompletionQueue, Status};
pub use device::{Device, Limits, LinkLayer, PathMtu, Port};
pub use domain::{MemoryRegion, ProtectionDomain};
pub use error::{Tried, VerbsError};
pub use gid::Gid;
pub use library::{LIBRARY_VARIABLE, Library};
pub use queue_pair::{Depth, LocalEnd, QpKind, QueuePair, RemoteEnd};
