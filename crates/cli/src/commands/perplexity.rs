//! `pomar perplexity`: how well a model predicts a text (Jelinek et al., 1977): exp of the mean negative
//! log-likelihood per token.

use crate::{
    model::{ModelArgs, Placement, RunArgs},
    output::{print_json, print_line},
};
use anyhow::Context;
use clap::Args;
use pomar_engine::Sampling;
use pomar_runtime::{Instance, Request, RequestEvent, Want};
use serde_json::json;
use std::{path::PathBuf, process::ExitCode};

/// Longest text read.
const MAX_TEXT_BYTES: u64 = 64 << 20;

#[derive(Args)]
pub(crate) struct Perplexity {
    #[command(flatten)]
    model: ModelArgs,
    /// A UTF-8 text
    text: PathBuf,
    /// Score only the first so many tokens
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    tokens: Option<u32>,
    #[command(flatten)]
    run: RunArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Perplexity {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let opened = self.model.open()?;
        let window = opened.context(&self.run)?;
        anyhow::ensure!(
            window >= 2,
            "a window of {window} token leaves nothing to predict: try --context 512"
        );
        let file = self.text.display();
        let bytes = std::fs::metadata(&self.text).with_context(|| format!("reading {file}"))?.len();
        anyhow::ensure!(
            bytes <= MAX_TEXT_BYTES,
            "{file} has {bytes} bytes; at most {MAX_TEXT_BYTES} are read"
        );
        let text = std::fs::read_to_string(&self.text).with_context(|| format!("reading {file}"))?;
        let mut ids = opened.text()?.tokenizer().encode_plain(&text)?;
        if let Some(tokens) = self.tokens {
            ids.truncate(tokens as usize);
        }
        anyhow::ensure!(ids.len() >= 2, "{file} has {} tokens; at least 2 are needed", ids.len());
        let instance = opened.start(&self.run, Placement::HereIfUnsplit, 1)?;
        let (mut sum, mut scored, mut windows) = (0.0, 0_usize, 0_usize);
        // A last window of a single token has nothing to predict.
        for ids in ids.chunks(window).filter(|ids| ids.len() >= 2) {
            let values = score(&instance, ids)?;
            sum -= values.iter().map(|&value| f64::from(value)).sum::<f64>();
            scored += values.len();
            windows += 1;
        }
        let nll = sum / scored as f64;
        if self.json {
            print_json(&json!({
                "model": opened.name, "tokens": ids.len(), "scored": scored, "windows": windows, "context": window,
                "nll": nll, "perplexity": nll.exp(),
            }))?;
        } else {
            print_line(format!(
                "perplexity {:.4} (nll {nll:.5}, {scored} tokens in {windows} windows of {window})",
                nll.exp()
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Log-probabilities of all tokens but the first.
fn score(instance: &Instance, ids: &[u32]) -> anyhow::Result<Vec<f32>> {
    let events = instance.run(Request {
        id: 0,
        prompt: ids.to_vec(),
        max_tokens: 0,
        stop_tokens: Vec::new(),
        sampling: Sampling::default(),
        logprobs: None,
        want: Want::PromptLogProbs,
        chunk: None,
    })?;
    let values = events.into_iter().filter_map(|event| match event {
        RequestEvent::PromptLogProbs { values, .. } => Some(values),
        _ => None,
    });
    Ok(values.flatten().collect())
}
