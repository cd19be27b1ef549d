//! From logits to the next token.
//!
//! Order of things, as vLLM and OpenAI's API have it: bias and penalties, temperature, top-k, top-p (Holtzman et al.,
//! 2020), min-p (Nguyen et al., 2024), then one draw. The draw is a function of (seed, position) and nothing else, so
//! neither the batch nor a restart in the middle of a stream changes what is sampled.

use crate::EngineError;
use pomar_kernels::{
    level,
    random::uniform,
    softmax::{argmax, log_sum_exp, softmax_in_place},
};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Most entries of [`Sampling::logit_bias`].
pub const MAX_LOGIT_BIAS: usize = 1024;
/// Most alternatives that [`log_probabilities`] lists.
pub const MAX_TOP_LOGPROBS: usize = 20;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 takes the likeliest token; else logits are divided by it.
    pub temperature: f32,
    /// Only so many likeliest tokens; 0: all.
    pub top_k: u32,
    /// Only the likeliest tokens that together reach this probability; 1: all.
    pub top_p: f32,
    /// Only tokens at least this fraction as likely as the likeliest; 0: all.
    pub min_p: f32,
    /// Logits of tokens seen in prompt or answer: positive ones divided by it, negative ones multiplied; 1: off
    /// (Keskar et al., *CTRL*, 2019).
    pub repetition_penalty: f32,
    /// Taken from the logits of tokens in the answer so far.
    pub presence_penalty: f32,
    /// The same, for each time they occur.
    pub frequency_penalty: f32,
    /// Added to the logits of these token ids.
    pub logit_bias: Vec<(u32, f32)>,
    /// Key of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    /// The likeliest token, nothing else.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Checks every parameter against its range.
    ///
    /// # Errors
    /// [`EngineError::Sampling`] naming the first that is outside.
    pub fn check(&self) -> Result<(), EngineError> {
        let within = |name, value: f32, low: f32, high: f32, must| {
            let fits = value.is_finite() && value >= low && value <= high;
            if fits { Ok(()) } else { Err(EngineError::Sampling { name, found: value.to_string(), must }) }
        };
        within("temperature", self.temperature, 0.0, 100.0, "from 0 to 100")?;
        within("top_p", self.top_p, f32::MIN_POSITIVE, 1.0, "above 0 and at most 1")?;
        within("min_p", self.min_p, 0.0, 1.0, "from 0 to 1")?;
        within("repetition_penalty", self.repetition_penalty, 0.01, 100.0, "from 0.01 to 100")?;
        within("presence_penalty", self.presence_penalty, -2.0, 2.0, "from -2 to 2")?;
        within("frequency_penalty", self.frequency_penalty, -2.0, 2.0, "from -2 to 2")?;
        for (_, bias) in &self.logit_bias {
            within("logit_bias", *bias, -100.0, 100.0, "from -100 to 100")?;
        }
        if self.logit_bias.len() > MAX_LOGIT_BIAS {
            let found = format!("{} entries long", self.logit_bias.len());
            return Err(EngineError::Sampling {
                name: "logit_bias",
                found,
                must: "at most 1024 entries long",
            });
        }
        Ok(())
    }

    /// Chooses the token at `position` from its logits `[vocab]`, given the prompt and the answer so far.
    ///
    /// Logits that are not numbers count as minus infinity; when all are, token 0 is chosen.
    #[must_use]
    pub fn choose(&self, logits: &[f32], prompt: &[u32], answer: &[u32], position: usize) -> u32 {
        let plain = self.logit_bias.is_empty() && !self.has_penalties();
        if plain && self.temperature == 0.0 {
            return argmax(level(), logits).unwrap_or(0) as u32;
        }
        let mut logits = logits.to_vec();
        self.penalise(&mut logits, prompt, answer);
        if self.temperature == 0.0 {
            argmax(level(), &logits).unwrap_or(0) as u32
        } else {
            self.draw(logits, position)
        }
    }

    fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    fn penalise(&self, logits: &mut [f32], prompt: &[u32], answer: &[u32]) {
        for &(id, bias) in &self.logit_bias {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit += bias;
            }
        }
        if !self.has_penalties() {
            return;
        }
        for (id, _) in counted(prompt.iter().chain(answer)) {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit *= if *logit > 0.0 { 1.0 / self.repetition_penalty } else { self.repetition_penalty };
            }
        }
        for (id, count) in counted(answer.iter()) {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit -= self.presence_penalty + self.frequency_penalty * count as f32;
            }
        }
    }

    fn draw(&self, mut logits: Vec<f32>, position: usize) -> u32 {
        logits.iter_mut().filter(|logit| logit.is_nan()).for_each(|logit| *logit = f32::NEG_INFINITY);
        if argmax(level(), &logits).is_none_or(|best| !logits[best].is_finite()) {
            return argmax(level(), &logits).unwrap_or(0) as u32;
        }
        softmax_in_place(level(), &mut logits, self.temperature);
        let candidates = self.candidates(&logits);
        let total: f64 = candidates.iter().map(|&(_, p)| f64::from(p)).sum();
        let mut left = f64::from(uniform(self.seed, position as u64)) * total;
        for &(id, p) in &candidates {
            left -= f64::from(p);
            if left < 0.0 {
                return id;
            }
        }
        candidates.last().map_or(0, |&(id, _)| id)
    }

    /// The tokens that may be drawn, with their probabilities. Likeliest first, unless nothing is cut off: then by id,
    /// which saves sorting the vocabulary.
    fn candidates(&self, probabilities: &[f32]) -> Vec<(u32, f32)> {
        let all = probabilities.iter().enumerate().map(|(id, &p)| (id as u32, p));
        if self.top_k == 0 && self.top_p >= 1.0 && self.min_p == 0.0 {
            return all.collect();
        }
        let best = probabilities.iter().copied().fold(0.0, f32::max);
        // Tokens below (1 - top_p) / vocabulary add up to less than 1 - top_p, so none of them is in the nucleus;
        // leaving them out before sorting changes nothing, except that with top-k the nucleus is of the k kept.
        let negligible = if self.top_k == 0 { (1.0 - self.top_p) / probabilities.len() as f32 } else { 0.0 };
        let floor = (self.min_p * best).max(negligible).min(best);
        let mut kept: Vec<(u32, f32)> = all.filter(|&(_, p)| p >= floor && p > 0.0).collect();
        let k = if self.top_k == 0 { kept.len() } else { kept.len().min(self.top_k as usize) };
        if k < kept.len() {
            kept.select_nth_unstable_by(k, likelier_first);
            kept.truncate(k);
        }
        kept.sort_unstable_by(likelier_first);
        let mass: f64 = if self.top_k == 0 { 1.0 } else { kept.iter().map(|&(_, p)| f64::from(p)).sum() };
        let mut reached = 0.0;
        let enough = f64::from(self.top_p) * mass;
        let nucleus = kept.iter().position(|&(_, p)| {
            reached += f64::from(p);
            reached >= enough
        });
        kept.truncate(nucleus.map_or(kept.len(), |last| last + 1));
        kept
    }
}

/// Falling probability; equal ones by rising id, so that the order is one of a kind.
fn likelier_first(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// Each id once, with how often it occurs, by rising id.
fn counted<'a>(ids: impl Iterator<Item = &'a u32>) -> Vec<(u32, usize)> {
    let mut ids: Vec<u32> = ids.copied().collect();
    ids.sort_unstable();
    ids.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
}

/// A token's log-probability and the likeliest alternatives, under the model's own distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogProbs {
    /// Natural logarithm of the token's probability, before temperature and penalties.
    pub chosen: f32,
    /// The likeliest tokens and theirs, likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// Log-probabilities of `token` and of the `top` likeliest tokens (at most [`MAX_TOP_LOGPROBS`]) under `logits`.
///
/// A token outside the vocabulary has minus infinity.
#[must_use]
pub fn log_probabilities(logits: &[f32], token: u32, top: usize) -> LogProbs {
    let total = log_sum_exp(level(), logits);
    let of = |logit: f32| (f64::from(logit) - total) as f32;
    let top = top.min(MAX_TOP_LOGPROBS).min(logits.len());
    let mut best: Vec<(u32, f32)> = Vec::new();
    if top > 0 {
        let mut all: Vec<(u32, f32)> =
            logits.iter().enumerate().map(|(id, &logit)| (id as u32, logit)).collect();
        if top < all.len() {
            all.select_nth_unstable_by(top, likelier_first);
            all.truncate(top);
        }
        all.sort_unstable_by(likelier_first);
        best = all.into_iter().map(|(id, logit)| (id, of(logit))).collect();
    }
    LogProbs { chosen: logits.get(token as usize).map_or(f32::NEG_INFINITY, |&logit| of(logit)), top: best }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 6] = [1.0, 3.0, 2.0, -1.0, 3.0, f32::NAN];

    fn sampling() -> Sampling {
        Sampling { temperature: 1.0, seed: 7, ..Sampling::default() }
    }

    fn drawn(sampling: &Sampling, logits: &[f32]) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        (0..4000).for_each(|position| counts[sampling.choose(logits, &[], &[], position) as usize] += 1);
        counts
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_no_nan() {
        assert_eq!(Sampling::default().choose(&LOGITS, &[], &[], 0), 1);
        assert_eq!(Sampling::default().choose(&[f32::NAN; 3], &[], &[], 0), 0);
    }

    #[test]
    fn draws_follow_the_distribution() {
        let counts = drawn(&sampling(), &LOGITS);
        let total: f32 = LOGITS[..5].iter().map(|l| l.exp()).sum();
        for (count, logit) in counts.iter().zip(LOGITS).take(5) {
            let expected = 4000.0 * logit.exp() / total;
            assert!((*count as f32 - expected).abs() < 4.0 * expected.sqrt() + 4.0, "{counts:?}");
        }
        assert_eq!(counts[5], 0);
    }

    #[test]
    fn draws_depend_on_seed_and_position_alone() {
        let at = |seed, position| Sampling { seed, ..sampling() }.choose(&LOGITS, &[], &[], position);
        let line: Vec<_> = (0..64).map(|position| at(7, position)).collect();
        assert_eq!(line, (0..64).map(|position| at(7, position)).collect::<Vec<_>>());
        assert_ne!(line, (0..64).map(|position| at(8, position)).collect::<Vec<_>>());
    }

    #[test]
    fn cuts_keep_the_likeliest() {
        let never = |sampling: Sampling, ids: &[usize]| {
            let counts = drawn(&sampling, &LOGITS);
            ids.iter().for_each(|&id| assert_eq!(counts[id], 0, "{sampling:?} {counts:?}"));
            assert_eq!(counts.iter().sum::<usize>(), 4000);
        };
        never(Sampling { top_k: 2, ..sampling() }, &[0, 2, 3, 5]);
        never(Sampling { top_k: 1, ..sampling() }, &[0, 2, 3, 4, 5]);
        never(Sampling { top_p: 0.7, ..sampling() }, &[0, 2, 3, 5]);
        never(Sampling { top_p: 1e-6, ..sampling() }, &[0, 2, 3, 4, 5]);
        never(Sampling { min_p: 0.5, ..sampling() }, &[0, 2, 3, 5]);
        never(Sampling { min_p: 1.0, top_p: 0.99, ..sampling() }, &[0, 2, 3, 5]);
    }

    #[test]
    fn penalties_and_bias_move_logits() {
        let greedy =
            |change: Sampling, prompt: &[u32], answer: &[u32]| change.choose(&LOGITS, prompt, answer, 0);
        let base = Sampling::default();
        assert_eq!(greedy(Sampling { logit_bias: vec![(3, 50.0), (99, 1.0)], ..base.clone() }, &[], &[]), 3);
        assert_eq!(greedy(Sampling { repetition_penalty: 2.0, ..base.clone() }, &[1], &[4]), 2);
        assert_eq!(greedy(Sampling { presence_penalty: 0.5, ..base.clone() }, &[4], &[1]), 4);
        // Twice 0.6 from tokens 1 and 4 leaves 1.8, below token 2.
        assert_eq!(greedy(Sampling { frequency_penalty: 0.6, ..base }, &[], &[1, 1, 4, 4]), 2);
    }

    #[test]
    fn ranges_are_checked() {
        assert!(Sampling::default().check().is_ok());
        let error = Sampling { top_p: 0.0, ..Sampling::default() }.check().unwrap_err().to_string();
        assert!(error.contains("top_p is 0"), "{error}");
        assert!(Sampling { temperature: f32::NAN, ..Sampling::default() }.check().is_err());
        assert!(Sampling { logit_bias: vec![(0, 0.0); 1025], ..Sampling::default() }.check().is_err());
    }

    #[test]
    fn log_probabilities_sum_to_one() {
        let logits = &LOGITS[..5];
        let all = log_probabilities(logits, 2, 5);
        assert!((all.top.iter().map(|(_, p)| p.exp()).sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(all.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 4, 2, 0, 3]);
        assert_eq!(all.chosen, all.top[2].1);
        assert_eq!(log_probabilities(logits, 2, 2).top, all.top[..2]);
    }
}
