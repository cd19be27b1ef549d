//! `pomar check`: the exact promise, proved on the user's own model and machine.
//!
//! Under every split the same prompts run in different ways: alone and together, in chunks of different sizes, with
//! one thread and two. All logits of every way must be the same bits; the SHA-256 of them is printed per split.

use crate::{
    model::{ModelArgs, Opened, Placement, RunArgs, TransportArgs},
    output::{print_json, print_line, print_table},
};
use clap::Args;
use pomar_engine::{Sampling, Split};
use pomar_runtime::{Instance, Request, RequestEvent, Want};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{process::ExitCode, sync::mpsc};

/// Tokens that each prompt is continued by.
const ANSWER: usize = 6;

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    model: ModelArgs,
    /// Splits to compare
    #[arg(long, value_delimiter = ',', default_value = "1,tp2,pp2,tp2xpp2")]
    splits: Vec<Split>,
    /// Lengths of the prompts, cut to the context; by default one token, within a page, over several pages and steps
    #[arg(long, value_delimiter = ',', default_value = "1,5,37,140", value_name = "N,N,..",
          value_parser = clap::value_parser!(u16).range(1..))]
    prompt_tokens: Vec<u16>,
    #[command(flatten)]
    transport: TransportArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    model: String,
    level: &'static str,
    splits: Vec<SplitReport>,
}

#[derive(Serialize)]
struct SplitReport {
    split: String,
    ranks: usize,
    logits_sha256: String,
    ok: bool,
    /// What differed, or why the split could not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A way to run the prompts that must not change a bit.
struct Way {
    name: &'static str,
    chunk: Option<usize>,
    together: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "one by one", chunk: None, together: false },
    Way { name: "in chunks of 7", chunk: Some(7), together: false },
    Way { name: "all together", chunk: None, together: true },
    Way { name: "all together in chunks of 32", chunk: Some(32), together: true },
];

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let opened = self.model.open()?;
        let mut expected = None;
        let mut splits = Vec::new();
        for &split in &self.splits {
            eprintln!("checking {split}");
            let report = self.check_split(&opened, split, expected.as_deref());
            expected.get_or_insert_with(|| report.logits_sha256.clone());
            splits.push(report);
        }
        let all_ok = splits.iter().all(|split| split.ok);
        let report = Report { model: opened.name.clone(), level: pomar_kernels::level().name(), splits };
        if self.json {
            print_json(&report)?;
        } else {
            report.print()?;
        }
        Ok(if all_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn check_split(&self, opened: &Opened, split: Split, expected: Option<&str>) -> SplitReport {
        let (logits_sha256, problem) = match self.hash_all_ways(opened, split) {
            Ok((hash, None)) if expected.is_some_and(|expected| expected != hash) => {
                (hash, Some(format!("other logits than {}", self.splits[0])))
            }
            Ok(result) => result,
            Err(error) => (String::new(), Some(format!("{error:#}"))),
        };
        SplitReport {
            split: split.to_string(),
            ranks: split.ranks(),
            logits_sha256,
            ok: problem.is_none(),
            problem,
        }
    }

    /// The hash of the first way, and which other way differs from it, if any.
    fn hash_all_ways(&self, opened: &Opened, split: Split) -> anyhow::Result<(String, Option<String>)> {
        let mut first: Option<String> = None;
        for threads in [1, 2] {
            let args =
                RunArgs { split, threads: Some(threads), transport: self.transport.clone(), context: None };
            let instance = opened.start(&args, Placement::HereIfUnsplit, self.prompt_tokens.len())?;
            let prompts = prompts(&self.prompt_tokens, opened.config.vocab_size, opened.context(&args)?);
            for way in &WAYS {
                let hash = hash(&instance, &prompts, way)?;
                let first = first.get_or_insert_with(|| hash.clone());
                if hash != *first {
                    let problem = format!("other logits with {threads} threads {}", way.name);
                    return Ok((first.clone(), Some(problem)));
                }
            }
        }
        Ok((first.unwrap_or_default(), None))
    }
}

/// Fixed prompts over the whole vocabulary, from a linear congruence (Knuth's MMIX constants).
fn prompts(lengths: &[u16], vocab: usize, context: usize) -> Vec<Vec<u32>> {
    let mut state = 2026_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocab as u64) as u32
    };
    let longest = context.saturating_sub(ANSWER).max(1);
    lengths.iter().map(|&length| (0..usize::from(length).min(longest)).map(|_| next()).collect()).collect()
}

/// SHA-256 of the logits of all prompts' and answers' positions, in order.
fn hash(instance: &Instance, prompts: &[Vec<u32>], way: &Way) -> anyhow::Result<String> {
    let mut hasher = Sha256::new();
    let together: Vec<Vec<Vec<u32>>> =
        if way.together { vec![prompts.to_vec()] } else { prompts.iter().map(|p| vec![p.clone()]).collect() };
    for prompts in together {
        for logits in all_logits(instance, prompts, way.chunk)? {
            logits.iter().for_each(|row| hasher.update(row.to_le_bytes()));
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Logits of prompts that run at the same time, by prompt.
fn all_logits(
    instance: &Instance,
    prompts: Vec<Vec<u32>>,
    chunk: Option<usize>,
) -> anyhow::Result<Vec<Vec<f32>>> {
    let (sender, events) = mpsc::channel();
    let mut all = vec![Vec::new(); prompts.len()];
    let mut tickets = Vec::new();
    for (number, prompt) in prompts.into_iter().enumerate() {
        let request = Request {
            id: 0,
            prompt,
            max_tokens: ANSWER,
            stop_tokens: Vec::new(),
            sampling: Sampling::default(),
            logprobs: None,
            want: Want::Logits,
            chunk,
        };
        let sender = sender.clone();
        tickets.push(instance.submit(request, move |event| drop(sender.send((number, event)))));
    }
    drop(sender);
    let mut left = tickets.len();
    while left > 0 {
        let (number, event) = events.recv()?;
        if let Some(reason) = event.failure() {
            anyhow::bail!("{reason}");
        }
        match event {
            RequestEvent::Logits { logits, .. } => all[number].extend(logits),
            RequestEvent::Finished(_) => left -= 1,
            _ => {}
        }
    }
    Ok(all)
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        let row = |split: &SplitReport| {
            let result = split.problem.clone().unwrap_or_else(|| "same bits".into());
            vec![split.split.clone(), split.ranks.to_string(), split.logits_sha256.clone(), result]
        };
        print_line(format!("{} at level {}", self.model, self.level))?;
        print_table(
            &["SPLIT", ">RANKS", "SHA-256 OF ALL LOGITS", "RESULT"],
            &self.splits.iter().map(row).collect::<Vec<_>>(),
        )
    }
}
