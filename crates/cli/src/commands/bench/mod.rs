//! `pomar bench`: how fast things are on this machine.

mod collectives;
mod figures;
mod model;
mod ranks;

use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    model: Option<model::BenchModel>,
}

#[derive(Subcommand)]
enum What {
    /// Measure how fast ranks on this machine reach each other
    Collectives(collectives::Collectives),
    /// One rank of `bench collectives`; started by it
    #[command(hide = true)]
    CollectivesRank,
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match (self.what, self.model) {
            (Some(What::Collectives(command)), _) => command.run(),
            (Some(What::CollectivesRank), _) => figures::measure_as_rank(),
            (None, Some(model)) => model.run(),
            (None, None) => anyhow::bail!("name a model, or `collectives`; see pomar bench --help"),
        }
    }
}
