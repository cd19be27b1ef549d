//! `pomar run`: an answer as it comes, or a conversation.

use crate::{
    model::{ModelArgs, Opened, Placement, RunArgs},
    sampling::SamplingArgs,
};
use clap::Args;
use pomar_engine::Sampling;
use pomar_runtime::{FinishReason, Instance, Request, RequestEvent, Want};
use pomar_text::{ModelText, Render, StreamOptions};
use serde_json::{Value, json};
use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
    sync::mpsc,
    time::{Duration, Instant},
};

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Run {
    #[command(flatten)]
    model: ModelArgs,
    /// What to ask; without it, a conversation with one line per turn
    prompt: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Longest answer in tokens [default: what the context leaves]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Instructions that come before the conversation
    #[arg(long)]
    system: Option<String>,
    /// Continue the prompt as it is, without the chat template
    #[arg(long)]
    raw: bool,
}

/// A model that is ready, and how to ask it.
struct Session {
    text: ModelText,
    instance: Instance,
    context: usize,
    max_tokens: usize,
    sampling: Sampling,
}

/// How long an answer took.
struct Timing {
    prompt_tokens: usize,
    answer_tokens: usize,
    prefill: Duration,
    decode: Duration,
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        anyhow::ensure!(!self.raw || self.prompt.is_some(), "--raw continues a prompt: give one");
        let sampling = self.sampling.sampling()?;
        let opened = self.model.open()?;
        let session = Session::start(&opened, &self, sampling)?;
        match &self.prompt {
            Some(prompt) if self.raw => session.continue_text(prompt)?,
            Some(prompt) => {
                let messages = self.opening().chain([json!({"role": "user", "content": prompt})]);
                session.answer(&messages.collect::<Vec<_>>())?;
            }
            None => session.converse(self.opening().collect())?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn opening(&self) -> impl Iterator<Item = Value> {
        self.system.iter().map(|system| json!({"role": "system", "content": system}))
    }
}

impl Session {
    fn start(opened: &Opened, args: &Run, sampling: Sampling) -> anyhow::Result<Self> {
        let text = opened.text()?;
        let context = opened.context(&args.run)?;
        let instance = opened.start(&args.run, Placement::HereIfUnsplit, 1)?;
        let max_tokens = args.max_tokens.map_or(context, |tokens| tokens as usize);
        Ok(Self { text, instance, context, max_tokens, sampling })
    }

    /// One line of standard input per turn, until it ends.
    fn converse(&self, mut messages: Vec<Value>) -> anyhow::Result<()> {
        let is_terminal = io::stdin().is_terminal();
        if is_terminal {
            eprintln!("One line per turn. Ctrl-D ends the conversation.");
        }
        let mut lines = io::stdin().lock().lines();
        loop {
            if is_terminal {
                eprint!("> ");
            }
            let Some(line) = lines.next().transpose()? else {
                break;
            };
            if line.trim().is_empty() {
                continue;
            }
            messages.push(json!({"role": "user", "content": line}));
            let answer = self.answer(&messages)?;
            messages.push(json!({"role": "assistant", "content": answer}));
        }
        if is_terminal {
            eprintln!();
        }
        Ok(())
    }

    fn answer(&self, messages: &[Value]) -> anyhow::Result<String> {
        let prompt = self.text.render(&Render::new(messages))?;
        self.generate(self.text.tokenizer().encode(&prompt, false)?, true)
    }

    fn continue_text(&self, prompt: &str) -> anyhow::Result<()> {
        let ids = self.text.tokenizer().encode(prompt, true)?;
        write!(io::stdout(), "{prompt}")?;
        self.generate(ids, false).map(drop)
    }

    /// Prints the answer as it comes, then its speed on standard error.
    fn generate(&self, prompt: Vec<u32>, from_start: bool) -> anyhow::Result<String> {
        let room = self.context.saturating_sub(prompt.len());
        anyhow::ensure!(
            room > 0,
            "the prompt's {} tokens fill the context of {}: shorten it, or start with a larger --context",
            prompt.len(),
            self.context
        );
        let prompt_tokens = prompt.len();
        let request = Request {
            id: 0,
            prompt,
            max_tokens: self.max_tokens.min(room),
            stop_tokens: self.text.end_tokens().iter().copied().collect(),
            sampling: self.sampling.clone(),
            logprobs: None,
            want: Want::Tokens,
            chunk: None,
        };
        let started = Instant::now();
        let (sender, events) = mpsc::channel();
        let _ticket = self.instance.submit(request, move |event| drop(sender.send(event)));
        let mut decoder = self.text.tokenizer().stream(StreamOptions { skip_special: true, from_start });
        let mut stdout = io::stdout().lock();
        let mut answer = String::new();
        let mut timing =
            Timing { prompt_tokens, answer_tokens: 0, prefill: Duration::ZERO, decode: Duration::ZERO };
        for event in events {
            if let Some(reason) = event.failure() {
                writeln!(stdout)?;
                anyhow::bail!("{reason}");
            }
            match event {
                RequestEvent::Token { token, .. } => {
                    timing.note_token(started);
                    let piece = decoder.push(token);
                    stdout.write_all(piece.as_bytes())?;
                    stdout.flush()?;
                    answer.push_str(&piece);
                }
                RequestEvent::Finished(reason) => {
                    let rest = decoder.finish();
                    writeln!(stdout, "{rest}")?;
                    answer.push_str(&rest);
                    timing.report(reason);
                    return Ok(answer);
                }
                _ => {}
            }
        }
        anyhow::bail!("the model stopped without an answer")
    }
}

impl Timing {
    fn note_token(&mut self, started: Instant) {
        if self.answer_tokens == 0 {
            self.prefill = started.elapsed();
        }
        self.answer_tokens += 1;
        self.decode = started.elapsed() - self.prefill;
    }

    fn report(&self, reason: FinishReason) {
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        let mut parts = Vec::new();
        if self.answer_tokens > 0 {
            let rate = rate(self.prompt_tokens, self.prefill);
            parts.push(format!("prefill {} tokens at {rate:.1} tok/s", self.prompt_tokens));
        }
        // The first token comes with the prefill, so n tokens are n - 1 steps.
        if self.answer_tokens > 1 {
            let rate = rate(self.answer_tokens - 1, self.decode);
            parts.push(format!("decode {} tokens at {rate:.1} tok/s", self.answer_tokens));
        }
        if reason == FinishReason::Length {
            parts.push("cut off at the longest answer allowed".into());
        }
        eprintln!("[{}]", parts.join(", "));
    }
}
