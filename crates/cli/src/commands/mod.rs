//! One file per subcommand.

mod bench;
mod check;
mod inspect;
mod launch;
mod logits;
mod models;
mod perplexity;
mod plan;
mod pull;
mod run;
mod serve;
mod topology;

use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Answer a prompt, or chat when none is given
    Run(run::Run),
    /// Serve a model over the OpenAI API on loopback
    Serve(serve::Serve),
    /// Fetch a model without running it
    Pull(pull::Pull),
    /// List the models on this machine
    Models(models::Models),
    /// Show what a model is and how it can be split
    Inspect(inspect::Inspect),
    /// Prove that every split of a model gives the same bits
    Check(check::Check),
    /// Write the logits of given token ids to a safetensors file
    Logits(logits::Logits),
    /// How well a model predicts a text
    Perplexity(perplexity::Perplexity),
    /// Measure this machine, a model's speed, or the ways between ranks
    Bench(bench::Bench),
    /// Predict what a model will do on given machines, and which split is best
    Plan(plan::Plan),
    /// Start any distributed program: ranks here and over ssh
    Launch(launch::Launch),
    /// Find the Thunderbolt cables between machines, what is wrong with them, and MLX's hostfile
    Topology(topology::Topology),
    /// One rank of a model; started by the other commands
    #[command(hide = true)]
    Rank,
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Run(command) => command.run(),
            Self::Serve(command) => command.run(),
            Self::Pull(command) => command.run(),
            Self::Models(command) => command.run(),
            Self::Inspect(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Logits(command) => command.run(),
            Self::Perplexity(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::Plan(command) => command.run(),
            Self::Launch(command) => command.run(),
            Self::Topology(command) => command.run(),
            Self::Rank => std::process::exit(pomar_runtime::rank::serve_stdio()),
        }
    }
}
