//! The API over real connections, in front of a tiny model with random weights.

mod bodies;
mod common;
mod limits;
mod refusals;
mod streams;
