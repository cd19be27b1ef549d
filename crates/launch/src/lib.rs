//! Starts the ranks of any distributed program, on this machine and over ssh: what `pomar launch` does.
//!
//! What it is for: MLX scripts over TCP, RDMA or NCCL, MPI programs and pomar's own groups each want their ranks
//! started with other variables, files and ports. [`Plan::new`] works all of that out from a [`Job`] and a few
//! [`Facts`] without touching anything; [`run()`] then does it. What it must never know: models, tensors, or what the
//! ranks say to each other.
//!
//! ```
//! use pomar_launch::{Backend, Directory, Facts, Hostfile, Job, Plan};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let job = Job {
//!     hosts: Hostfile::from_names("10.0.0.1,10.0.0.2", 1)?.hosts,
//!     ..Job::new(Backend::Ring, ["python3", "train.py"], Directory::Try("/work".into()))
//! };
//! let plan = Plan::new(&job, &Facts::default())?;
//! assert_eq!(plan.hosts[1].files["hosts.json"], r#"[["10.0.0.1:32323"],["10.0.0.2:32324"]]"#);
//! assert_eq!(plan.processes[1].env["MLX_RANK"].to_string(), "1");
//! # Ok(())
//! # }
//! ```
//!
//! How a launch runs:
//!
//! - On every machine a small shell script, the *guard*, is started first. It keeps the launch's files, answers
//!   the questions of the preflight, and knows the process groups of its ranks. When its standard input ends, which
//!   is what happens when the launcher dies in any way or the connection is lost, it ends them. On another
//!   machine it also does so after 30 s without a sign of life, since a network that goes away says nothing (nor does
//!   a launcher that is suspended).
//! - A rank begins as a shell that waits for one line: only when the guard knows its group does it get the line that
//!   sets the environment and becomes the program. So there is no moment in which a rank could be left behind, and
//!   nothing secret is on a command line.
//! - Both scripts are POSIX shell: the other machines need no pomar, only ssh.
//!
//! To read it: [`hostfile`] and [`job`] are what comes in, [`plan`] is the thinking (`plan/environment.rs` has one
//! function per backend), `shell` and `scripts/` are how anything is run anywhere, and [`mod@run`] is what happens.

mod address;
mod backend;
mod describe;
mod env;
mod facts;
pub mod hostfile;
pub mod job;
pub mod plan;
mod quote;
pub mod run;
mod shell;

pub use address::Address;
pub use backend::Backend;
pub use describe::Description;
pub use env::Variable;
pub use facts::{FactsError, resolve};
pub use hostfile::{Devices, Host, Hostfile, HostfileError, MAX_RANKS};
pub use job::{Directory, Facts, Job, StdinTo};
pub use plan::{Plan, PlanError};
pub use run::{Failure, LaunchError, Outcome, RunOptions, run};
