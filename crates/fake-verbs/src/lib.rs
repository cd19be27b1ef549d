//! A verbs library without hardware, for tests of programs that use RDMA.
//!
//! It exports the functions of libibverbs that [`pomar_verbs`] calls. Load it through `POMAR_VERBS_LIBRARY`
//! ([`library_path`] says where it is), and there are devices, queue pairs and messages, between threads and between
//! processes; and, unlike with hardware, everything that can go wrong does so on demand. **It must never** become part
//! of the pomar binary, or be installed.
//!
//! # Environment
//! `POMAR_FAKE_VERBS_DIR` names a folder that all ranks share, with a short path (a socket's has at most about 100
//! bytes). Each queue pair has a socket there, named by its number; nothing else may be in it.
//!
//! `POMAR_FAKE_VERBS` holds the [`Script`] as JSON, read once per process; without it there are two good devices, `fake0`
//! and `fake1`, with an IPv4-mapped GID in row 1. What is left out has its default. Give each rank a script of its own,
//! or ranks that are threads of one process a device of their own:
//!
//! ```
//! let script = r#"{"devices": [{
//!     "name": "fake0",
//!     "gids": ["fe80::1", "::", "::", "::ffff:10.99.0.1"],
//!     "port": "active",
//!     "path_mtu": 1024,
//!     "kinds": ["uc"],
//!     "limits": {"queue_pairs": 10, "memory_regions": 100, "used_up": "EBUSY"},
//!     "faults": {
//!         "unreachable": false,
//!         "fail_send": {"nth": 3, "status": 12},
//!         "die_after_ms": 2000, "die_after_sends": 100,
//!         "deaf_after_ms": 1000, "deaf_after_receives": 10,
//!         "lose_every": 7, "damage_every": 9,
//!         "latency_us": 50
//!     }
//! }]}"#;
//! assert!(pomar_fake_verbs::Script::parse(script).is_ok());
//! ```
//!
//! | fault | what happens |
//! | --- | --- |
//! | `unreachable` | connecting answers `ETIMEDOUT`, as when nobody has the peer's address |
//! | `fail_send` | the n-th send of the device completes with this status, its queue pair breaks, the rest is flushed |
//! | `die_after_...` | all work requests are flushed; then calls answer `EIO`, but for those that free |
//! | `deaf_after_...` | messages to the device are no longer delivered, nor answered |
//! | `lose_every` | each n-th UC message of the device is lost; its send completes well |
//! | `damage_every` | the last byte of each n-th message of the device arrives changed |
//! | `latency_us` | messages leave later; their bytes are read when they leave |
//!
//! # What it does as hardware does
//! - RC: a send waits for a receive at the other side, for ever. When the other side is gone, deaf, not connected yet,
//!   or connected with other packet numbers, another path MTU or another GID, it fails with "retry exceeded" after half
//!   a second, and what was posted after it is flushed.
//! - UC: a send never fails for the peer's sake. A message that finds no receive is lost.
//! - A message that is longer than its receive breaks the receiving queue pair, and with RC the sending one.
//! - A send from memory, or a receive into memory, that isn't registered in the queue pair's protection domain fails
//!   with a protection error.
//! - A queue is full until completions are polled; a completion queue that overflows is broken.
//! - In a completion in error only id, status, queue pair and vendor error mean something; the rest is garbage.
//! - Completions of one queue come in order; but a message may be here before the acknowledgement of the one it answers,
//!   and there is no order between queue pairs.
//! - `ibv_modify_qp` wants exactly the attributes that the step needs. A path MTU above the port's is taken, and nothing
//!   arrives. Freeing something that is in use answers `EBUSY`.
//!
//! # What it does otherwise
//! Only SEND and RECV exist, with one piece of memory each and at most 16 MiB. A process that is stopped does not answer
//! and is not noticed (a device would answer for it). Ends whose path MTUs differ never hear each other; in truth only
//! messages of several packets are lost.
//!
//! Soft-RoCE (the Linux kernel's, 6.1) is different from hardware, and from this, in some things: an RC send that waits
//! for a receive fails after half a second with "retry exceeded"; a message longer than its receive ends with "local
//! queue pair error" and, at the sender, "the peer could not complete the operation"; a receive posted to a broken
//! queue pair is not given back; queues are deeper than asked for.
//!
//! # How to read it
//! `exports` is the interface in C's form, `world` holds all objects of a process behind one lock, `pair` is the heart:
//! the queues of a queue pair and the passing of messages, over the sockets of `door` in the frames of `wire`. `connect`
//! checks the steps to a connection, `device` decides about faults, `engine` is the background thread.

mod completions;
mod connect;
mod device;
mod door;
mod engine;
mod exports;
mod locate;
mod memory;
mod pair;
mod script;
mod wire;
mod world;

pub use door::FOLDER_VARIABLE;
pub use locate::{library_path, live, refusals};
pub use script::{
    FailSend, FakeDevice, FakeLimits, Faults, Kind, PortState, SCRIPT_VARIABLE, Script, UsedUp,
};
