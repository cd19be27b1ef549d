//! A prompt on some machines, the tokens after it on others: where one kind multiplies faster and another reads faster.
//!
//! Both have all layers. The cache goes over layer by layer while the next layers are computed, so that what somebody waits
//! for is the longer of the two, and one layer's part. (exo's Spark and Mac Studio, `exo-disagg-hybrid`.)

use crate::{
    Backend, Cluster, Goal, Maker, Placement, Setting, Workload, answer,
    search::{self, Candidate},
};
use serde::Serialize;

/// Tokens of an answer, for weighing a faster prompt against slower tokens.
pub const ANSWER: f64 = 256.0;

/// Two placements on different machines of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Disaggregated {
    /// Where prompts are.
    pub prefill: Placement,
    /// What runs them.
    pub prefill_backend: &'static str,
    /// Where tokens are.
    pub decode: Placement,
    /// What runs them.
    pub decode_backend: &'static str,
    /// Time of the prompt alone, in s.
    pub prompt: f64,
    /// Bytes of cache that go over.
    pub cache: f64,
    /// Time from the prompt to the first new token, in s.
    pub first_token: f64,
    /// Time of a token, in s.
    pub token: f64,
}

impl Disaggregated {
    /// Time of a prompt and an answer of [`ANSWER`] tokens, in s.
    pub fn time(&self) -> f64 {
        self.first_token + (ANSWER - 1.0) * self.token
    }

    /// What it is, and how fast, for a prompt of `prompt` tokens.
    pub fn in_words(&self, cluster: &Cluster, prompt: f64) -> String {
        let place = |placement: &Placement, backend: &str| {
            let nodes = placement.stages.iter().flat_map(crate::Stage::nodes);
            let names: Vec<&str> = nodes.map(|node| cluster.nodes()[node].name.as_str()).collect();
            format!("{} ({}, {backend})", names.join(", "), answer::split(placement))
        };
        format!(
            "prompts on {}, tokens on {}: {prompt} tokens and the first new one in {:.2} s, then {:.1} tokens/s; \
             {:.2} GB of cache go over meanwhile",
            place(&self.prefill, self.prefill_backend),
            place(&self.decode, self.decode_backend),
            self.first_token,
            1.0 / self.token,
            self.cache / 1e9
        )
    }
}

/// Time of the prompt and an answer on one placement, in s; `None` where machines that must talk are not joined.
pub fn time_together(setting: &Setting<'_>, workload: &Workload, placement: &Placement) -> Option<f64> {
    let token = setting.token_time(placement, 1.0, workload.prompt)?;
    Some(setting.prompt_time(placement, workload.prompt, 0.0)? + ANSWER * token)
}

/// Placements for one goal on the machines of one maker.
struct Side {
    backend: Backend,
    found: Vec<Candidate>,
}

/// The pair that takes the least for a prompt and an answer. `None` where no two sets of machines hold the model each.
pub fn best(setting: &Setting<'_>, workload: &Workload) -> Option<Disaggregated> {
    if setting.cluster.nodes().len() < 2 {
        return None;
    }
    let prefills = sides(setting, workload, Goal::FirstToken);
    let decodes = sides(setting, workload, Goal::Decode);
    let mut best: Option<Disaggregated> = None;
    for (prefill, decode) in
        prefills.iter().flat_map(|prefill| decodes.iter().map(move |decode| (prefill, decode)))
    {
        for first in &prefill.found {
            let apart = |then: &&Candidate| !shares_a_machine(&first.placement, &then.placement);
            // Both are sorted, so that the first that is apart is the fastest.
            let Some(then) = decode.found.iter().find(apart) else { continue };
            let pair = pair(
                setting,
                workload,
                (&first.placement, &prefill.backend),
                (&then.placement, &decode.backend),
            );
            let is_better = |pair: &Disaggregated| best.as_ref().is_none_or(|best| pair.time() < best.time());
            if let Some(pair) = pair.filter(is_better) {
                best = Some(pair);
            }
        }
    }
    best
}

/// Machines of several makers run different programs, those of one the setting's.
fn sides(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Vec<Side> {
    let nodes = setting.cluster.nodes();
    let mut makers: Vec<Maker> = Vec::new();
    for node in nodes {
        if !makers.contains(&node.machine.maker) {
            makers.push(node.machine.maker);
        }
    }
    let side = |maker: &Maker| {
        let backend = if makers.len() == 1 { *setting.backend } else { Backend::usual(*maker) };
        let part: Vec<usize> = (0..nodes.len()).filter(|node| nodes[*node].machine.maker == *maker).collect();
        let cluster = setting.cluster.part(&part);
        let setting = Setting { cluster: &cluster, backend: &backend, ..*setting };
        let mut found = search::search(&setting, workload, goal, usize::MAX);
        found.iter_mut().for_each(|candidate| candidate.placement.renumber(&part));
        Side { backend, found }
    };
    makers.iter().map(side).collect()
}

fn shares_a_machine(a: &Placement, b: &Placement) -> bool {
    let nodes = |placement: &Placement| -> Vec<usize> {
        placement.stages.iter().flat_map(crate::Stage::nodes).collect()
    };
    let of_a = nodes(a);
    nodes(b).iter().any(|node| of_a.contains(node))
}

fn pair(
    setting: &Setting<'_>,
    workload: &Workload,
    (prefill, prefill_backend): (&Placement, &Backend),
    (decode, decode_backend): (&Placement, &Backend),
) -> Option<Disaggregated> {
    let before = Setting { backend: prefill_backend, ..*setting };
    let after = Setting { backend: decode_backend, ..*setting };
    let cache = setting.model.cache(workload.prompt) * decode_backend.cache_bytes;
    let way = slowest_way(setting.cluster, prefill, decode, cache)?;
    let prompt = before.prompt_time(prefill, workload.prompt, 0.0)?;
    let token = after.token_time(decode, 1.0, workload.prompt)?;
    let last_layer = way.send(cache / setting.model.layers.len() as f64);
    let first_token = prompt.max(cache / way.bandwidth) + last_layer + token;
    Some(Disaggregated {
        prefill: prefill.clone(),
        prefill_backend: prefill_backend.id,
        decode: decode.clone(),
        decode_backend: decode_backend.id,
        prompt,
        cache,
        first_token,
        token,
    })
}

/// The link over which the cache goes: from each stage of the one to each of the other, the slowest of them.
fn slowest_way(cluster: &Cluster, from: &Placement, to: &Placement, bytes: f64) -> Option<crate::Link> {
    let pairs = from.stages.iter().flat_map(|a| to.stages.iter().map(move |b| (a.nodes(), b.nodes())));
    let links = pairs.map(|(a, b)| cluster.best_link(&a, &b, bytes)).collect::<Option<Vec<_>>>()?;
    links.into_iter().reduce(crate::Link::slower)
}
