//! `pomar inspect`: what a model is, and how it can be split.

use crate::{
    model::ModelArgs,
    output::{print_json, print_table, size},
};
use clap::Args;
use pomar_engine::{Config, Shard, Split, loader::is_quantized};
use pomar_text::ModelText;
use pomar_weights::{Checkpoint, TensorView};
use serde::Serialize;
use std::{collections::BTreeMap, process::ExitCode};

/// Splits are shown up to this many ranks.
const SHOWN_RANKS: usize = 8;

#[derive(Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    model: ModelArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Facts {
    model: String,
    path: String,
    architecture: String,
    parameters: u64,
    bytes: u64,
    formats: BTreeMap<&'static str, u64>,
    layers: usize,
    hidden_size: usize,
    intermediate_size: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    context: usize,
    sliding_window: Option<usize>,
    kv_bytes_per_token: u64,
    chat_template: bool,
    splits: Vec<SplitFacts>,
}

#[derive(Serialize)]
struct SplitFacts {
    split: String,
    possible: bool,
    /// Why not.
    reason: Option<String>,
}

impl Inspect {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let opened = self.model.open()?;
        let tensors = opened.checkpoint.tensors().collect::<Result<Vec<_>, _>>()?;
        let chat_template =
            ModelText::from_checkpoint(&opened.checkpoint).is_ok_and(|text| text.template(false).is_ok());
        let config = &opened.config;
        let facts = Facts {
            model: opened.name.clone(),
            path: opened.path.display().to_string(),
            architecture: config.model_type.clone(),
            parameters: tensors.iter().map(elements).sum(),
            bytes: tensors.iter().map(|tensor| tensor.bytes().len() as u64).sum(),
            formats: formats(&tensors),
            layers: config.num_hidden_layers,
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            vocab_size: config.vocab_size,
            context: config.max_position_embeddings,
            sliding_window: config.sliding_window,
            kv_bytes_per_token: config.kv_bytes_per_token(),
            chat_template,
            splits: splits(config, &opened.checkpoint),
        };
        if self.json {
            print_json(&facts)?
        } else {
            facts.print()?
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn elements(tensor: &TensorView<'_>) -> u64 {
    tensor.shape().iter().map(|&n| n as u64).product()
}

/// Bytes in each number format.
fn formats(tensors: &[TensorView<'_>]) -> BTreeMap<&'static str, u64> {
    let mut formats = BTreeMap::new();
    for tensor in tensors {
        *formats.entry(tensor.dtype().name()).or_default() += tensor.bytes().len() as u64;
    }
    formats
}

/// Tensor parallel and pipeline splits of up to eight ranks.
fn splits(config: &Config, checkpoint: &Checkpoint) -> Vec<SplitFacts> {
    let quantized = is_quantized(checkpoint);
    let all = (2..=SHOWN_RANKS).flat_map(|n| [Split { tp: n, pp: 1 }, Split { tp: 1, pp: n }]);
    let facts = all.map(|split| {
        let refused = Shard::all(config, split, quantized).err();
        SplitFacts {
            split: split.to_string(),
            possible: refused.is_none(),
            reason: refused.map(|error| error.to_string()),
        }
    });
    facts.collect()
}

impl Facts {
    fn print(&self) -> anyhow::Result<()> {
        let formats: Vec<_> =
            self.formats.iter().map(|(name, &bytes)| format!("{name} {}", size(bytes))).collect();
        let (can, cannot): (Vec<_>, Vec<_>) = self.splits.iter().partition(|split| split.possible);
        let names = |splits: &[&SplitFacts]| {
            splits.iter().map(|split| split.split.clone()).collect::<Vec<_>>().join(" ")
        };
        let window = self.sliding_window.map_or(String::new(), |window| format!(", window {window}"));
        let mut rows = vec![
            ("model", self.model.clone()),
            ("path", self.path.clone()),
            ("architecture", self.architecture.clone()),
            ("parameters", format!("{:.1} M", self.parameters as f64 / 1e6)),
            ("weights", format!("{} ({})", size(self.bytes), formats.join(", "))),
            ("layers", self.layers.to_string()),
            ("hidden, inner", format!("{}, {}", self.hidden_size, self.intermediate_size)),
            ("heads", format!("{} query, {} key/value, {} wide", self.heads, self.kv_heads, self.head_dim)),
            ("vocabulary", self.vocab_size.to_string()),
            ("context", format!("{} tokens{window}", self.context)),
            ("KV cache", format!("{} per token", size(self.kv_bytes_per_token))),
            ("chat template", if self.chat_template { "yes" } else { "no" }.into()),
            ("splits", names(&can)),
        ];
        for split in cannot {
            rows.push(("", format!("not {}", split.reason.as_deref().unwrap_or(&split.split))));
        }
        let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.into(), value]).collect();
        print_table(&["FACT", "VALUE"], &rows)
    }
}
