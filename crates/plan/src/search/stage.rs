//! What a group of machines takes for a range of layers, shares chosen best.

use crate::{
    Rank, Setting, Workload,
    cost::{self, Memory, Step, Time},
    predict::POWER_OF_OVERHEAD,
};

/// Costs of ranges of layers on one machine or several.
pub(super) struct StageCosts<'a> {
    setting: &'a Setting<'a>,
    /// Time of the layers before each, per machine.
    times: Vec<Vec<Time>>,
    /// Memory of the layers before each.
    memory: Vec<Memory>,
    /// Bytes for layers, per machine.
    room: Vec<f64>,
    tokens: f64,
}

/// What a range of layers takes, in s.
#[derive(Clone, Copy)]
pub(super) struct RangeTime {
    pub(super) time: f64,
    /// The time at full power that takes as much energy.
    pub(super) work: f64,
}

/// Memory that is used again and again.
#[derive(Default)]
struct Scratch {
    /// Time alone, and most share, of each machine.
    limits: Vec<(f64, f64)>,
    shares: Vec<f64>,
}

impl<'a> StageCosts<'a> {
    /// For a step, and groups of `ranks` machines.
    pub(super) fn new(setting: &'a Setting<'a>, workload: &Workload, step: Step, ranks: usize) -> Self {
        let base = cost::base_memory(setting.model, setting.backend, workload.users);
        let nodes = setting.cluster.nodes();
        let times = nodes.iter().map(|node| {
            sums(&cost::layer_times(setting.model, setting.format, &node.machine, setting.backend, step))
        });
        let memory = cost::layer_memory(
            setting.model,
            setting.format,
            setting.backend,
            ranks as f64,
            workload.users,
            workload.context,
        );
        let room = nodes.iter().map(|node| node.machine.usable - base);
        Self {
            setting,
            times: times.collect(),
            memory: sums(&memory),
            room: room.collect(),
            tokens: step.tokens(),
        }
    }

    /// Number of layers.
    pub(super) fn layers(&self) -> usize {
        self.memory.len() - 1
    }

    /// Time of each range of layers on a group; infinite where it does not fit. Ranges are at [`range_index`].
    pub(super) fn table(&self, group: &[usize]) -> Vec<RangeTime> {
        let layers = self.layers();
        let collectives = self.setting.collectives(group, 1.0, self.tokens).unwrap_or(f64::INFINITY);
        let mut table = Vec::with_capacity(layers * (layers + 1) / 2);
        let mut scratch = Scratch::default();
        for from in 0..layers {
            for to in from + 1..=layers {
                let time = self.time(group, from, to, &mut scratch).map(|(shared, fixed)| {
                    let fixed = fixed + collectives * (to - from) as f64;
                    RangeTime { time: shared + fixed, work: shared + POWER_OF_OVERHEAD * fixed }
                });
                table.push(time.unwrap_or(RangeTime { time: f64::INFINITY, work: f64::INFINITY }));
            }
        }
        table
    }

    /// The shared and the fixed time of a range of layers, collectives aside, with the shares that make it the least;
    /// `None` where it does not fit.
    fn time(&self, group: &[usize], from: usize, to: usize, scratch: &mut Scratch) -> Option<(f64, f64)> {
        let Scratch { limits, shares } = scratch;
        let between = |sums: &[Time]| {
            let mut time = sums[to];
            time.memory -= sums[from].memory;
            time.compute -= sums[from].compute;
            time.fixed -= sums[from].fixed;
            time
        };
        let weights = self.memory[to].weights - self.memory[from].weights;
        let cache = self.memory[to].cache - self.memory[from].cache;
        let copied = self.memory[to].copied_cache - self.memory[from].copied_cache;
        if let [node] = group {
            let time = between(&self.times[*node]);
            shares.clear();
            shares.push(1.0);
            return (weights + cache + copied <= self.room[*node]).then(|| (time.shared(), time.fixed));
        }
        let mut fixed: f64 = 0.0;
        if group.iter().any(|node| copied > self.room[*node]) {
            return None;
        }
        limits.clear();
        limits.extend(group.iter().map(|node| {
            let time = between(&self.times[*node]);
            fixed = fixed.max(time.fixed);
            (time.shared(), ((self.room[*node] - copied) / (weights + cache)).clamp(0.0, 1.0))
        }));
        let longest = if_none_is_full(limits).or_else(|| least_longest(limits, shares))?;
        Some((longest, fixed))
    }

    /// The ranks of a group for a range of layers.
    pub(super) fn ranks(&self, group: &[usize], from: usize, to: usize) -> Vec<Rank> {
        let mut scratch = Scratch::default();
        self.time(group, from, to, &mut scratch);
        if group.len() > 1 {
            least_longest(&scratch.limits, &mut scratch.shares);
        }
        group.iter().zip(scratch.shares).map(|(node, share)| Rank { node: *node, share }).collect()
    }

    /// Time of the border from one group to another, in s.
    pub(super) fn hop(&self, from: &[usize], to: &[usize]) -> Option<f64> {
        self.setting.hop(from, to, self.tokens)
    }
}

/// Where the range from `from` to `to` is in a table for `layers` layers.
pub(super) fn range_index(layers: usize, from: usize, to: usize) -> usize {
    from * (2 * layers - from + 1) / 2 + to - from - 1
}

/// What [`least_longest`] gives when there is room for all shares, quickly.
fn if_none_is_full(machines: &[(f64, f64)]) -> Option<f64> {
    let together = 1.0 / machines.iter().map(|(time, _)| 1.0 / time).sum::<f64>();
    machines.iter().all(|(time, most)| together <= most * time).then_some(together)
}

/// The shares of machines that would take `time` alone and have room for `most` of it, such that the one that takes
/// longest takes the least: all take the same time, but for those that are full. `None` when there is not room for all.
///
/// Machines fill up in the order of `most x time`; once those that are full at the common time are set aside, the rest
/// have equal times.
fn least_longest(machines: &[(f64, f64)], shares: &mut Vec<f64>) -> Option<f64> {
    let room: f64 = machines.iter().map(|(_, most)| most).sum();
    if room < 1.0 {
        return None;
    }
    shares.clear();
    shares.resize(machines.len(), f64::NAN);
    let mut left = 1.0;
    loop {
        let open = || machines.iter().zip(shares.iter()).filter(|(_, share)| share.is_nan());
        let speed: f64 = open().map(|((time, _), _)| 1.0 / time).sum();
        let together = left / speed;
        let full = machines
            .iter()
            .zip(shares.iter())
            .position(|((time, most), share)| share.is_nan() && together / time > *most);
        match full {
            Some(full) => {
                shares[full] = machines[full].1;
                left -= machines[full].1;
            }
            None => {
                for ((time, _), share) in machines.iter().zip(shares.iter_mut()) {
                    if share.is_nan() {
                        *share = together / time;
                    }
                }
                break;
            }
        }
        if left <= 0.0 || shares.iter().all(|share| !share.is_nan()) {
            shares.iter_mut().filter(|share| share.is_nan()).for_each(|share| *share = 0.0);
            break;
        }
    }
    let longest = machines.iter().zip(shares.iter()).map(|((time, _), share)| share * time);
    Some(longest.fold(0.0, f64::max))
}

/// Sums of all before each, and of all.
fn sums<T: Copy + Default + std::ops::AddAssign>(items: &[T]) -> Vec<T> {
    let mut sum = T::default();
    let mut sums = vec![sum];
    for item in items {
        sum += *item;
        sums.push(sum);
    }
    sums
}

/// All groups of `ranks` machines that are joined to each other.
pub(super) fn groups(setting: &Setting<'_>, ranks: usize) -> Vec<Vec<usize>> {
    let count = setting.cluster.nodes().len();
    if ranks > 1 && !setting.backend.tensor {
        return Vec::new();
    }
    let mut groups: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..ranks {
        let longer = groups.iter().flat_map(|group| {
            let next = group.last().map_or(0, |last| last + 1);
            (next..count).map(|node| [&group[..], &[node]].concat())
        });
        groups = longer.collect();
    }
    groups.retain(|group| setting.cluster.slowest_link(group).is_some());
    groups
}

/// W that machines draw beyond idling when they compute, and when idle. `None` where it is not known.
pub(super) fn power(setting: &Setting<'_>, nodes: &[usize]) -> Option<(f64, f64)> {
    let mut sum = (0.0, 0.0);
    for node in nodes {
        let machine = &setting.cluster.nodes()[*node].machine;
        let idle = machine.idle_power.unwrap_or(0.0);
        sum.0 += machine.full_power? - idle;
        sum.1 += idle;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_balance_times_and_respect_room() {
        let mut shares = Vec::new();
        assert_eq!(least_longest(&[(1.0, 1.0), (3.0, 1.0)], &mut shares), Some(0.75));
        assert_eq!(shares, [0.75, 0.25]);
        let time = least_longest(&[(1.0, 0.5), (3.0, 1.0)], &mut shares).unwrap();
        assert!((time - 1.5).abs() < 1e-12 && shares == [0.5, 0.5]);
        assert_eq!(least_longest(&[(1.0, 0.5), (3.0, 0.4)], &mut shares), None);
        assert_eq!(least_longest(&[(1.0, 0.5), (3.0, 0.5)], &mut shares), Some(1.5));
    }

    #[test]
    fn ranges_are_numbered_in_order() {
        let mut index = 0;
        for from in 0..7 {
            for to in from + 1..=7 {
                assert_eq!(range_index(7, from, to), index);
                index += 1;
            }
        }
    }
}
