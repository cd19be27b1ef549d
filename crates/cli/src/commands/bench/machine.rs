//! `pomar bench machine`: what this machine can do, for the planner and for judging kernels.

use crate::{
    facts,
    output::{print_json, print_line, print_table, size},
};
use clap::Args;
use pomar_limits::{AtThreads, Limits};
use std::{process::ExitCode, time::Duration};

#[derive(Args)]
pub(crate) struct Machine {
    /// Seconds for each figure
    #[arg(long, default_value_t = facts::PATIENCE.as_secs_f64(), value_parser = seconds)]
    seconds: f64,
    /// Keep nothing for `pomar plan` and `pomar bench model`
    #[arg(long)]
    no_store: bool,
    /// Print the result as JSON: bytes/s, operations/s, seconds
    #[arg(long)]
    json: bool,
}

impl Machine {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let limits = facts::measure(Duration::from_secs_f64(self.seconds));
        if !self.no_store {
            facts::keep(facts::store_limits(&limits));
        }
        if self.json {
            print_json(&limits)?;
        } else {
            print(&limits)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(limits: &Limits) -> anyhow::Result<()> {
    let host = &limits.host;
    let processor = if host.processor.is_empty() { "unknown processor" } else { &host.processor };
    print_line(format!(
        "{processor}, {} threads at once, {} of memory, kernels for {}",
        host.cores,
        size(host.memory),
        host.level
    ))?;
    let row = |at: &AtThreads| {
        vec![
            at.threads.to_string(),
            format!("{:.1}", at.read / 1e9),
            format!("{:.0}", at.int8 / 1e9),
            format!("{:.0}", at.f32 / 1e9),
            format!("{:.2}", at.start * 1e6),
        ]
    };
    let heading = [">THREADS", ">READ GB/S", ">8-BIT GOP/S", ">FLOAT GOP/S", ">START US"];
    print_table(&heading, &limits.threads.iter().map(row).collect::<Vec<_>>())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=60.0).contains(seconds));
    seconds.ok_or_else(|| format!("'{text}' is no number of seconds from 0.01 to 60"))
}
