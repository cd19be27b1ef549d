//! `pomar logits`: the raw output of a model, for comparing with other programs.

use crate::{
    model::{ModelArgs, Placement, RunArgs},
    output::print_line,
};
use anyhow::Context;
use clap::Args;
use pomar_engine::Sampling;
use pomar_runtime::{Request, RequestEvent, Want};
use safetensors::{Dtype, serialize_to_file, tensor::TensorView};
use std::{path::PathBuf, process::ExitCode};

#[derive(Args)]
pub(crate) struct Logits {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids, such as 5,6,7
    #[arg(long, value_delimiter = ',', required = true)]
    ids: Vec<u32>,
    /// File to write: tensor `logits`, f32, [ids, vocabulary]
    #[arg(long, value_name = "FILE.safetensors")]
    out: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

impl Logits {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let opened = self.model.open()?;
        let instance = opened.start(&self.run, Placement::HereIfUnsplit, 1)?;
        let count = self.ids.len();
        let events = instance.run(Request {
            id: 0,
            prompt: self.ids,
            max_tokens: 0,
            stop_tokens: Vec::new(),
            sampling: Sampling::default(),
            logprobs: None,
            want: Want::Logits,
            chunk: None,
        })?;
        let mut bytes = Vec::new();
        for event in events {
            if let RequestEvent::Logits { logits, .. } = event {
                bytes.extend(logits.iter().flat_map(|logit| logit.to_le_bytes()));
            }
        }
        let view = TensorView::new(Dtype::F32, vec![count, opened.config.vocab_size], &bytes)?;
        serialize_to_file([("logits", view)], None, &self.out)
            .with_context(|| format!("writing {}", self.out.display()))?;
        print_line(format!("{}: logits [{count}, {}]", self.out.display(), opened.config.vocab_size))?;
        Ok(ExitCode::SUCCESS)
    }
}
