//! The crate's tests over whole groups, in one program so that they share their helpers.

mod collectives;
mod common;
mod hostile;
#[cfg(target_os = "linux")]
mod mpi;
mod point_to_point;
mod processes;
