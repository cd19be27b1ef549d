//! Models that ran on this machine, how fast they were, and the constants of pomar's engine that follow.

use super::machine;
use anyhow::Context;
use pomar_engine::{Config, Split};
use pomar_limits::{Host, Limits};
use pomar_plan::{
    Backend, Format, Link, Model, Placement, Rank, Setting, Shape, Stage, backend,
    calibrate::{Knob, calibrate},
};
use pomar_weights::{Checkpoint, TensorView};
use serde::{Deserialize, Serialize};

const SPEEDS: &str = "speeds.json";

/// Speeds that are kept, the newest.
const MOST: usize = 64;

/// A model's speed with a split.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Speed {
    pub(crate) run: Run,
    /// Tokens/s.
    pub(crate) measured: Rates,
}

/// What ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) shape: Shape,
    pub(crate) format: Format,
    pub(crate) split: Split,
    /// Of each rank.
    pub(crate) threads: usize,
    /// The planner's name of the way between ranks.
    pub(crate) link: String,
    /// Tokens of the prompt.
    pub(crate) prompt: u32,
    /// Tokens after it.
    pub(crate) generate: u32,
}

/// Tokens/s.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Rates {
    pub(crate) prefill: f64,
    pub(crate) decode: f64,
}

/// The file: speeds of one machine.
#[derive(Serialize, Deserialize)]
struct File {
    host: Host,
    speeds: Vec<Speed>,
}

/// What ran on this very machine.
pub(crate) fn stored() -> anyhow::Result<Vec<Speed>> {
    let file: Option<File> = super::read(SPEEDS)?;
    let good =
        |rates: &Rates| [rates.prefill, rates.decode].into_iter().all(|rate| rate.is_finite() && rate > 0.0);
    let mut speeds = file.filter(|file| file.host == Host::this()).map_or_else(Vec::new, |file| file.speeds);
    speeds.retain(|speed| good(&speed.measured));
    speeds.truncate(MOST);
    Ok(speeds)
}

/// Adds new speeds; they replace older ones of the same runs.
pub(crate) fn store(new: &[Speed]) -> anyhow::Result<()> {
    let mut speeds = new.to_vec();
    let is_new = |old: &Speed| !new.iter().any(|speed| speed.run == old.run);
    speeds.extend(stored()?.into_iter().filter(is_new));
    speeds.truncate(MOST);
    super::write(SPEEDS, &File { host: Host::this(), speeds })
}

const US: f64 = 1e-6;

/// What calibration moves: not what only models with experts or other attention need, since those can't run yet.
const KNOBS: [Knob; 8] = [
    Knob { value: |backend| &mut backend.bandwidth_share, least: 0.05, most: 1.5 },
    Knob { value: |backend| &mut backend.rate_share, least: 0.05, most: 1.5 },
    Knob { value: |backend| &mut backend.layer, least: US, most: 5000.0 * US },
    Knob { value: |backend| &mut backend.per_number, least: 0.01e-9, most: 1000e-9 },
    Knob { value: |backend| &mut backend.attention_share, least: 0.001, most: 2.0 },
    Knob { value: |backend| &mut backend.prompt_attention_share, least: 0.001, most: 2.0 },
    Knob { value: |backend| &mut backend.collective, least: 0.1 * US, most: 5000.0 * US },
    Knob { value: |backend| &mut backend.hop, least: US, most: 50_000.0 * US },
];

/// What moving a constant by a factor of e must gain, as an error of so much, so that those of which the speeds say nothing
/// stay where they are.
const RELUCTANCE: f64 = 0.02;

/// pomar's engine as these speeds show it.
pub(crate) fn engine(limits: &Limits, speeds: &[Speed]) -> Backend {
    let error = |backend: &Backend| {
        let far = |predicted: f64, measured: f64| (predicted / measured).ln().abs().min(1.0);
        let of_speed = |speed: &Speed| match speed.run.predict(limits, backend) {
            Ok(rates) => {
                far(rates.prefill, speed.measured.prefill) + far(rates.decode, speed.measured.decode)
            }
            Err(_) => 0.0,
        };
        RELUCTANCE * moved(backend) + speeds.iter().map(of_speed).sum::<f64>()
    };
    calibrate(&backend::POMAR, &KNOBS, &error)
}

/// How far all constants are from where they started, in powers of e.
fn moved(backend: &Backend) -> f64 {
    let (mut now, mut start) = (*backend, backend::POMAR);
    KNOBS.iter().map(|knob| (*(knob.value)(&mut now) / *(knob.value)(&mut start)).ln().abs()).sum()
}

impl Run {
    /// The speed that the planner's formulas give.
    ///
    /// # Errors
    /// The shape or the link is not known to the planner, or nothing was measured.
    pub(crate) fn predict(&self, limits: &Limits, backend: &Backend) -> anyhow::Result<Rates> {
        let model = Model::try_from(&self.shape)?;
        let link = Link::named(&self.link)?;
        let placement = placement(self.split, model.layers.len());
        let cluster = |busy: usize| {
            machine::ranks(limits, &self.format, self.split, self.threads, busy, link)
                .context("nothing was measured on this machine")
        };
        // Chunks of a prompt are in all stages at once, a single sequence's token is in one.
        let (filling, one_stage) = (cluster(self.split.ranks())?, cluster(self.split.tp)?);
        let setting = |cluster| Setting { model: &model, format: &self.format, cluster, backend };
        let (prompt, generate) = (f64::from(self.prompt), f64::from(self.generate));
        let prefill = setting(&filling).prompt_time(&placement, prompt, 0.0);
        let decode = setting(&one_stage).token_time(&placement, 1.0, prompt + generate / 2.0);
        let joined = "all ranks are joined";
        Ok(Rates { prefill: prompt / prefill.context(joined)?, decode: 1.0 / decode.context(joined)? })
    }
}

/// As the engine splits: layers evenly over stages, each layer evenly over a stage's ranks.
fn placement(split: Split, layers: usize) -> Placement {
    let nodes: Vec<usize> = (0..split.pp).collect();
    let stage = |(stage, whole): (usize, &Stage)| {
        let rank = |node| Rank { node, share: 1.0 / split.tp as f64 };
        Stage {
            layers: whole.layers.clone(),
            ranks: (stage * split.tp..(stage + 1) * split.tp).map(rank).collect(),
        }
    };
    let stages = Placement::pipeline(&nodes, layers).stages;
    Placement { stages: stages.iter().enumerate().map(stage).collect() }
}

/// A model's shape as the engine reads it.
pub(crate) fn shape(name: &str, config: &Config) -> Shape {
    let known = |value: usize| Some(value as u64);
    Shape {
        id: name.into(),
        model_type: Some(config.model_type.clone()),
        layers: known(config.num_hidden_layers),
        hidden_size: known(config.hidden_size),
        heads: known(config.num_attention_heads),
        kv_heads: known(config.num_key_value_heads),
        head_dim: known(config.head_dim),
        intermediate_size: known(config.intermediate_size),
        sliding_window: config.sliding_window.map(|window| window as u64),
        vocab_size: known(config.vocab_size),
        context: known(config.max_position_embeddings),
        tie_embeddings: config.tie_word_embeddings,
        ..Shape::default()
    }
}

/// Mean bits of a checkpoint's weights.
pub(crate) fn format(checkpoint: &Checkpoint) -> anyhow::Result<Format> {
    let tensors = checkpoint.tensors().collect::<Result<Vec<_>, _>>()?;
    let is_end = |tensor: &TensorView<'_>| {
        ["embd", "embed_tokens", "lm_head"].iter().any(|part| tensor.name().contains(part))
            || tensor.name() == "output.weight"
    };
    let (ends, others): (Vec<_>, Vec<_>) =
        tensors.iter().filter(|tensor| tensor.shape().len() > 1).partition(|tensor| is_end(tensor));
    let bits = |tensors: &[&TensorView<'_>]| {
        let bytes: usize = tensors.iter().map(|tensor| tensor.bytes().len()).sum();
        let numbers: usize = tensors.iter().map(|tensor| tensor.rows_count() * tensor.cols()).sum();
        8.0 * bytes as f64 / numbers.max(1) as f64
    };
    let others = bits(&others);
    Ok(Format { name: format!("{others:.1} bits"), experts: others, others, ends: bits(&ends) })
}
