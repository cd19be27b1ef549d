//! All placements, by dynamic programming.
//!
//! The state is (machines used, last group, layers placed). Which of the groups before came in which order matters only
//! through the last one, so the ways into a state are kept if none beats them. Machines that could change places without a
//! difference are used in the order of their numbers.

use super::{
    Candidate, Goal, Second, StageCosts,
    frontier::{self, Way},
    stage::{self, RangeTime, range_index},
};
use crate::{Placement, Setting, Stage, Workload};
use std::{collections::HashMap, ops::RangeInclusive};

/// The ways to have placed 0, 1, 2... layers.
type Cell = Vec<Vec<Way>>;

struct Exact<'a> {
    setting: &'a Setting<'a>,
    goal: Goal,
    second: Second,
    /// Users' groups or chunks that are under way.
    many: f64,
    /// Numbers of stages that are looked for.
    depths: RangeInclusive<usize>,
    /// The worst score that is of interest.
    within: f64,
    /// The least time that the layers from each on can take, in s.
    rest: Vec<f64>,
    /// Machines of a group.
    ranks: usize,
    costs: StageCosts<'a>,
    groups: Vec<Group>,
    /// By the machines used, as bits, and the last group.
    cells: HashMap<(u32, usize), Cell>,
}

struct Group {
    nodes: Vec<usize>,
    bits: u32,
    /// Machines that must be used before, or be in it, since they are alike and have lower numbers.
    after: u32,
    table: Vec<RangeTime>,
    /// W beyond idling.
    power: f64,
}

pub(super) fn search(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Vec<Candidate> {
    let count = setting.cluster.nodes().len();
    let mut found = Vec::new();
    let within = match goal.second(setting) {
        Second::Longest => {
            super::search_along_orders(setting, workload, goal).map(|found| SLOWER * found.score)
        }
        Second::Nothing | Second::Energy => None,
    };
    for ranks in 1..=count {
        for depths in depths(setting, workload, goal, count / ranks) {
            let exact = Exact::new(setting, workload, goal, ranks, depths, within.unwrap_or(f64::INFINITY));
            found.extend(exact.run());
        }
    }
    found
}

/// Where two things count, ways that are slower than this many times a plan that is known are not followed.
const SLOWER: f64 = 1.05;

/// From each layer on, the sum of what every layer takes at least on any group: less than any stages take together, since each
/// stage has one share for all its layers.
fn least_times(groups: &[Group], layers: usize) -> Vec<f64> {
    let mut rest = vec![0.0; layers + 1];
    for layer in (0..layers).rev() {
        let times = groups.iter().map(|group| group.table[range_index(layers, layer, layer + 1)].time);
        rest[layer] = rest[layer + 1] + times.fold(f64::INFINITY, f64::min);
    }
    rest
}

/// Numbers of stages for which a step has the same tokens, and as many steps are under way.
fn depths(setting: &Setting<'_>, workload: &Workload, goal: Goal, most: usize) -> Vec<RangeInclusive<usize>> {
    let mut depths: Vec<RangeInclusive<usize>> = Vec::new();
    for stages in 1..=most {
        let step = |stages| goal.step(setting, workload, stages);
        match depths.last_mut() {
            Some(range) if step(*range.start()) == step(stages) => *range = *range.start()..=stages,
            _ => depths.push(stages..=stages),
        }
    }
    depths
}

impl<'a> Exact<'a> {
    fn new(
        setting: &'a Setting<'a>,
        workload: &Workload,
        goal: Goal,
        ranks: usize,
        depths: RangeInclusive<usize>,
        within: f64,
    ) -> Self {
        let (step, many) = goal.step(setting, workload, *depths.start());
        let costs = StageCosts::new(setting, workload, step, ranks);
        let second = goal.second(setting);
        let group = |nodes: Vec<usize>| {
            let power = if second == Second::Energy { stage::power(setting, &nodes)?.0 } else { 0.0 };
            let bits = bits_of(&nodes);
            Some(Group {
                bits,
                after: alike_before(setting, &nodes) & !bits,
                table: costs.table(&nodes),
                power,
                nodes,
            })
        };
        let groups: Vec<Group> = stage::groups(setting, ranks).into_iter().filter_map(group).collect();
        let rest = least_times(&groups, costs.layers());
        Self {
            setting,
            goal,
            second,
            many,
            depths,
            within,
            rest,
            ranks,
            costs,
            groups,
            cells: HashMap::new(),
        }
    }

    fn run(mut self) -> Vec<Candidate> {
        let layers = self.costs.layers();
        for (index, group) in self.groups.iter().enumerate().filter(|(_, group)| group.after == 0) {
            let mut cell = vec![Vec::new(); layers + 1];
            let start = Way { sum: 0.0, second: 0.0, hop: 0.0, from: (u16::MAX, 0, 0) };
            self.extend(group, &[start], 0, (u16::MAX, 0), &mut cell);
            self.cells.insert((group.bits, index), cell);
        }
        let all = (1_u32 << self.setting.cluster.nodes().len()) - 1;
        let most = (self.depths.end() - 1) * self.ranks;
        for used in (1..=all).filter(|used| used.count_ones() as usize <= most) {
            for index in 0..self.groups.len() {
                self.append(used, index);
            }
        }
        self.candidates()
    }

    /// The ways in which a group comes after all those that use exactly `used`.
    fn append(&mut self, used: u32, index: usize) {
        let group = &self.groups[index];
        if used & group.bits != 0 || group.after & !used != 0 {
            return;
        }
        let layers = self.costs.layers();
        let mut before: Vec<Vec<(Way, (u16, u16))>> = vec![Vec::new(); layers];
        for (last, from) in self.groups.iter().enumerate().filter(|(_, from)| from.bits & used == from.bits) {
            let Some(cell) = self.cells.get(&(used, last)) else { continue };
            let Some(hop) = self.costs.hop(&from.nodes, &group.nodes) else { continue };
            for (placed, ways) in cell.iter().enumerate().take(layers).skip(1) {
                for (i, way) in ways.iter().enumerate() {
                    let way = Way { hop, ..*way };
                    add_before(&mut before[placed], way, (last as u16, i as u16), self.second);
                }
            }
        }
        if before.iter().all(Vec::is_empty) {
            return;
        }
        let key = (used | group.bits, index);
        let mut cell = self.cells.remove(&key).unwrap_or_else(|| vec![Vec::new(); layers + 1]);
        for (placed, ways) in before.iter().enumerate() {
            for (way, (last, i)) in ways {
                self.extend(&self.groups[index], &[*way], placed, (*last, *i), &mut cell);
            }
        }
        self.cells.insert(key, cell);
    }

    /// Adds the ways that go on from `ways` with all ranges of layers that begin at `placed`.
    fn extend(&self, group: &Group, ways: &[Way], placed: usize, (last, i): (u16, u16), cell: &mut Cell) {
        let layers = self.costs.layers();
        let start = range_index(layers, placed, placed + 1);
        let ranges = group.table[start..].iter().zip(&self.rest[placed + 1..]);
        for ((range, rest), ways_there) in ranges.zip(&mut cell[placed + 1..]) {
            let time = range.time;
            if time == f64::INFINITY {
                continue;
            }
            for way in ways {
                let second = match self.second {
                    Second::Nothing => 0.0,
                    Second::Longest => way.second.max(way.hop + time),
                    Second::Energy => way.second + range.work * group.power,
                };
                let sum = way.sum + way.hop + time;
                let second = self.as_far_as_it_counts(sum + rest, second);
                if self.score(sum + rest, second) > self.within {
                    continue;
                }
                let new = Way { sum, second, hop: 0.0, from: (last, placed as u16, i) };
                match (self.second, ways_there.first_mut()) {
                    (Second::Nothing, Some(best)) => {
                        if new.sum < best.sum {
                            *best = new;
                        }
                    }
                    _ => frontier::add(ways_there, new),
                }
            }
        }
    }

    /// The longest stage is at least the mean of all, and matters to a goal that takes the greater of two only once it is the
    /// greater. `sum` is the least that all stages will take.
    fn as_far_as_it_counts(&self, sum: f64, second: f64) -> f64 {
        match (self.goal, self.second) {
            (Goal::Throughput, Second::Longest) => second.max(sum / self.many),
            (_, Second::Longest) => second.max(sum / *self.depths.end() as f64),
            _ => second,
        }
    }

    /// The score if there were no more layers, machines' idling aside.
    fn score(&self, sum: f64, second: f64) -> f64 {
        self.goal.score(self.setting, sum, second, self.many, 0, 0.0)
    }

    /// The best for each set of machines.
    fn candidates(&self) -> Vec<Candidate> {
        let layers = self.costs.layers();
        let mut best: HashMap<u32, (f64, usize, usize)> = HashMap::new();
        for ((used, last), cell) in &self.cells {
            let machines = used.count_ones() as usize;
            if !self.depths.contains(&(machines / self.ranks)) {
                continue;
            }
            let nodes: Vec<usize> = (0..32).filter(|node| used >> node & 1 == 1).collect();
            let idle = match self.goal {
                Goal::Power => stage::power(self.setting, &nodes).map_or(f64::INFINITY, |(_, idle)| idle),
                _ => 0.0,
            };
            for (i, way) in cell[layers].iter().enumerate() {
                let score = self.goal.score(self.setting, way.sum, way.second, self.many, machines, idle);
                let entry = best.entry(*used).or_insert((f64::INFINITY, 0, 0));
                // Ties by the last group, so that the answer does not depend on the order of a hash table.
                if (score, *last, i) < *entry {
                    *entry = (score, *last, i);
                }
            }
        }
        let candidate =
            |(used, (score, last, i))| Candidate { placement: self.placement(used, last, i), score };
        best.into_iter().filter(|(_, (score, ..))| score.is_finite()).map(candidate).collect()
    }

    /// Walks back from the last group.
    fn placement(&self, mut used: u32, mut last: usize, mut i: usize) -> Placement {
        let mut to = self.costs.layers();
        let mut stages = Vec::new();
        loop {
            let group = &self.groups[last];
            let (before, from, index) = self.cells[&(used, last)][to][i].from;
            let from = usize::from(from);
            stages.push(Stage { layers: from..to, ranks: self.costs.ranks(&group.nodes, from, to) });
            if before == u16::MAX {
                break;
            }
            used &= !group.bits;
            (last, to, i) = (usize::from(before), from, usize::from(index));
        }
        stages.reverse();
        Placement { stages }
    }
}

fn add_before(ways: &mut Vec<(Way, (u16, u16))>, new: Way, from: (u16, u16), second: Second) {
    let beats = |a: &Way, b: &Way| {
        let sums = a.sum + a.hop <= b.sum + b.hop;
        match second {
            Second::Nothing => sums,
            Second::Longest => sums && a.second <= b.second && a.hop <= b.hop,
            Second::Energy => sums && a.second <= b.second,
        }
    };
    if ways.iter().any(|(way, _)| beats(way, &new)) {
        return;
    }
    ways.retain(|(way, _)| !beats(&new, way));
    ways.push((new, from));
}

fn bits_of(nodes: &[usize]) -> u32 {
    nodes.iter().fold(0, |bits, node| bits | 1 << node)
}

/// Machines like one of these with lower numbers.
fn alike_before(setting: &Setting<'_>, nodes: &[usize]) -> u32 {
    let alike = |node: &usize| {
        let node = *node;
        (0..node).filter(move |other| setting.cluster.are_alike(*other, node))
    };
    bits_of(&nodes.iter().flat_map(alike).collect::<Vec<_>>())
}

/// All placements that begin with a group, one by one: what the dynamic program is checked against.
pub(super) fn all_from(
    setting: &Setting<'_>,
    workload: &Workload,
    goal: Goal,
    ranks: usize,
    first: &[usize],
) -> Vec<Candidate> {
    let layers = setting.model.layers.len();
    let groups = stage::groups(setting, ranks);
    let mut orders = vec![vec![first.to_vec()]];
    let mut found = Vec::new();
    while let Some(order) = orders.pop() {
        for cut in cuts(layers, order.len()) {
            let (step, _) = goal.step(setting, workload, order.len());
            let costs = StageCosts::new(setting, workload, step, ranks);
            let stages = order.iter().zip(cut.windows(2)).map(|(group, ends)| Stage {
                layers: ends[0]..ends[1],
                ranks: costs.ranks(group, ends[0], ends[1]),
            });
            let placement = Placement { stages: stages.collect() };
            let whole = placement.stages.iter().all(|stage| stage.ranks.len() == ranks);
            let score = super::score(setting, workload, goal, &placement).filter(|_| whole);
            found.extend(score.map(|score| Candidate { placement, score }));
        }
        let is_free = |group: &&Vec<usize>| !group.iter().any(|node| order.concat().contains(node));
        orders.extend(
            groups.iter().filter(is_free).map(|group| [&order[..], std::slice::from_ref(group)].concat()),
        );
    }
    found
}

/// All ways to cut layers into ranges, as their ends with 0 before them.
fn cuts(layers: usize, ranges: usize) -> Vec<Vec<usize>> {
    let mut cuts = vec![vec![0]];
    for range in 1..=ranges {
        let longer = cuts.iter().flat_map(|cut| {
            let from = cut[cut.len() - 1] + 1;
            let ends = if range == ranges { layers..layers + 1 } else { from..layers };
            ends.filter(move |end| *end >= from).map(|end| [&cut[..], &[end]].concat())
        });
        cuts = longer.collect();
    }
    cuts
}
