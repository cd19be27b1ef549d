//! `pomar bench`: how fast things are on this machine.

mod collectives;
mod figures;
mod machine;
mod model;
mod ranks;

use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure memory bandwidth, arithmetic and the cost of starting work, for each number of threads
    Machine(machine::Machine),
    /// Measure a model's speed, and compare it with the prediction
    Model(Box<model::Model>),
    /// Measure how fast ranks on this machine reach each other
    Collectives(collectives::Collectives),
    /// One rank of `bench collectives`; started by it
    #[command(hide = true)]
    CollectivesRank,
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Machine(command) => command.run(),
            What::Model(command) => command.run(),
            What::Collectives(command) => command.run(),
            What::CollectivesRank => figures::measure_as_rank(),
        }
    }
}
