//! `pomar bench collectives`: latency and bandwidth of the calls that a split model lives on, per transport.

use super::{
    figures::Figure,
    ranks::{self, Way},
};
use crate::output::{print_json, print_line, print_table, size};
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Collectives {
    /// Processes that make the calls, all on this machine
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=64))]
    ranks: u16,
    /// Transports to measure, one after the other
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shm,tcp,ring")]
    transports: Vec<Way>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    ranks: u16,
    cores: usize,
    transports: Vec<TransportReport>,
}

#[derive(Serialize)]
struct TransportReport {
    transport: &'static str,
    figures: Vec<Figure>,
}

impl Collectives {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut transports = Vec::new();
        for way in self.transports {
            eprintln!("measuring {}", way.name());
            let output = ranks::run(way, usize::from(self.ranks))?;
            let figures = output.lines().map(serde_json::from_str).collect::<Result<Vec<Figure>, _>>()?;
            transports.push(TransportReport { transport: way.name(), figures });
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let report = Report { ranks: self.ranks, cores, transports };
        if self.json {
            print_json(&report)?
        } else {
            report.print()?
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        print_line(format!(
            "{} ranks on a machine with {} cores; times in microseconds",
            self.ranks, self.cores
        ))?;
        let rows = self.transports.iter().flat_map(|report| {
            report.figures.iter().map(|figure| {
                vec![
                    report.transport.to_owned(),
                    figure.call.name().to_owned(),
                    size(figure.bytes as u64),
                    format!("{:.1}", figure.min_us),
                    format!("{:.1}", figure.median_us),
                    format!("{:.1}", figure.p99_us),
                    format!("{:.2}", figure.gb_s),
                ]
            })
        });
        let heading = ["TRANSPORT", "CALL", ">BYTES", ">MIN", ">MEDIAN", ">P99", ">GB/S"];
        print_table(&heading, &rows.collect::<Vec<_>>())
    }
}
