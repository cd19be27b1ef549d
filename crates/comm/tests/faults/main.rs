//! What goes wrong between ranks, on every transport by the same suite: see the README beside this file.

#![cfg(target_os = "linux")]

mod aborted;
mod calls;
mod differing;
mod job;
mod killed;
mod provider;
mod seeds;
mod stopped;
mod transports;
