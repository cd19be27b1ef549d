//! The crate as its users see it, against reference data and hostile data.

mod common;
mod hostile;
mod model;
mod templates;
mod vectors;
