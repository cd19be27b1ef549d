//! The `pomar` command: arguments in, tables or JSON out.
//!
//! Every subcommand is one file in [`commands`], with its arguments beside what it does. [`model`] turns a model
//! reference into files, and files into a running instance, [`facts`] what was measured here into the planner's machines. What a command prints on standard output is its answer;
//! progress, notes and timings go to standard error.

mod commands;
mod facts;
mod model;
mod output;
mod sampling;

use clap::Parser;
use pomar_kernels::Level;
use std::process::ExitCode;

/// Run open models on one machine or split over several processes, with the same bits.
#[derive(Parser)]
#[command(name = "pomar", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("POMAR_LOG").unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(output::colours_on_stderr())
        .init();
    let result = Level::from_env().map_err(anyhow::Error::from).and_then(|_| arguments.command.run());
    result.unwrap_or_else(|error| {
        if output::is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
