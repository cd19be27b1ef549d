//! Recorded machines to cables, checks, commands and hostfiles; and hosts that misbehave.

mod common;
mod hostile;
mod scenarios;
mod ssh;
