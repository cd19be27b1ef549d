//! How a model is divided over ranks: which layers, heads, MLP columns and vocabulary rows each one holds.
//!
//! A split is data. The architectures ask for "a linear split by heads" and never see a rank number; this module is
//! the only place that turns `tp2xpp2` into ranges. Every cut falls on a granule ([`head_granule`], [`inner_granule`]),
//! so that the sums of the parts are the sums of the whole, bit for bit.

use crate::{Config, EngineError};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range, str::FromStr};

/// The unit that activations are quantised in, and the smallest granule of quantised weights.
pub const GRANULE: usize = 32;

/// Granules that the MLP's inner dimension should have at least, so that it can be dealt out evenly.
const MIN_GRANULES: usize = 16;

/// Most ranks in one split.
pub const MAX_RANKS: usize = 64;

/// Vocabulary rows are dealt out in this unit, the height of a packed panel.
const VOCAB_UNIT: usize = 16;

/// Tensor parallel times pipeline parallel: `1`, `tp2`, `pp3`, `tp2xpp2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Ranks that share each layer.
    pub tp: usize,
    /// Stages of consecutive layers.
    pub pp: usize,
}

impl Split {
    /// One rank that holds everything.
    pub const ONE: Split = Split { tp: 1, pp: 1 };

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.tp * self.pp
    }

    /// The stage that `rank` belongs to. Ranks of a stage are neighbours.
    #[must_use]
    pub fn stage(&self, rank: usize) -> usize {
        rank / self.tp
    }

    /// The ranks of the stage that `rank` belongs to.
    #[must_use]
    pub fn stage_ranks(&self, rank: usize) -> Range<usize> {
        let first = self.stage(rank) * self.tp;
        first..first + self.tp
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tp, self.pp) {
            (1, 1) => write!(f, "1"),
            (tp, 1) => write!(f, "tp{tp}"),
            (1, pp) => write!(f, "pp{pp}"),
            (tp, pp) => write!(f, "tp{tp}xpp{pp}"),
        }
    }
}

impl FromStr for Split {
    type Err = String;

    /// Parses `1`, `tpN`, `ppN` or both joined by `x`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no split; write 1, tp2, pp3 or tp2xpp2 (at most {MAX_RANKS} ranks)");
        let (mut tp, mut pp) = (None, None);
        for part in text.split('x').filter(|_| text != "1") {
            let (slot, digits) = match part.split_at_checked(2) {
                Some(("tp", digits)) => (&mut tp, digits),
                Some(("pp", digits)) => (&mut pp, digits),
                _ => return Err(wrong()),
            };
            let count = digits.parse().ok().filter(|n| (1..=MAX_RANKS).contains(n)).ok_or_else(wrong)?;
            if slot.replace(count).is_some() {
                return Err(wrong());
            }
        }
        let split = Split { tp: tp.unwrap_or(1), pp: pp.unwrap_or(1) };
        if split.ranks() > MAX_RANKS { Err(wrong()) } else { Ok(split) }
    }
}

/// What one rank holds of a model. All ranges are in the whole model's numbering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The split this is a part of.
    pub split: Split,
    /// Decoder layers of the rank's stage.
    pub layers: Range<usize>,
    /// Query heads.
    pub heads: Range<usize>,
    /// Key and value heads that those query heads read. With fewer of them than ranks, neighbours hold copies.
    pub kv_heads: Range<usize>,
    /// Columns of the MLP's inner dimension.
    pub inner: Range<usize>,
    /// Rows of the output head; only the last stage uses them.
    pub vocab: Range<usize>,
    /// The stage embeds token ids.
    pub is_first: bool,
    /// The stage makes logits.
    pub is_last: bool,
}

impl Shard {
    /// The shard of every rank. `quantized` says that weights come in blocks of 32 columns, which heads may not cut.
    ///
    /// # Errors
    /// [`EngineError::Split`] with the largest split that works, when there are more ranks than parts.
    pub fn all(config: &Config, split: Split, quantized: bool) -> Result<Vec<Shard>, EngineError> {
        let refuse = |what: String| EngineError::Split { split: split.to_string(), what };
        if split.pp > config.num_hidden_layers {
            let layers = config.num_hidden_layers;
            return Err(refuse(format!("the model has {layers} layers, so at most pp{layers}")));
        }
        let heads = head_ranges(config, split.tp, quantized).map_err(refuse)?;
        let granule = inner_granule(config.intermediate_size);
        let granules = config.intermediate_size.div_ceil(granule);
        if granules < split.tp {
            return Err(refuse(format!(
                "the MLP has {granules} granules of {granule} columns, so at most tp{granules}"
            )));
        }
        let panels = config.vocab_size.div_ceil(VOCAB_UNIT);
        if panels < split.tp {
            return Err(refuse(format!(
                "the vocabulary has {panels} units of {VOCAB_UNIT} rows, so at most tp{panels}"
            )));
        }
        let shard = |rank: usize| {
            let (stage, part) = (rank / split.tp, rank % split.tp);
            let heads = heads[part].clone();
            let group = config.group_size();
            Shard {
                split,
                layers: deal(config.num_hidden_layers, split.pp, stage, Extra::First),
                kv_heads: heads.start / group..heads.end.div_ceil(group),
                heads,
                inner: units(deal(granules, split.tp, part, Extra::Last), granule, config.intermediate_size),
                vocab: units(deal(panels, split.tp, part, Extra::Last), VOCAB_UNIT, config.vocab_size),
                is_first: stage == 0,
                is_last: stage + 1 == split.pp,
            }
        };
        Ok((0..split.ranks()).map(shard).collect())
    }
}

/// Columns of the attention's output projection that are summed in f32 before they become fixed-point integers: a
/// head, unless heads cut through blocks of quantised weights. A property of the model, never of the split.
#[must_use]
pub fn head_granule(head_dim: usize, quantized: bool) -> usize {
    if quantized && !head_dim.is_multiple_of(GRANULE) { GRANULE } else { head_dim }
}

/// The same for the MLP's down projection: as large as leaves enough granules, since each costs a rounding.
#[must_use]
pub fn inner_granule(intermediate_size: usize) -> usize {
    let enough = |granule: &usize| intermediate_size / granule >= MIN_GRANULES;
    [256, 128, 64].into_iter().find(enough).unwrap_or(GRANULE)
}

/// Query heads of each rank: whole key/value groups while there are enough, else single heads with copied groups.
fn head_ranges(config: &Config, tp: usize, quantized: bool) -> Result<Vec<Range<usize>>, String> {
    let heads = config.num_attention_heads;
    // A cut must fall on a granule: every head where head_dim is a multiple of it, else every few heads.
    let granule = head_granule(config.head_dim, quantized);
    let step = (1..=heads).find(|n| (n * config.head_dim).is_multiple_of(granule)).unwrap_or(heads);
    let group = config.group_size();
    let unit = if tp <= config.num_key_value_heads && group.is_multiple_of(step) { group } else { step };
    let parts = heads.div_ceil(unit);
    if parts < tp {
        return Err(format!(
            "the attention's {heads} heads make {parts} parts at most, so at most tp{parts}"
        ));
    }
    Ok((0..tp).map(|part| units(deal(parts, tp, part, Extra::First), unit, heads)).collect())
}

/// Who gets one more when `count` does not divide evenly. Heads go to the first ranks and the MLP's columns to the
/// last, so that the rank with more of one has less of the other.
#[derive(Clone, Copy)]
enum Extra {
    First,
    Last,
}

/// The contiguous share of `part` when `count` things are dealt to `parts`.
fn deal(count: usize, parts: usize, part: usize, extra: Extra) -> Range<usize> {
    let (each, over) = (count / parts, count % parts);
    let start = |part: usize| match extra {
        Extra::First => part * each + part.min(over),
        Extra::Last => part * each + (part + over).saturating_sub(parts),
    };
    start(part)..start(part + 1)
}

/// A range of units as a range of elements, the last unit cut to `len`.
fn units(range: Range<usize>, unit: usize, len: usize) -> Range<usize> {
    (range.start * unit).min(len)..(range.end * unit).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::smollm2_like;

    #[test]
    fn splits_read_as_they_print() {
        for text in ["1", "tp2", "pp3", "tp2xpp2"] {
            assert_eq!(text.parse::<Split>().unwrap().to_string(), text);
        }
        assert_eq!("pp2xtp4".parse(), Ok(Split { tp: 4, pp: 2 }));
        for text in ["", "2", "tp0", "tp2x", "tp2xtp2", "tp9xpp9", "pp-1", "é", "tp99999999999999999999"] {
            assert!(text.parse::<Split>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn nine_heads_and_three_groups_on_one_to_four_ranks() {
        let config = smollm2_like();
        let heads = |tp| -> Vec<_> {
            let shards = Shard::all(&config, Split { tp, pp: 1 }, true).unwrap();
            shards.into_iter().map(|s| (s.heads, s.kv_heads)).collect()
        };
        assert_eq!(heads(1), [(0..9, 0..3)]);
        assert_eq!(heads(2), [(0..6, 0..2), (6..9, 2..3)]);
        assert_eq!(heads(3), [(0..3, 0..1), (3..6, 1..2), (6..9, 2..3)]);
        assert_eq!(heads(4), [(0..3, 0..1), (3..5, 1..2), (5..7, 1..3), (7..9, 2..3)]);
    }

    #[test]
    fn every_part_is_held_exactly_once() {
        let config = smollm2_like();
        for tp in 1..=9 {
            for pp in 1..=7 {
                let shards = Shard::all(&config, Split { tp, pp }, true).unwrap();
                for stage in shards.chunks(tp) {
                    let joined = |range: fn(&Shard) -> Range<usize>, end: usize| {
                        let last = stage.iter().map(range).fold(0, |at, range| {
                            assert_eq!(range.start, at);
                            assert!(!range.is_empty());
                            range.end
                        });
                        assert_eq!(last, end);
                    };
                    joined(|s| s.heads.clone(), 9);
                    joined(|s| s.inner.clone(), 1536);
                    joined(|s| s.vocab.clone(), 49152);
                    assert!(stage.iter().all(|s| s.inner.start.is_multiple_of(64)));
                }
                let layers: Vec<usize> = shards.iter().step_by(tp).flat_map(|s| s.layers.clone()).collect();
                assert_eq!(layers, (0..30).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn too_many_ranks_are_told_how_many_work() {
        let config = smollm2_like();
        let error = Shard::all(&config, Split { tp: 10, pp: 1 }, true).unwrap_err().to_string();
        assert!(error.contains("at most tp9"), "{error}");
        let error = Shard::all(&config, Split { tp: 1, pp: 31 }, true).unwrap_err().to_string();
        assert!(error.contains("at most pp30"), "{error}");
    }
}
