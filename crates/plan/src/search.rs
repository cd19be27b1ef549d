//! The best placements of a model on a cluster, for a goal.
//!
//! A placement is a number of ranks per stage, the same for all stages, an order of disjoint groups of so many machines,
//! and a cut of the layers into as many ranges. Up to [`EXACT`] machines all of them are compared (`exact`): subsets,
//! orders and cuts by dynamic programming over (machines used, last group, layers placed), shares within a group by the
//! closed form in `stage`. Beyond that, `many` tries good orders.
//!
//! Where several chunks or groups of users are under way at once, plans are compared as if all were alike: chunks like the
//! middle one, groups like the largest. [`Setting::prompt_time`] and [`Setting::token_time`] tell them apart.

mod exact;
mod frontier;
mod many;
mod stage;

use crate::{Placement, Setting, Workload, cost::Step};
use serde::Serialize;
use stage::StageCosts;

/// Most machines for which all placements are compared.
pub const EXACT: usize = 8;

/// What the best placement is best at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Least time per token for one user.
    Decode,
    /// Least time from a prompt to its first new token.
    FirstToken,
    /// Most tokens per second of all users together.
    Throughput,
    /// Least energy per token.
    Power,
    /// Fewest machines, and least time per token with those.
    Machines,
}

/// A placement, and what the goal is measured in: less is better.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Where the layers are.
    pub placement: Placement,
    /// Seconds, or joules for [`Goal::Power`], per token or prompt; for [`Goal::Machines`], machines first.
    pub score: f64,
}

/// For fewest machines: one more machine is worse than any time per token.
const PER_MACHINE: f64 = 1e6;

/// The best placement for each number of ranks per stage and each set of machines that matters, best first, at most
/// `most`. Empty when the model fits nowhere.
pub fn search(setting: &Setting<'_>, workload: &Workload, goal: Goal, most: usize) -> Vec<Candidate> {
    let mut found = if setting.cluster.nodes().len() <= EXACT {
        exact::search(setting, workload, goal)
    } else {
        many::search(setting, workload, goal)
    };
    found.sort_by(|a, b| a.score.total_cmp(&b.score));
    found.dedup_by(|a, b| a.placement == b.placement);
    found.truncate(most);
    found
}

/// What is found without comparing all placements, however few machines there are: for measuring how far that is from the
/// best.
pub fn search_along_orders(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Option<Candidate> {
    let found = many::search_along_orders(setting, workload, goal);
    found.into_iter().min_by(|a, b| a.score.total_cmp(&b.score))
}

/// What a plain enumeration of all placements finds, cuts of the layers included: for checking the search on small cases.
/// Grows as the factorial of the machines.
pub fn brute_force(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Option<Candidate> {
    let count = setting.cluster.nodes().len();
    let found = (1..=count).flat_map(|ranks| {
        stage::groups(setting, ranks)
            .into_iter()
            .flat_map(move |first| exact::all_from(setting, workload, goal, ranks, &first))
    });
    found.min_by(|a, b| a.score.total_cmp(&b.score))
}

/// How a goal adds up stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    /// Only the sum of all stages' times counts.
    Nothing,
    /// The longest stage counts, too.
    Longest,
    /// Something else that adds up: energy beyond idling.
    Energy,
}

impl Goal {
    fn second(self, setting: &Setting<'_>) -> Second {
        match self {
            Self::Decode | Self::Machines => Second::Nothing,
            Self::FirstToken | Self::Throughput if setting.backend.pipelines => Second::Longest,
            Self::FirstToken | Self::Throughput => Second::Nothing,
            Self::Power => Second::Energy,
        }
    }

    /// The step whose time counts, with so many stages; the number of users' groups or chunks that are under way.
    fn step(self, setting: &Setting<'_>, workload: &Workload, stages: usize) -> (Step, f64) {
        match self {
            Self::FirstToken => {
                let (step, chunks) = setting.chunks(workload.prompt, 0.0);
                (step, chunks)
            }
            Self::Throughput => {
                let (together, under_way) = setting.users_per_step(workload.users, stages);
                (Step::Decode { users: together, context: workload.depth }, under_way)
            }
            Self::Decode | Self::Power | Self::Machines => {
                (Step::Decode { users: 1.0, context: workload.depth }, 1.0)
            }
        }
    }

    /// The score of stages that take `sum` together, with `second` as [`Goal::second`] says, `many` groups or chunks, on
    /// machines that draw `idle` W when idle.
    fn score(
        self,
        setting: &Setting<'_>,
        sum: f64,
        second: f64,
        many: f64,
        machines: usize,
        idle: f64,
    ) -> f64 {
        match self {
            Self::Decode => sum,
            Self::Machines => machines as f64 * PER_MACHINE + sum,
            Self::Power => second + idle * sum,
            Self::FirstToken if setting.backend.pipelines => sum + (many - 1.0) * second,
            Self::FirstToken => many * sum,
            Self::Throughput => sum.max(many * second),
        }
    }
}

/// The score of any placement, by the same formulas; `None` where it does not fit or machines are not joined.
pub fn score(setting: &Setting<'_>, workload: &Workload, goal: Goal, placement: &Placement) -> Option<f64> {
    if setting.memory(placement, workload).iter().any(|node| node.total() > node.usable * (1.0 + 1e-9)) {
        return None;
    }
    let (step, many) = goal.step(setting, workload, placement.stages.len());
    let breakdown = setting.step(placement, step)?;
    let nodes = placement.stages.iter().flat_map(crate::Stage::nodes);
    let second = match goal.second(setting) {
        Second::Nothing => 0.0,
        Second::Longest => breakdown.longest(),
        Second::Energy => {
            let stages = placement.stages.iter().zip(&breakdown.stages);
            let energy = |(stage, time): (&crate::Stage, &crate::predict::StageTime)| {
                Some(stage::power(setting, &stage.nodes())?.0 * time.work())
            };
            stages.map(energy).sum::<Option<f64>>()?
        }
    };
    let idle = match goal {
        Goal::Power => stage::power(setting, &nodes.collect::<Vec<_>>())?.1,
        _ => 0.0,
    };
    Some(goal.score(setting, breakdown.total(), second, many, placement.ranks(), idle))
}
