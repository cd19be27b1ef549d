//! `pomar bench`: how fast things are on this machine.

mod collectives;
mod figures;
mod model;
mod ranks;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use std::process::ExitCode;

/// `bench MODEL`, or `bench` and something else to measure.
pub(crate) enum Bench {
    Model(Box<model::BenchModel>),
    Other(Other),
}

#[derive(Subcommand)]
pub(crate) enum Other {
    /// Measure how fast ranks on this machine reach each other
    Collectives(collectives::Collectives),
    /// One rank of `bench collectives`; started by it
    #[command(hide = true)]
    CollectivesRank,
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Model(command) => command.run(),
            Self::Other(Other::Collectives(command)) => command.run(),
            Self::Other(Other::CollectivesRank) => figures::measure_as_rank(),
        }
    }
}

// By hand, because the derive can't say "these arguments, or a subcommand" when some of the arguments are required.
impl Args for Bench {
    fn augment_args(command: Command) -> Command {
        Other::augment_subcommands(model::BenchModel::augment_args(command))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .arg_required_else_help(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Bench {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand_name() {
            Some(_) => Other::from_arg_matches(matches).map(Self::Other),
            None => model::BenchModel::from_arg_matches(matches).map(Box::new).map(Self::Model),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
