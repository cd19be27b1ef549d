//! The `pomar` command.

fn main() {}
