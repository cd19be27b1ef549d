//! Weight formats and matrix products.

mod formats;
mod matrix;
mod products;
