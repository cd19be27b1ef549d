//! `pomar bench model`: prefill and decode speed of each split, beside what the planner says.

use crate::{
    facts::{
        self,
        speeds::{self, Rates, Run, Speed},
    },
    model::{ModelArgs, Opened, Placement, RunArgs, TransportArgs},
    output::{print_json, print_line, print_table},
};
use clap::Args;
use pomar_engine::{Sampling, Split};
use pomar_kernels::pool::default_threads;
use pomar_limits::Limits;
use pomar_plan::Backend;
use pomar_runtime::{Instance, Request, RequestEvent, Want};
use serde::Serialize;
use std::{
    process::ExitCode,
    sync::mpsc,
    time::{Duration, Instant},
};

#[derive(Args)]
pub(crate) struct Model {
    #[command(flatten)]
    model: ModelArgs,
    /// How the model is divided over processes: 1, tp2 (tensor parallel), pp2 (pipeline); several can be given
    #[arg(long, value_delimiter = ',', default_value = "1")]
    split: Vec<Split>,
    /// Tokens in the prompt
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Tokens to generate after it
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    generate: u32,
    /// Measured rounds, after one that is not counted; medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Threads that each process computes with [default: the cores, shared out evenly]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    transport: TransportArgs,
    /// Longest prompt and answer together, in tokens [default: the model's own, at most 8192]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Keep nothing for later predictions
    #[arg(long)]
    no_store: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    model: String,
    level: &'static str,
    weight_bytes: usize,
    rounds: u16,
    prefill_tokens: u32,
    decode_tokens: u32,
    splits: Vec<SplitReport>,
}

/// Tokens/s.
#[derive(Serialize)]
struct SplitReport {
    split: String,
    threads: usize,
    measured: Rates,
    /// With what was known before; `None` where the machine was never measured.
    predicted: Option<Rates>,
    /// Now that these speeds are known, too.
    calibrated: Option<Rates>,
}

impl Model {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let opened = self.model.open()?;
        // Measured before the model runs, so that they don't disturb each other.
        let limits = if self.no_store { facts::stored_limits()? } else { Some(facts::limits()?) };
        let before = speeds::stored()?;
        let mut weight_bytes = 0;
        let mut new = Vec::new();
        for split in &self.split {
            eprintln!("measuring {} as {split}", opened.name);
            let instance = opened.start(&self.arguments(*split), Placement::HereIfUnsplit, 1)?;
            weight_bytes = instance.weight_bytes();
            let measured = self.rates(&instance, opened.config.vocab_size as u32)?;
            new.push(Speed { run: self.what_runs(&opened, *split)?, measured });
        }
        if !self.no_store {
            facts::keep(speeds::store(&new));
        }
        let report = Report {
            model: opened.name.clone(),
            level: pomar_kernels::level().name(),
            weight_bytes,
            rounds: self.rounds,
            prefill_tokens: self.prompt,
            decode_tokens: self.generate,
            splits: compare(limits.as_ref(), before, &new),
        };
        if self.json {
            print_json(&report)?
        } else {
            report.print()?
        }
        Ok(ExitCode::SUCCESS)
    }

    fn arguments(&self, split: Split) -> RunArgs {
        RunArgs { split, threads: self.threads, transport: self.transport.clone(), context: self.context }
    }

    fn what_runs(&self, opened: &Opened, split: Split) -> anyhow::Result<Run> {
        Ok(Run {
            shape: speeds::shape(&opened.name, &opened.config),
            format: speeds::format(&opened.checkpoint)?,
            split,
            threads: self.threads.map_or((default_threads() / split.ranks()).max(1), usize::from),
            link: self.transport.link().to_owned(),
            prompt: self.prompt,
            generate: self.generate,
        })
    }

    fn rates(&self, instance: &Instance, vocab: u32) -> anyhow::Result<Rates> {
        let prompt: Vec<u32> = (0..self.prompt).map(|i| i.wrapping_mul(7919) % vocab).collect();
        let (mut prefill, mut decode) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            // The first token comes with the prefill; the steps after it are the decode.
            let times = time(instance, prompt.clone(), self.generate as usize + 1)?;
            let decoded = times[times.len() - 1] - times[0];
            if round > 0 {
                prefill.push(f64::from(self.prompt) / times[0].as_secs_f64());
                decode.push(f64::from(self.generate) / decoded.as_secs_f64());
            }
        }
        Ok(Rates { prefill: median(prefill), decode: median(decode) })
    }
}

/// What was measured beside what the planner says, before and after it knows.
fn compare(limits: Option<&Limits>, before: Vec<Speed>, new: &[Speed]) -> Vec<SplitReport> {
    let engine = |speeds: &[Speed]| limits.map(|limits| speeds::engine(limits, speeds));
    let first = engine(&before);
    let is_old = |old: &Speed| !new.iter().any(|speed| speed.run == old.run);
    let all: Vec<Speed> = new.iter().cloned().chain(before.into_iter().filter(is_old)).collect();
    let then = engine(&all);
    let predict = |speed: &Speed, backend: Option<&Backend>| speed.run.predict(limits?, backend?).ok();
    let report = |speed: &Speed| SplitReport {
        split: speed.run.split.to_string(),
        threads: speed.run.threads,
        measured: speed.measured,
        predicted: predict(speed, first.as_ref()),
        calibrated: predict(speed, then.as_ref()),
    };
    new.iter().map(report).collect()
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        let of = |predicted: Option<f64>, measured: f64| match predicted {
            Some(rate) => format!("{rate:.1} ({:+.0}%)", 100.0 * (rate / measured - 1.0)),
            None => "unknown".to_owned(),
        };
        let row = |split: &SplitReport, test: String, rate: fn(&Rates) -> f64| {
            let measured = rate(&split.measured);
            vec![
                split.split.clone(),
                split.threads.to_string(),
                test,
                format!("{measured:.1}"),
                of(split.predicted.as_ref().map(rate), measured),
                of(split.calibrated.as_ref().map(rate), measured),
            ]
        };
        let rows = self.splits.iter().flat_map(|split| {
            let prefill = row(split, format!("prefill {}", self.prefill_tokens), |rates| rates.prefill);
            [prefill, row(split, format!("decode {}", self.decode_tokens), |rates| rates.decode)]
        });
        print_line(format!("{}, kernels for {}; tokens/s", self.model, self.level))?;
        let heading = ["SPLIT", ">THREADS", "TEST", ">MEASURED", ">PREDICTED", ">CALIBRATED"];
        print_table(&heading, &rows.collect::<Vec<_>>())
    }
}

/// When each token of the answer came, counted from the request.
fn time(instance: &Instance, prompt: Vec<u32>, max_tokens: usize) -> anyhow::Result<Vec<Duration>> {
    let (sender, events) = mpsc::channel();
    let started = Instant::now();
    let request = Request {
        id: 0,
        prompt,
        max_tokens,
        stop_tokens: Vec::new(),
        sampling: Sampling::default(),
        logprobs: None,
        want: Want::Tokens,
        chunk: None,
    };
    let _ticket = instance.submit(request, move |event| drop(sender.send((started.elapsed(), event))));
    let mut times = Vec::new();
    for (at, event) in events {
        if let Some(reason) = event.failure() {
            anyhow::bail!("{reason}");
        }
        match event {
            RequestEvent::Token { .. } => times.push(at),
            RequestEvent::Finished(_) => break,
            _ => {}
        }
    }
    anyhow::ensure!(times.len() == max_tokens, "the answer has {} of {max_tokens} tokens", times.len());
    Ok(times)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
