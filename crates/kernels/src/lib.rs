//! Arithmetic on blocks of numbers: quantised dot products, norms, rope, attention, sampling primitives.

pub mod pool;
