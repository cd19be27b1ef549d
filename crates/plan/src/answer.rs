//! Ranked plans in figures and words: how fast, why not faster, what would help, and what to do when nothing fits.

use crate::{
    Cluster, Format, Goal, Link, Model, Node, Placement, Setting, Workload,
    cost::{self, Step},
    disaggregate::{self, Disaggregated},
    predict::NodeMemory,
    search::{self, Candidate},
};
use serde::Serialize;

/// What eight of ten measurements that the constants were not calibrated on were, as shares of the prediction
/// (tests/validation, all backends).
const DECODE_SPREAD: (f64, f64) = (0.82, 1.10);
/// The same for prompts.
const PREFILL_SPREAD: (f64, f64) = (0.69, 1.12);

/// Prompts for which the time to the first token is told, in tokens.
pub const PROMPTS: [f64; 3] = [1024.0, 8192.0, 65_536.0];

/// Those of [`PROMPTS`] that fit a context; the shortest always.
pub fn prompts(context: f64) -> Vec<f64> {
    PROMPTS.into_iter().filter(|prompt| *prompt <= context.max(PROMPTS[0])).collect()
}

/// A figure that is not known better than within a range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Nine of ten are above.
    pub low: f64,
    /// The prediction.
    pub likely: f64,
    /// Nine of ten are below.
    pub high: f64,
}

/// A placement with all that is predicted of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// For example `tp2 x pp2`.
    pub split: String,
    /// Machines' names, in the order of the stages.
    pub machines: Vec<String>,
    /// Layers, shares and machines.
    pub placement: Placement,
    /// Tokens/s for one user early in a conversation.
    pub decode: Range,
    /// Tokens/s for one user at the end of the promised context.
    pub decode_at_end: Range,
    /// Tokens/s of all users together, when there are several.
    pub throughput: Option<Range>,
    /// Tokens/s of a prompt of [`Workload::prompt`] tokens; `None` where a machine's rate is not known.
    pub prefill: Option<Range>,
    /// Seconds to the first token for [`PROMPTS`]; those beyond the promised context are left out, all where
    /// a machine's rate is not known.
    pub first_token: Vec<(f64, Range)>,
    /// What each machine holds, in bytes.
    pub memory: Vec<NodeMemory>,
    /// W of all machines while decoding, where known.
    pub power: Option<f64>,
    /// J per token, where known.
    pub energy_per_token: Option<f64>,
    /// Where the time of a token goes, most first; parts add up to 1.
    pub causes: Vec<Cause>,
    /// Times as fast in decode as the best machine alone; `None` when the model fits none.
    pub against_one: Option<f64>,
}

/// A part of a token's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// Part of the time, from 0 to 1.
    pub part: f64,
    /// What takes it, in words.
    pub what: String,
}

/// Something that would make the best plan faster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// What to do, in words.
    pub what: String,
    /// Times as fast as now, by the goal.
    pub times: f64,
}

/// Why nothing fits, and what comes nearest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shortage {
    /// Bytes that weights and cache take in all.
    pub needed: f64,
    /// Bytes that all machines together have for them.
    pub room: f64,
    /// For each machine, bytes that it would lack if all were filled in proportion to their room.
    pub missing: Vec<(String, f64)>,
    /// Changes that make it fit, each alone, in words.
    pub fits_with: Vec<String>,
}

/// What `pomar plan` answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Best first. The first is never slower, by the goal, than the best machine alone.
    pub plans: Vec<Plan>,
    /// Prompts on other machines than tokens, where a prompt and 256 tokens then take less by a twentieth than with any
    /// plan; for the goals of decode and first token.
    pub disaggregated: Option<Disaggregated>,
    /// When there are no plans.
    pub shortage: Option<Shortage>,
    /// What would help the best plan, most first.
    pub advice: Vec<Advice>,
}

/// Plans for a goal, at most `most` of them, the best machine alone always among them where the model fits it.
pub fn answer(setting: &Setting<'_>, workload: &Workload, goal: Goal, most: usize) -> Answer {
    let alone = best_alone(setting, workload);
    let fastest_alone = alone.as_ref().and_then(|one| setting.token_time(one, 1.0, workload.depth));
    let found = ranked(setting, workload, goal);
    let disaggregated = faster_apart(setting, workload, goal, &found);
    let mut chosen: Vec<Placement> = Vec::new();
    for candidate in found {
        if chosen.len() < most && !chosen.iter().any(|other| is_like(setting, other, &candidate.placement)) {
            chosen.push(candidate.placement);
        }
    }
    if let Some(alone) = alone.filter(|alone| !chosen.iter().any(|other| is_like(setting, other, alone))) {
        chosen.truncate(most.saturating_sub(1).max(1));
        chosen.push(alone);
    }
    let plan = |placement: &Placement| describe(setting, workload, placement, fastest_alone);
    let plans: Vec<Plan> = chosen.iter().filter_map(plan).collect();
    let shortage = plans.is_empty().then(|| shortage(setting, workload));
    let advice = if plans.is_empty() { Vec::new() } else { advice(setting, workload, goal) };
    Answer { plans, disaggregated, shortage, advice }
}

/// What was found, and each machine alone, by the figures that are shown: the search takes all chunks of a prompt, and all
/// groups of users, for alike ([`search`](mod@search)).
fn ranked(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Vec<Candidate> {
    let mut found = search::search(setting, workload, goal, usize::MAX);
    let layers = setting.model.layers.len();
    let alone = (0..setting.cluster.nodes().len()).map(|node| Placement::single(node, layers));
    found.extend(alone.filter_map(|placement| {
        let score = search::score(setting, workload, goal, &placement)?;
        Some(Candidate { placement, score })
    }));
    for candidate in &mut found {
        let shown = match goal {
            Goal::FirstToken => setting.prompt_time(&candidate.placement, workload.prompt, 0.0),
            Goal::Throughput => setting.token_time(&candidate.placement, workload.users, workload.depth),
            Goal::Decode | Goal::Power | Goal::Machines => Some(candidate.score),
        };
        candidate.score = shown.unwrap_or(f64::INFINITY);
    }
    found.sort_by(|a, b| a.score.total_cmp(&b.score));
    found
}

/// Prompts and tokens on different machines, if a prompt and an answer then take less than with any plan; not where
/// something else is asked for.
fn faster_apart(
    setting: &Setting<'_>,
    workload: &Workload,
    goal: Goal,
    plans: &[Candidate],
) -> Option<Disaggregated> {
    if !matches!(goal, Goal::Decode | Goal::FirstToken) {
        return None;
    }
    let times =
        plans.iter().filter_map(|plan| disaggregate::time_together(setting, workload, &plan.placement));
    let together = times.fold(f64::INFINITY, f64::min);
    disaggregate::best(setting, workload).filter(|apart| apart.time() < together / 1.05)
}

/// The one machine on which a token takes least.
fn best_alone(setting: &Setting<'_>, workload: &Workload) -> Option<Placement> {
    let alone = |node| Placement::single(node, setting.model.layers.len());
    let fits = |placement: &Placement| search::score(setting, workload, Goal::Decode, placement);
    let all = (0..setting.cluster.nodes().len()).map(alone);
    all.filter_map(|placement| Some((fits(&placement)?, placement)))
        .min_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, placement)| placement)
}

/// The same split on machines of the same kinds.
fn is_like(setting: &Setting<'_>, a: &Placement, b: &Placement) -> bool {
    let kinds = |placement: &Placement| {
        let mut kinds: Vec<String> = placement
            .stages
            .iter()
            .flat_map(|stage| &stage.ranks)
            .map(|rank| setting.cluster.nodes()[rank.node].machine.id.clone())
            .collect();
        kinds.sort();
        (split(placement), kinds)
    };
    kinds(a) == kinds(b)
}

/// `1`, `tp4`, `pp3`, `tp2 x pp2`.
pub fn split(placement: &Placement) -> String {
    let stages = placement.stages.len();
    let ranks = placement.stages.iter().map(|stage| stage.ranks.len()).max().unwrap_or(1);
    match (ranks, stages) {
        (1, 1) => "1".into(),
        (_, 1) => format!("tp{ranks}"),
        (1, _) => format!("pp{stages}"),
        _ => format!("tp{ranks} x pp{stages}"),
    }
}

fn speed(per_second: f64, (low, high): (f64, f64)) -> Range {
    Range { low: per_second * low, likely: per_second, high: per_second * high }
}

fn time(seconds: f64, (low, high): (f64, f64)) -> Range {
    Range { low: seconds / high, likely: seconds, high: seconds / low }
}

/// All that is predicted of a placement; `None` where machines that must talk are not joined.
pub fn describe(
    setting: &Setting<'_>,
    workload: &Workload,
    placement: &Placement,
    fastest_alone: Option<f64>,
) -> Option<Plan> {
    let token = setting.token_time(placement, 1.0, workload.depth)?;
    let at_end = setting.token_time(placement, 1.0, workload.context)?;
    let together = setting.token_time(placement, workload.users, workload.depth)?;
    let first_token = prompts(workload.context).into_iter().map(|prompt| {
        Some((prompt, time(setting.prompt_time(placement, prompt, 0.0)? + token, PREFILL_SPREAD)))
    });
    let prompt_time = setting.prompt_time(placement, workload.prompt, 0.0);
    let names = |node: usize| setting.cluster.nodes()[node].name.clone();
    let power = setting.power(placement, 1.0, workload.depth);
    let several = (workload.users > 1.0).then(|| speed(workload.users / together, DECODE_SPREAD));
    Some(Plan {
        split: split(placement),
        machines: placement.stages.iter().flat_map(crate::Stage::nodes).map(names).collect(),
        placement: placement.clone(),
        decode: speed(1.0 / token, DECODE_SPREAD),
        decode_at_end: speed(1.0 / at_end, DECODE_SPREAD),
        throughput: several,
        prefill: prompt_time.map(|time| speed(workload.prompt / time, PREFILL_SPREAD)),
        first_token: first_token.flatten().collect(),
        memory: setting.memory(placement, workload),
        power,
        energy_per_token: power.map(|power| power * token),
        causes: causes(setting, workload, placement)?,
        against_one: fastest_alone.map(|alone| alone / token),
    })
}

fn causes(setting: &Setting<'_>, workload: &Workload, placement: &Placement) -> Option<Vec<Cause>> {
    let step = Step::Decode { users: 1.0, context: workload.depth };
    let breakdown = setting.step(placement, step)?;
    let total = breakdown.total();
    let mut causes: Vec<Cause> = Vec::new();
    let mut add = |seconds: f64, what: String| match causes.iter_mut().find(|cause| cause.what == what) {
        Some(cause) => cause.part += seconds / total,
        None => causes.push(Cause { part: seconds / total, what }),
    };
    for (stage, time) in placement.stages.iter().zip(&breakdown.stages) {
        let names: Vec<_> =
            stage.ranks.iter().map(|rank| setting.cluster.nodes()[rank.node].name.as_str()).collect();
        let names = names.join(", ");
        add(time.memory, format!("memory bandwidth of {names}"));
        add(time.compute, format!("compute of {names}"));
        add(time.overhead, format!("{}'s own time per layer", setting.backend.id));
        add(time.collectives, "adding up the ranks' parts".into());
    }
    breakdown.hops.iter().for_each(|hop| add(*hop, "borders between stages".into()));
    causes.retain(|cause| cause.part >= 0.005);
    causes.sort_by(|a, b| b.part.total_cmp(&a.part));
    Some(causes)
}

/// The best score with another format, cluster or both.
fn best_score(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Option<f64> {
    search::search(setting, workload, goal, 1).pop().map(|found| found.score)
}

/// The cluster with one more machine like the last, joined as that is.
fn with_one_more(cluster: &Cluster) -> Option<Cluster> {
    let mut nodes = cluster.nodes().to_vec();
    let last = nodes.len().checked_sub(1)?;
    let any = (0..last).find_map(|node| cluster.link(node, last));
    let name = format!("{} (one more)", nodes[last].machine.id);
    nodes.push(Node { name, machine: nodes[last].machine.clone() });
    let link = |a: usize, b: usize| match (a.min(last), b.min(last)) {
        (a, b) if a == b => any.or_else(|| usual_link(&nodes_machine(cluster, last))),
        (a, b) => cluster.link(a, b),
    };
    Some(Cluster::new(nodes, link))
}

fn nodes_machine(cluster: &Cluster, node: usize) -> crate::Machine {
    cluster.nodes()[node].machine.clone()
}

/// How two such machines are usually joined.
pub fn usual_link(machine: &crate::Machine) -> Option<Link> {
    use crate::Maker;
    let name = match machine.maker {
        Maker::Apple if machine.rdma => "tb5-rdma",
        Maker::Apple => "tb4-tcp",
        Maker::Nvidia if machine.id == "dgx-spark" => "200gbe-rdma",
        Maker::Nvidia => "pcie",
        _ => "10gbe-tcp",
    };
    Link::named(name).ok()
}

fn relinked(cluster: &Cluster, change: impl Fn(Link) -> Link) -> Cluster {
    Cluster::new(cluster.nodes().to_vec(), |a, b| cluster.link(a, b).map(&change))
}

/// What would make the best plan at least a twentieth faster.
fn advice(setting: &Setting<'_>, workload: &Workload, goal: Goal) -> Vec<Advice> {
    let Some(now) = best_score(setting, workload, goal) else { return Vec::new() };
    let mut advice = Vec::new();
    let mut consider = |what: String, setting: &Setting<'_>| {
        if let Some(then) = best_score(setting, workload, goal).filter(|then| now / then >= 1.05) {
            advice.push(Advice { what, times: now / then });
        }
    };
    if setting.format.others > 5.0 || setting.format.experts > 5.0 {
        let format = Format::bits(4.0);
        consider("4-bit weights".into(), &Setting { format: &format, ..*setting });
    }
    let has_links =
        (0..setting.cluster.nodes().len()).any(|a| (0..a).any(|b| setting.cluster.link(a, b).is_some()));
    if has_links {
        let twice = relinked(setting.cluster, |link| Link { bandwidth: 2.0 * link.bandwidth, ..link });
        consider("a second cable between each two machines".into(), &Setting { cluster: &twice, ..*setting });
        if let Some(rdma) = Link::named("tb5-rdma").ok().filter(|_| can_rdma(setting.cluster)) {
            let faster = |link: Link| if link.latency > rdma.latency { rdma } else { link };
            let cluster = relinked(setting.cluster, faster);
            consider("RDMA over Thunderbolt 5".into(), &Setting { cluster: &cluster, ..*setting });
        }
    }
    let more = with_one_more(setting.cluster).filter(|more| more.nodes().len() <= search::EXACT);
    if let Some((cluster, last)) = more.as_ref().zip(setting.cluster.nodes().last()) {
        consider(format!("one more {}", last.machine.id), &Setting { cluster, ..*setting });
    }
    advice.sort_by(|a, b| b.times.total_cmp(&a.times));
    advice
}

fn can_rdma(cluster: &Cluster) -> bool {
    cluster.nodes().iter().all(|node| node.machine.rdma)
}

/// Bytes of all weights.
pub fn weight_bytes(model: &Model, format: &Format) -> f64 {
    cost::layer_weights(model, format).iter().sum()
}

/// Bytes of weights and cache on one rank that has everything.
fn needed(setting: &Setting<'_>, workload: &Workload) -> f64 {
    let Setting { model, format, backend, .. } = *setting;
    let layers = cost::layer_memory(model, format, backend, 1.0, workload.users, workload.context);
    layers.iter().map(|layer| layer.of(1.0)).sum()
}

fn shortage(setting: &Setting<'_>, workload: &Workload) -> Shortage {
    let base = cost::base_memory(setting.model, setting.backend, workload.users);
    let needed = needed(setting, workload);
    let nodes = setting.cluster.nodes();
    let room = |node: &Node| (node.machine.usable - base).max(0.0);
    let total: f64 = nodes.iter().map(room).sum();
    let short = (needed / total - 1.0).max(0.0);
    let missing = nodes.iter().map(|node| (node.name.clone(), room(node) * short)).collect();
    Shortage { needed, room: total, missing, fits_with: fits_with(setting, workload) }
}

/// Changes of one thing that make the model fit.
fn fits_with(setting: &Setting<'_>, workload: &Workload) -> Vec<String> {
    let fits =
        |setting: &Setting<'_>, workload: &Workload| best_score(setting, workload, Goal::Decode).is_some();
    let mut found = Vec::new();
    let raised = setting
        .cluster
        .nodes()
        .iter()
        .map(|node| Node { name: node.name.clone(), machine: node.machine.clone().with_raised_limit() });
    let raised = Cluster::new(raised.collect(), |a, b| setting.cluster.link(a, b));
    if &raised != setting.cluster && fits(&Setting { cluster: &raised, ..*setting }, workload) {
        found.push(
            "macOS's limit for GPU memory raised: --raise-limit, and sudo sysctl iogpu.wired_limit_mb=... on the Macs"
                .into(),
        );
    }
    let now = setting.format.others.max(setting.format.experts);
    for bits in [8.0, 6.0, 5.0, 4.0, 3.0, 2.0] {
        let format = Format::bits(bits);
        if format.others < now && fits(&Setting { format: &format, ..*setting }, workload) {
            found.push(format!("{bits}-bit weights: --bits {bits}"));
            break;
        }
    }
    let mut shorter = *workload;
    while shorter.context > 2048.0 {
        shorter.context = (shorter.context / 2.0).floor();
        shorter.depth = shorter.depth.min(shorter.context);
        if fits(setting, &shorter) {
            found.push(format!("a shorter context: --context {}", shorter.context));
            break;
        }
    }
    let mut cluster = setting.cluster.clone();
    for more in 1..=8 {
        let Some(larger) = with_one_more(&cluster) else { break };
        cluster = larger;
        if fits(&Setting { cluster: &cluster, ..*setting }, workload) {
            let id = &setting.cluster.nodes()[setting.cluster.nodes().len() - 1].machine.id;
            found.push(format!("{more} more {id}"));
            break;
        }
    }
    found
}
