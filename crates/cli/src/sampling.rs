//! Sampling options shared by commands that generate text.

use clap::Args;
use pomar_engine::Sampling;

/// How tokens are chosen.
#[derive(Args, Clone)]
pub(crate) struct SamplingArgs {
    /// 0 always takes the likeliest token; higher is more varied
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Only the so many likeliest tokens; 0: all
    #[arg(long, default_value_t = 0)]
    top_k: u32,
    /// Only the likeliest tokens that together reach this probability
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Only tokens at least this fraction as likely as the likeliest
    #[arg(long, default_value_t = 0.0)]
    min_p: f32,
    /// Makes tokens that were seen less likely; 1: off
    #[arg(long, default_value_t = 1.0)]
    repetition_penalty: f32,
    /// Key of the random draws; the same seed gives the same text [default: random]
    #[arg(long)]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// The parameters, checked against their ranges.
    pub(crate) fn sampling(&self) -> anyhow::Result<Sampling> {
        let seed = self.seed.map_or_else(getrandom::u64, Ok)?;
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            seed,
            ..Sampling::default()
        };
        sampling.check()?;
        Ok(sampling)
    }
}
