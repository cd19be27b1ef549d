//! Which machines, which split, how fast, how much: predictions for a language model on given machines, and a search for
//! the best placement.
//!
//! Pure: no files, no clock, no network, no randomness. Machines and models come from the built-in [`Catalogue`], from a
//! user's files, or from measured facts that the caller puts into a [`Machine`]. Nothing here knows how a model is run;
//! a [`Backend`] is a handful of constants.
//!
//! To read: [`model`] (what a layer holds, reads, multiplies), [`cost`] (its time and memory on one machine), [`predict`]
//! (a [`Placement`]'s time by cause), [`simulate`] (the same event by event), [`mod@search`] (the best placement), [`answer`]
//! (ranked plans in words). The formulas, units and sources of all constants are in docs/plan.md.

pub mod answer;
pub mod backend;
pub mod budget;
pub mod calibrate;
pub mod catalogue;
mod cluster;
pub mod cost;
pub mod disaggregate;
mod format;
mod link;
mod machine;
pub mod model;
pub mod predict;
pub mod search;
mod shape;
pub mod simulate;

pub use backend::Backend;
pub use catalogue::{Catalogue, CatalogueError};
pub use cluster::{Cluster, Node};
pub use format::{Format, UnknownFormat};
pub use link::{Link, UnknownLink};
pub use machine::{Machine, Maker};
pub use model::{Model, ShapeUnknown};
pub use predict::{Placement, Rank, Setting, Stage, Workload};
pub use search::{Candidate, Goal, search};
pub use shape::Shape;
pub use simulate::Timeline;
