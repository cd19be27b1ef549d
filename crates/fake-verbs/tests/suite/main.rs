//! `pomar-verbs` over the fake library: messages as hardware passes them, every scripted fault, and nothing left over.

mod common;
mod devices;
mod faults;
mod limits;
mod messages;
mod processes;
