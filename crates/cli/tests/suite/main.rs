//! The `pomar` command from outside: what a person types and a client sends, with real processes and a real model.

mod bench;
mod common;
mod exact;
mod faults;
mod manners;
mod plan;
mod smollm2;
mod topology;
