//! Which cables join which machines, and what can be done over them.
//!
//! A few Macs joined by Thunderbolt cables are a fast network that nobody has set up yet: each port is an
//! interface of its own, with or without an address, inside or outside of a bridge, and RDMA works only where
//! both ends, the cable and both systems allow it. This crate asks the machines, finds the cables, says what
//! is wrong, and writes the hostfile that `mlx.launch` and `pomar launch` start ranks with.
//!
//! ```no_run
//! use pomar_topology::{Form, Report, Request, Ssh, Survey, check_hosts};
//!
//! let names = ["studio-1".to_owned(), "studio-2".to_owned()];
//! check_hosts(&names)?;
//! let survey = Survey::take(&Ssh::default(), &names);
//! let report = Report::new(&survey, Request::default(), None);
//! for check in &report.checks {
//!     println!("{:?}: {}", check.level, check.text);
//! }
//! if let Some(hostfile) = &report.hostfile {
//!     std::fs::write("hosts.json", hostfile.text(Form::Object))?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Invariants.** It changes nothing on any machine: every [`Probe`] only reads, and commands that would
//! change something are printed for the user, each with its undo. Nothing is keyed by the name of an
//! interface, which changes at restarts: cables are pairs of Thunderbolt domains, ports are the numbers on
//! the case. It knows nothing of models, ranks' programs or pomar's own transports.
//!
//! How to read it: [`Probe`] lists the questions, [`Source`] is who answers them ([`Ssh`], [`Recorded`]),
//! [`parse`] has a file for each answer, and [`Host`] puts a machine's answers together. [`Cabling`] matches
//! ports, [`Graph`] knows meshes and rings, `rdma` knows what RDMA needs, `address` numbers the cables, and
//! [`Backend`] and [`Reach`] decide what the cables are good for. [`Report`] holds the result: checks,
//! commands, [`Hostfile`]; [`dot()`] draws it.

mod address;
mod backend;
mod cabling;
mod changes;
mod check;
mod dot;
mod error;
mod fix;
mod graph;
mod host;
mod hostfile;
mod network;
pub mod parse;
mod probe;
mod rdma;
mod report;
mod source;
mod survey;

pub use address::CableAddresses;
pub use backend::{Backend, Choice, MAX_MESH_RANKS, Reach, UnknownBackend};
pub use cabling::{Cable, Cabling, End};
pub use check::{Check, Level};
pub use dot::dot;
pub use error::{HostsError, ProbeError};
pub use fix::{Fix, Step};
pub use graph::{Graph, MAX_NODES as MAX_HOSTS, MAX_WIRES, Ring};
pub use host::{Host, Port, System};
pub use hostfile::{Devices, Entry, Form, Hostfile};
pub use network::Network;
pub use probe::Probe;
pub use report::{CableFacts, EndFacts, HostFacts, PortFacts, Report, Request};
pub use source::{MAX_ANSWER_BYTES, Recorded, Recording, Source, Ssh, check_hosts};
pub use survey::{Survey, Unread};
