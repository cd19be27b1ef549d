//! `pomar bench MODEL`: prefill and decode speed, in the words of llama-bench (pp512, tg128).

use crate::{
    model::{ModelArgs, Placement, RunArgs},
    output::{print_json, print_table},
};
use clap::Args;
use pomar_engine::Sampling;
use pomar_runtime::{Instance, Request, RequestEvent, Want};
use serde_json::json;
use std::{
    process::ExitCode,
    sync::mpsc,
    time::{Duration, Instant},
};

#[derive(Args)]
pub(crate) struct BenchModel {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens in the prompt
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Tokens to generate after it
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    generate: u32,
    /// Measured rounds, after one that is not counted; medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    #[command(flatten)]
    run: RunArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl BenchModel {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let opened = self.model.open()?;
        let instance = opened.start(&self.run, Placement::HereIfUnsplit, 1)?;
        let vocab = opened.config.vocab_size as u32;
        let prompt: Vec<u32> = (0..self.prompt).map(|i| i.wrapping_mul(7919) % vocab).collect();
        let (mut prefill, mut decode) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            // The first token comes with the prefill; the steps after it are the decode.
            let times = time(&instance, prompt.clone(), self.generate as usize + 1)?;
            let decoded = times[times.len() - 1] - times[0];
            if round > 0 {
                prefill.push(f64::from(self.prompt) / times[0].as_secs_f64());
                decode.push(f64::from(self.generate) / decoded.as_secs_f64());
            }
        }
        let (prefill, decode) = (median(prefill), median(decode));
        let threads = self.run.threads;
        if self.json {
            print_json(&json!({
                "model": opened.name,
                "split": self.run.split.to_string(),
                "threads": threads,
                "level": pomar_kernels::level().name(),
                "weight_bytes": instance.weight_bytes(),
                "rounds": self.rounds,
                "prefill_tokens": self.prompt,
                "prefill_tok_s": prefill,
                "decode_tokens": self.generate,
                "decode_tok_s": decode,
            }))?;
        } else {
            let row = |test: String, rate: f64| {
                let threads = threads.map_or("auto".into(), |threads| threads.to_string());
                vec![opened.name.clone(), self.run.split.to_string(), threads, test, format!("{rate:.1}")]
            };
            let rows =
                [row(format!("pp{}", self.prompt), prefill), row(format!("tg{}", self.generate), decode)];
            print_table(&["MODEL", "SPLIT", ">THREADS", "TEST", ">TOK/S"], &rows)?;
        }
        Ok(ExitCode::SUCCESS)
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
