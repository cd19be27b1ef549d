//! What a placement of a model on machines will do: time per token and per prompt by cause, memory, power.

use crate::{
    Backend, Cluster, Format, Model,
    cost::{self, Step, Time},
};
use serde::Serialize;
use std::ops::Range;

/// Which layers are where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    /// In the order of the layers; each layer is in exactly one.
    pub stages: Vec<Stage>,
}

/// Layers, and the ranks that share each of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// Indices of layers.
    pub layers: Range<usize>,
    /// Never empty; shares add up to 1.
    pub ranks: Vec<Rank>,
}

/// A machine's part in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rank {
    /// Index of the machine in the cluster.
    pub node: usize,
    /// Share of each layer.
    pub share: f64,
}

/// What is asked of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Tokens per sequence that there must be memory for.
    pub context: f64,
    /// Sequences at once.
    pub users: f64,
    /// Tokens in the cache while speed is predicted.
    pub depth: f64,
    /// Tokens of the prompt while speed is predicted.
    pub prompt: f64,
}

/// What everything is predicted for.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The model.
    pub model: &'a Model,
    /// How it is held.
    pub format: &'a Format,
    /// The machines.
    pub cluster: &'a Cluster,
    /// The program that runs it.
    pub backend: &'a Backend,
}

/// Where time goes, in s. Only what somebody waits for counts: of ranks that work side by side, the slowest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breakdown {
    /// Each stage's own.
    pub stages: Vec<StageTime>,
    /// Borders between stages, one less than stages.
    pub hops: Vec<f64>,
}

/// Where a stage's time goes, in s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    /// Reading weights and cache.
    pub memory: f64,
    /// Multiplying.
    pub compute: f64,
    /// The backend's own.
    pub overhead: f64,
    /// Adding up the ranks' parts.
    pub collectives: f64,
    /// The rank that is slowest.
    pub slowest: usize,
}

impl StageTime {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.memory + self.compute + self.overhead + self.collectives
    }

    /// The time at full power that takes as much energy.
    pub fn work(&self) -> f64 {
        self.memory + self.compute + POWER_OF_OVERHEAD * (self.overhead + self.collectives)
    }
}

/// Power while a backend starts kernels or waits for others, as a share of full power: one M3 Ultra draws 243 to 290 W when
/// it mostly reads memory (`geerling-m3-ultra-80c-*`), four of them under 500 W together at Kimi K2, where they mostly do
/// not (data/README.md, Apple's demonstration).
pub(crate) const POWER_OF_OVERHEAD: f64 = 0.3;

impl Breakdown {
    /// One step through all stages.
    pub fn total(&self) -> f64 {
        self.stages.iter().map(StageTime::total).sum::<f64>() + self.hops.iter().sum::<f64>()
    }

    /// The stage that takes longest, the border before it included: a stage is busy while it receives.
    pub fn longest(&self) -> f64 {
        self.with_hops().fold(0.0, f64::max)
    }

    /// Each stage's time, the border before it included.
    fn with_hops(&self) -> impl Iterator<Item = f64> {
        let hops = std::iter::once(0.0).chain(self.hops.iter().copied());
        self.stages.iter().zip(hops).map(|(stage, hop)| stage.total() + hop)
    }
}

/// Time in which all of some steps that are under way at once are done and the next ones can begin: no less than the longest
/// takes, and no less than all of them take in any stage.
fn period(steps: &[(f64, Breakdown)]) -> f64 {
    let pass = steps.iter().map(|(_, step)| step.total()).fold(0.0, f64::max);
    let stages = steps.first().map_or(0, |(_, step)| step.stages.len());
    let mut busy = vec![0.0; stages];
    for (many, step) in steps {
        busy.iter_mut().zip(step.with_hops()).for_each(|(busy, time)| *busy += many * time);
    }
    busy.into_iter().fold(pass, f64::max)
}

/// Number of collectives in a layer: after attention and after the MLP.
pub(crate) const COLLECTIVES_PER_LAYER: usize = 2;

impl Setting<'_> {
    /// A step's time by cause. `None` when machines that must talk have no link.
    pub fn step(&self, placement: &Placement, step: Step) -> Option<Breakdown> {
        let stages = placement.stages.iter().map(|stage| self.stage(stage, step)).collect::<Option<_>>()?;
        let borders = placement.stages.iter().zip(placement.stages.iter().skip(1));
        let hops = borders.map(|(from, to)| self.hop(&from.nodes(), &to.nodes(), step.tokens()));
        Some(Breakdown { stages, hops: hops.collect::<Option<_>>()? })
    }

    fn stage(&self, stage: &Stage, step: Step) -> Option<StageTime> {
        let collectives = self.collectives(&stage.nodes(), stage.layers.len() as f64, step.tokens())?;
        let times = stage.ranks.iter().map(|rank| {
            let machine = &self.cluster.nodes()[rank.node].machine;
            let layers = cost::layer_times(self.model, self.format, machine, self.backend, step);
            let mut sum = Time::default();
            layers[stage.layers.clone()].iter().for_each(|time| sum += *time);
            (rank, sum)
        });
        let slowest =
            times.max_by(|(a, x), (b, y)| (a.share * x.shared()).total_cmp(&(b.share * y.shared())))?;
        let (rank, time) = slowest;
        Some(StageTime {
            memory: rank.share * time.memory,
            compute: rank.share * time.compute,
            overhead: time.fixed,
            collectives,
            slowest: rank.node,
        })
    }

    /// Time of the collectives of so many layers among some machines.
    pub(crate) fn collectives(&self, nodes: &[usize], layers: f64, tokens: f64) -> Option<f64> {
        if nodes.len() < 2 {
            return Some(0.0);
        }
        Some(COLLECTIVES_PER_LAYER as f64 * layers * self.collective(nodes, tokens)?)
    }

    /// Time of one collective among some machines.
    pub(crate) fn collective(&self, nodes: &[usize], tokens: f64) -> Option<f64> {
        let link = self.cluster.slowest_link(nodes)?;
        let bytes = tokens * self.model.hidden * self.backend.sum_bytes;
        Some(link.all_sum(nodes.len() as f64, bytes) + self.backend.collective)
    }

    /// Time of a border between stages.
    pub(crate) fn hop(&self, from: &[usize], to: &[usize], tokens: f64) -> Option<f64> {
        let bytes = tokens * self.model.hidden * self.backend.hop_bytes;
        Some(self.cluster.best_link(from, to, bytes)?.send(bytes) + self.backend.hop)
    }

    /// Users whose steps are together, when stages work on different users' steps at once.
    pub(crate) fn users_per_step(&self, users: f64, stages: usize) -> (f64, f64) {
        let under_way = if self.backend.pipelines { users.min(stages as f64) } else { 1.0 };
        ((users / under_way).ceil(), under_way)
    }

    /// Users of a group whose steps are together, and how many groups have so many: as even as can be, the larger first.
    pub(crate) fn groups(&self, users: f64, stages: usize) -> Vec<(f64, f64)> {
        let (_, under_way) = self.users_per_step(users, stages);
        let fewer = (users / under_way).floor();
        let larger = users - fewer * under_way;
        let groups = [(fewer + 1.0, larger), (fewer, under_way - larger)];
        groups.into_iter().filter(|(_, groups)| *groups > 0.0).collect()
    }

    /// The steps in which each user gets a token: how many are alike, and the time of each. The longest is first.
    fn decode_steps(&self, placement: &Placement, users: f64, depth: f64) -> Option<Vec<(f64, Breakdown)>> {
        let groups = self.groups(users, placement.stages.len()).into_iter();
        let steps = groups.map(|(users, groups)| {
            Some((groups, self.step(placement, Step::Decode { users, context: depth })?))
        });
        steps.collect()
    }

    /// Time in which each user gets a token, in s.
    pub fn token_time(&self, placement: &Placement, users: f64, depth: f64) -> Option<f64> {
        Some(period(&self.decode_steps(placement, users, depth)?))
    }

    /// Time for `tokens` tokens of a prompt, after others that are in the cache already, until the first new token, in s.
    ///
    /// When several chunks are under way, all of them go through the stage that holds up the others; the first chunk, which
    /// looks back at least, has come there through the stages before, and the last, which looks back at most, goes on through
    /// those after.
    ///
    /// `None` when machines that must talk have no link, or a machine's rate is not known.
    pub fn prompt_time(&self, placement: &Placement, tokens: f64, after: f64) -> Option<f64> {
        let is_known = |rank: &Rank| self.cluster.nodes()[rank.node].machine.rate > 0.0;
        if !placement.stages.iter().flat_map(|stage| &stage.ranks).all(is_known) {
            return None;
        }
        let (size, chunks) = self.chunk_size(tokens);
        let chunk = |i: f64| self.step(placement, Step::Prefill { tokens: size, context: after + i * size });
        let middle = chunk((chunks - 1.0) / 2.0)?;
        if !self.backend.pipelines {
            return Some(chunks * middle.total());
        }
        let (first, last) = (chunk(0.0)?, chunk(chunks - 1.0)?);
        let (first, last): (Vec<f64>, Vec<f64>) = (first.with_hops().collect(), last.with_hops().collect());
        let held_up_by = |(stage, time): (usize, f64)| {
            let (before, after) = (&first[..stage], &last[stage + 1..]);
            before.iter().sum::<f64>() + chunks * time + after.iter().sum::<f64>()
        };
        Some(middle.with_hops().enumerate().map(held_up_by).fold(0.0, f64::max))
    }

    /// A prompt's middle chunk, and how many there are. Chunks differ only in what they look back at, so that the middle one
    /// is the mean of all.
    pub(crate) fn chunks(&self, tokens: f64, after: f64) -> (Step, f64) {
        let (size, chunks) = self.chunk_size(tokens);
        (Step::Prefill { tokens: size, context: after + (tokens - size) / 2.0 }, chunks)
    }

    /// Tokens of each chunk of a prompt, all alike, and how many there are.
    pub(crate) fn chunk_size(&self, tokens: f64) -> (f64, f64) {
        let chunk = self.backend.chunk.min(tokens).max(1.0);
        let chunks = (tokens / chunk).ceil().max(1.0);
        (tokens / chunks, chunks)
    }

    /// What each machine of a placement holds, in the order of its ranks.
    pub fn memory(&self, placement: &Placement, workload: &Workload) -> Vec<NodeMemory> {
        let base = cost::base_memory(self.model, self.backend, workload.users);
        let of_stage = |stage: &Stage| {
            let ranks = stage.ranks.len() as f64;
            let layers = cost::layer_memory(
                self.model,
                self.format,
                self.backend,
                ranks,
                workload.users,
                workload.context,
            );
            let mut sum = cost::Memory::default();
            layers[stage.layers.clone()].iter().for_each(|layer| sum += *layer);
            let of_rank = move |rank: &Rank| NodeMemory {
                node: rank.node,
                weights: rank.share * sum.weights,
                cache: rank.share * sum.cache + sum.copied_cache,
                base,
                usable: self.cluster.nodes()[rank.node].machine.usable,
            };
            stage.ranks.iter().map(of_rank).collect::<Vec<_>>()
        };
        placement.stages.iter().flat_map(of_stage).collect()
    }

    /// Mean power while decoding, in W: what machines draw when idle, and more for their share of the time that they work
    /// ([`StageTime::work`]). `None` where a machine's power is not known.
    pub fn power(&self, placement: &Placement, users: f64, depth: f64) -> Option<f64> {
        let steps = self.decode_steps(placement, users, depth)?;
        let period = period(&steps);
        let mut power = 0.0;
        for (i, stage) in placement.stages.iter().enumerate() {
            let work: f64 = steps.iter().map(|(many, step)| many * step.stages[i].work()).sum();
            let busy = (work / period).min(1.0);
            for rank in &stage.ranks {
                let machine = &self.cluster.nodes()[rank.node].machine;
                let full = machine.full_power?;
                let idle = machine.idle_power.unwrap_or(0.0);
                power += idle + busy * (full - idle);
            }
        }
        Some(power)
    }
}

/// What a machine holds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeMemory {
    /// Index of the machine in the cluster.
    pub node: usize,
    /// Weights.
    pub weights: f64,
    /// Cache for all users' whole contexts.
    pub cache: f64,
    /// Program and buffers.
    pub base: f64,
    /// What a model may take there.
    pub usable: f64,
}

impl NodeMemory {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.weights + self.cache + self.base
    }
}

impl Stage {
    /// Indices of its machines.
    pub fn nodes(&self) -> Vec<usize> {
        self.ranks.iter().map(|rank| rank.node).collect()
    }
}

impl Placement {
    /// All layers on one machine.
    pub fn single(node: usize, layers: usize) -> Self {
        Self { stages: vec![Stage { layers: 0..layers, ranks: vec![Rank { node, share: 1.0 }] }] }
    }

    /// All layers shared alike by some machines.
    pub fn tensor(nodes: &[usize], layers: usize) -> Self {
        let share = 1.0 / nodes.len() as f64;
        let ranks = nodes.iter().map(|node| Rank { node: *node, share }).collect();
        Self { stages: vec![Stage { layers: 0..layers, ranks }] }
    }

    /// Ranges of layers as even as can be, one per machine.
    pub fn pipeline(nodes: &[usize], layers: usize) -> Self {
        let count = nodes.len();
        let border = |i: usize| i * layers / count;
        let stage = |(i, node): (usize, &usize)| Stage {
            layers: border(i)..border(i + 1),
            ranks: vec![Rank { node: *node, share: 1.0 }],
        };
        Self { stages: nodes.iter().enumerate().map(stage).collect() }
    }

    /// A placement on a part of a cluster ([`Cluster::part`]) in the numbers of the whole.
    pub(crate) fn renumber(&mut self, part: &[usize]) {
        let ranks = self.stages.iter_mut().flat_map(|stage| &mut stage.ranks);
        ranks.for_each(|rank| rank.node = part[rank.node]);
    }

    /// Number of machines.
    pub fn ranks(&self) -> usize {
        self.stages.iter().map(|stage| stage.ranks.len()).sum()
    }
}
