//! Good placements on more machines than can be compared exhaustively.
//!
//! Orders of machines (fastest first, roomiest first, each kind alone) are cut into groups, and for each number of groups
//! from the front the layers are placed exactly. The eight fastest and the eight roomiest are searched exhaustively, too.
//! `tests/search.rs` says how far from the best this is where the best is known.

use super::{Candidate, EXACT, Goal, Second, StageCosts, exact, stage, stage::range_index};
use crate::{Placement, Setting, Stage, Workload};

/// Ranks per stage that are tried: those that models can usually be split by.
const RANKS: [usize; 6] = [1, 2, 3, 4, 6, 8];

/// One way to have placed some layers on the first groups.
#[derive(Clone, Copy)]
struct Way {
    sum: f64,
    second: f64,
    from: usize,
}

pub(super) fn search(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Vec<Candidate> {
    let mut found = search_along_orders(setting, workload, goal);
    for order in orders(setting).iter().take(2) {
        found.extend(of_eight(setting, workload, goal, order));
    }
    found
}

pub(super) fn search_along_orders(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Vec<Candidate> {
    let mut found = Vec::new();
    for order in orders(setting) {
        for ranks in RANKS {
            found.extend(along(setting, workload, goal, &groups_along(setting, &order, ranks), ranks));
        }
    }
    found
}

/// Fastest first, roomiest first, then each kind alone.
fn orders(setting: &Setting<'_>) -> Vec<Vec<usize>> {
    let nodes = setting.cluster.nodes();
    let sorted = |key: &dyn Fn(usize) -> f64| {
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by(|a, b| key(*b).total_cmp(&key(*a)));
        order
    };
    let mut orders =
        vec![sorted(&|node| nodes[node].machine.bandwidth), sorted(&|node| nodes[node].machine.usable)];
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for node in 0..nodes.len() {
        let same = |kind: &&mut Vec<usize>| nodes[kind[0]].machine.bandwidth == nodes[node].machine.bandwidth;
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.push(node),
            None => kinds.push(vec![node]),
        }
    }
    if kinds.len() > 1 {
        orders.append(&mut kinds);
    }
    orders
}

/// All placements on the first eight.
fn of_eight(setting: &Setting<'_>, workload: &Workload, goal: Goal, order: &[usize]) -> Vec<Candidate> {
    let eight = &order[..order.len().min(EXACT)];
    let cluster = setting.cluster.part(eight);
    let mut found = exact::search(&Setting { cluster: &cluster, ..*setting }, workload, goal);
    found.iter_mut().for_each(|candidate| candidate.placement.renumber(eight));
    found
}

/// Groups of machines: each begins with the next free one, and takes those to which its links are best, then the next.
fn groups_along(setting: &Setting<'_>, order: &[usize], ranks: usize) -> Vec<Vec<usize>> {
    if ranks > 1 && !setting.backend.tensor {
        return Vec::new();
    }
    let mut free = order.to_vec();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    while free.len() >= ranks {
        let first = free.remove(0);
        let near = |node: usize| {
            setting.cluster.link(first, node).map_or(f64::INFINITY, |link| link.send(setting.model.hidden))
        };
        let mut others: Vec<usize> = (0..free.len()).collect();
        others.sort_by(|a, b| near(free[*a]).total_cmp(&near(free[*b])).then(a.cmp(b)));
        others.truncate(ranks - 1);
        others.sort_unstable();
        let mut group = vec![first];
        others.iter().rev().for_each(|i| group.push(free.remove(*i)));
        if setting.cluster.slowest_link(&group).is_some() {
            groups.push(group);
        }
    }
    groups
}

/// The best cut of the layers for each number of groups from the front.
fn along(
    setting: &Setting<'_>,
    workload: &Workload,
    goal: Goal,
    groups: &[Vec<usize>],
    ranks: usize,
) -> Vec<Candidate> {
    let by_stages = goal == Goal::Throughput && setting.backend.pipelines;
    if !by_stages {
        return along_with(setting, workload, goal, groups, ranks, None);
    }
    // Few numbers of users at once are possible, so few numbers of stages differ.
    let mut found = Vec::new();
    let together = |stages| setting.users_per_step(workload.users, stages);
    for stages in 1..=groups.len() {
        if stages == 1 || together(stages) != together(stages - 1) {
            found.extend(along_with(setting, workload, goal, groups, ranks, Some(stages)));
        }
    }
    found
}

fn along_with(
    setting: &Setting<'_>,
    workload: &Workload,
    goal: Goal,
    groups: &[Vec<usize>],
    ranks: usize,
    stages: Option<usize>,
) -> Vec<Candidate> {
    let (step, many) = goal.step(setting, workload, stages.unwrap_or(1));
    let costs = StageCosts::new(setting, workload, step, ranks);
    let layers = costs.layers();
    let second = goal.second(setting);
    let mut ways: Vec<Vec<Option<Way>>> = Vec::new();
    let mut found = Vec::new();
    for (depth, group) in groups.iter().enumerate().take(layers) {
        let table = costs.table(group);
        let power = if second == Second::Energy { stage::power(setting, group) } else { Some((0.0, 0.0)) };
        let Some((power, _)) = power else { break };
        let hop = match depth {
            0 => Some(0.0),
            _ => costs.hop(&groups[depth - 1], group),
        };
        let Some(hop) = hop else { break };
        let mut here: Vec<Option<Way>> = vec![None; layers + 1];
        for from in 0..layers {
            let way = match ways.last() {
                None => (from == 0).then_some(Way { sum: 0.0, second: 0.0, from: 0 }),
                Some(before) => before[from],
            };
            let Some(way) = way else { continue };
            for (to, best) in here.iter_mut().enumerate().skip(from + 1) {
                let range = table[range_index(layers, from, to)];
                let time = range.time;
                let new = Way {
                    sum: way.sum + hop + time,
                    second: match second {
                        Second::Nothing => 0.0,
                        Second::Longest => way.second.max(hop + time),
                        Second::Energy => way.second + range.work * power,
                    },
                    from,
                };
                let value = |way: &Way| goal.score(setting, way.sum, way.second, many, 0, 0.0);
                if time.is_finite() && best.as_ref().is_none_or(|best| value(&new) < value(best)) {
                    *best = Some(new);
                }
            }
        }
        ways.push(here);
        if ways[depth][layers].is_some() {
            let placement = placement(&costs, groups, &ways);
            let score = super::score(setting, workload, goal, &placement);
            found.extend(score.map(|score| Candidate { placement, score }));
        }
    }
    found
}

fn placement(costs: &StageCosts<'_>, groups: &[Vec<usize>], ways: &[Vec<Option<Way>>]) -> Placement {
    let mut to = costs.layers();
    let mut stages = Vec::new();
    for (group, ways) in groups[..ways.len()].iter().zip(ways).rev() {
        let from = ways[to].map_or(0, |way| way.from);
        stages.push(Stage { layers: from..to, ranks: costs.ranks(group, from, to) });
        to = from;
    }
    stages.reverse();
    Placement { stages }
}
