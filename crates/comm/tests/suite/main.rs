//! The crate's tests over whole groups, in one program so that they share their helpers.

mod checks;
mod collectives;
mod common;
mod hostile;
#[cfg(target_os = "linux")]
mod networks;
mod point_to_point;
mod processes;
mod ring;
