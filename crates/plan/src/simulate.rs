//! A prompt or some tokens, event by event on a virtual clock: what the formulas of [`predict`](crate::predict) are checked
//! against.
//!
//! Each rank does one thing at a time. Items, which are chunks of a prompt or steps of a group of users, wait for a stage in
//! the order in which they come. A stage receives an item, and is busy while it does; its ranks work on a layer and meet twice
//! in it, where the last to come begins the collective; then the item waits for the next stage. Sending does not hold up the
//! stage that sends, and what a token's way back to the first stage takes is in the backend's time per border.

use crate::{
    Placement, Rank, Setting, Stage,
    cost::{self, Step},
    predict::COLLECTIVES_PER_LAYER,
};
use std::{
    cmp::Ordering,
    collections::{BinaryHeap, VecDeque},
    iter::{repeat_n, repeat_with},
};

/// What happened when, on a virtual clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// In the order of their beginnings.
    pub spans: Vec<Span>,
    /// When the last thing ended, in s.
    pub end: f64,
    /// When each item left the last stage, in s: the chunks of a prompt, or the first token of each group of users, the second
    /// of each, and so on.
    pub done: Vec<f64>,
}

/// One thing that a machine did without a break.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Index of the stage.
    pub stage: usize,
    /// Index of the machine in the cluster; of a collective, the one that came last, of a hop, the first that receives.
    pub node: usize,
    /// What it did.
    pub what: What,
    /// In s.
    pub start: f64,
    /// In s.
    pub end: f64,
}

/// What a machine did; items are numbered as in [`Timeline::done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Read, multiplied, started kernels: for a part of a layer where ranks share it, else for all layers of the stage.
    Compute {
        /// Of the prompt or of the users.
        item: usize,
        /// The layer, or the first of the stage's.
        layer: usize,
    },
    /// Added up the ranks' parts.
    Collective {
        /// Of the prompt or of the users.
        item: usize,
        /// The layer.
        layer: usize,
    },
    /// Received from the stage before.
    Hop {
        /// Of the prompt or of the users.
        item: usize,
    },
}

impl Setting<'_> {
    /// A prompt of `tokens` tokens after `after` others, chunk by chunk. `None` when machines that must talk have no link.
    pub fn simulate_prompt(&self, placement: &Placement, tokens: f64, after: f64) -> Option<Timeline> {
        let (size, chunks) = self.chunk_size(tokens);
        let chunk = |i: usize| Step::Prefill { tokens: size, context: after + i as f64 * size };
        let steps: Vec<Step> = (0..chunks as usize).map(chunk).collect();
        let under_way = if self.backend.pipelines { steps.len() } else { 1 };
        Simulation::new(self, placement, steps, under_way).run()
    }

    /// `tokens` tokens for each of `users` users who have `depth` tokens each before. `None` when machines that must talk
    /// have no link.
    pub fn simulate_decode(
        &self,
        placement: &Placement,
        users: f64,
        depth: f64,
        tokens: usize,
    ) -> Option<Timeline> {
        let groups = self.groups(users, placement.stages.len()).into_iter();
        let groups: Vec<f64> =
            groups.flat_map(|(users, groups)| repeat_n(users, groups.ceil() as usize)).collect();
        let of_token = |token: usize| {
            let step = move |users: &f64| Step::Decode { users: *users, context: depth + token as f64 };
            groups.iter().map(step)
        };
        let steps = (0..tokens).flat_map(of_token).collect();
        Simulation::new(self, placement, steps, groups.len()).run()
    }
}

/// Something that ends, or comes, at a time.
struct Event {
    /// In s.
    time: f64,
    /// Of events at the same time, the one that was planned first is first.
    number: usize,
    what: Happening,
}

enum Happening {
    /// An item can be taken up by a stage.
    Arrived { stage: usize, item: usize },
    /// A stage has its item.
    Received { stage: usize },
    /// A rank has done its part.
    Computed { stage: usize, node: usize },
    /// The ranks have each other's parts.
    Summed { stage: usize },
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        // A heap gives the greatest first, and the earliest is wanted.
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

/// What ranks do between two collectives, or all that a machine alone does for an item.
struct Part {
    layer: usize,
    /// Of each rank, in s.
    seconds: Vec<f64>,
}

/// A stage's item.
struct Work {
    item: usize,
    /// The layer at work.
    layer: usize,
    /// What is left.
    parts: std::vec::IntoIter<Part>,
    /// Ranks that have not come to the collective.
    missing: usize,
}

#[derive(Default)]
struct StageState {
    /// Items, the first to come first.
    waiting: VecDeque<usize>,
    work: Option<Work>,
}

struct Simulation<'a> {
    setting: &'a Setting<'a>,
    placement: &'a Placement,
    /// Of each item.
    steps: Vec<Step>,
    /// An item is begun when the one that is so many before it has left the last stage.
    under_way: usize,
    stages: Vec<StageState>,
    events: BinaryHeap<Event>,
    planned: usize,
    /// In s.
    now: f64,
    timeline: Timeline,
}

impl<'a> Simulation<'a> {
    fn new(setting: &'a Setting<'a>, placement: &'a Placement, steps: Vec<Step>, under_way: usize) -> Self {
        let stages = placement.stages.iter().map(|_| StageState::default()).collect();
        let timeline = Timeline { done: vec![0.0; steps.len()], ..Timeline::default() };
        let events = BinaryHeap::new();
        Self { setting, placement, steps, under_way, stages, events, planned: 0, now: 0.0, timeline }
    }

    fn run(mut self) -> Option<Timeline> {
        if self.placement.stages.iter().any(|stage| stage.ranks.is_empty()) {
            return None;
        }
        for item in 0..self.under_way.min(self.steps.len()) {
            self.plan(0.0, Happening::Arrived { stage: 0, item });
        }
        while let Some(event) = self.events.pop() {
            self.now = event.time;
            match event.what {
                Happening::Arrived { stage, item } => {
                    self.stages.get_mut(stage)?.waiting.push_back(item);
                    self.take_up(stage)?;
                }
                Happening::Received { stage } | Happening::Summed { stage } => self.go_on(stage)?,
                Happening::Computed { stage, node } => self.meet(stage, node)?,
            }
        }
        self.timeline.end = self.now;
        Some(self.timeline)
    }

    fn plan(&mut self, seconds: f64, what: Happening) {
        self.events.push(Event { time: self.now + seconds, number: self.planned, what });
        self.planned += 1;
    }

    fn record(&mut self, stage: usize, node: usize, seconds: f64, what: What) {
        let end = self.now + seconds;
        self.timeline.spans.push(Span { stage, node, what, start: self.now, end });
    }

    /// Receives the next item that waits for a stage, if the stage is free.
    fn take_up(&mut self, stage: usize) -> Option<()> {
        if self.stages[stage].work.is_some() {
            return Some(());
        }
        let Some(item) = self.stages[stage].waiting.pop_front() else { return Some(()) };
        let (here, step) = (&self.placement.stages[stage], self.steps[item]);
        let parts = parts(self.setting, here, step).into_iter();
        self.stages[stage].work = Some(Work { item, layer: here.layers.start, parts, missing: 0 });
        if stage == 0 {
            return self.go_on(stage);
        }
        let from = &self.placement.stages[stage - 1];
        let seconds = self.setting.hop(&from.nodes(), &here.nodes(), step.tokens())?;
        self.record(stage, here.ranks[0].node, seconds, What::Hop { item });
        self.plan(seconds, Happening::Received { stage });
        Some(())
    }

    /// All ranks of a stage begin their next part, or the item is sent on.
    fn go_on(&mut self, stage: usize) -> Option<()> {
        let work = self.stages[stage].work.as_mut()?;
        let item = work.item;
        let Some(Part { layer, seconds }) = work.parts.next() else {
            self.stages[stage].work = None;
            self.send_on(stage, item);
            return self.take_up(stage);
        };
        (work.layer, work.missing) = (layer, seconds.len());
        for (rank, seconds) in self.placement.stages[stage].ranks.iter().zip(seconds) {
            self.record(stage, rank.node, seconds, What::Compute { item, layer });
            self.plan(seconds, Happening::Computed { stage, node: rank.node });
        }
        Some(())
    }

    /// A machine has done its part; the last of several begins the collective.
    fn meet(&mut self, stage: usize, node: usize) -> Option<()> {
        let work = self.stages[stage].work.as_mut()?;
        work.missing -= 1;
        let (item, layer) = (work.item, work.layer);
        let ranks = &self.placement.stages[stage];
        match (work.missing, ranks.ranks.len()) {
            (0, 1) => self.go_on(stage),
            (0, _) => {
                let seconds = self.setting.collective(&ranks.nodes(), self.steps[item].tokens())?;
                self.record(stage, node, seconds, What::Collective { item, layer });
                self.plan(seconds, Happening::Summed { stage });
                Some(())
            }
            _ => Some(()),
        }
    }

    /// An item leaves a stage. When it leaves the last, another may begin.
    fn send_on(&mut self, stage: usize, item: usize) {
        if stage + 1 < self.stages.len() {
            self.plan(0.0, Happening::Arrived { stage: stage + 1, item });
            return;
        }
        self.timeline.done[item] = self.now;
        let next = item + self.under_way;
        if next < self.steps.len() {
            self.plan(0.0, Happening::Arrived { stage: 0, item: next });
        }
    }
}

/// What the ranks of a stage do for a step. A layer's time is dealt alike to what comes before each of its collectives.
fn parts(setting: &Setting<'_>, stage: &Stage, step: Step) -> Vec<Part> {
    let seconds: Vec<Vec<f64>> = stage.ranks.iter().map(|rank| layers(setting, stage, rank, step)).collect();
    if let [alone] = &seconds[..] {
        return vec![Part { layer: stage.layers.start, seconds: vec![alone.iter().sum()] }];
    }
    let of_layer = |layer: usize| {
        let of_rank = |rank: &Vec<f64>| rank[layer - stage.layers.start] / COLLECTIVES_PER_LAYER as f64;
        let part = || Part { layer, seconds: seconds.iter().map(of_rank).collect() };
        repeat_with(part).take(COLLECTIVES_PER_LAYER).collect::<Vec<_>>()
    };
    stage.layers.clone().flat_map(of_layer).collect()
}

/// A rank's time for each layer of a stage, in s.
fn layers(setting: &Setting<'_>, stage: &Stage, rank: &Rank, step: Step) -> Vec<f64> {
    let machine = &setting.cluster.nodes()[rank.node].machine;
    let times = cost::layer_times(setting.model, setting.format, machine, setting.backend, step);
    times[stage.layers.clone()].iter().map(|time| rank.share * time.shared() + time.fixed).collect()
}
