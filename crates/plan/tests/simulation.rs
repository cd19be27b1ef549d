//! The formulas against the simulation, event by event. `-- --nocapture` prints how far apart they are.

mod drawn;

use drawn::{clusters, models};
use pomar_plan::{
    Backend, Catalogue, Cluster, Format, Goal, Link, Model, Node, Placement, Setting, Timeline, Workload,
    backend, search,
    simulate::{Span, What},
};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

/// Most that a formula and the simulation may be apart, as a share.
const NEAR: f64 = 0.02;
/// As much more where unlike machines share layers: which of them is the slowest differs from layer to layer, and the
/// formulas take the one that is slowest in all.
const UNLIKE: f64 = 0.07;
/// As much more where chunks are under way at once: which stage holds up the others differs from the first to the last.
const PIPELINED: f64 = 0.01;

/// Tokens per user that are simulated; the second half is compared, as the first has the filling of the stages in it.
const TOKENS: usize = 12;
const DEPTH: f64 = 2048.0;

fn backends() -> [Backend; 6] {
    let pipelining = |chunk| Backend { id: "pipelining", pipelines: true, chunk, ..backend::MLX };
    [
        backend::MLX,
        backend::LLAMA_CPP,
        backend::LLAMA_CPP_CUDA,
        backend::DS4,
        pipelining(512.0),
        pipelining(2048.0),
    ]
}

/// The largest differences between formulas and simulation, as shares.
#[derive(Debug, Default)]
struct Largest {
    cases: usize,
    decode: f64,
    decode_unlike: f64,
    prompt: f64,
    prompt_unlike: f64,
    pipelined_prompt: f64,
    pipelined_prompt_unlike: f64,
}

impl Largest {
    /// Compares a placement's times for so many users, and for a prompt. Nothing when machines are not joined.
    fn compare(&mut self, setting: &Setting<'_>, placement: &Placement, users: u32, prompt: f64) {
        let users = users.into();
        let Some(timeline) = setting.simulate_decode(placement, users, DEPTH, TOKENS) else {
            assert_eq!(setting.token_time(placement, users, DEPTH), None);
            return;
        };
        self.cases += 1;
        let middle = DEPTH + 0.75 * TOKENS as f64;
        let token = setting.token_time(placement, users, middle).unwrap();
        let what = format!("{} {users} users, prompt {prompt} {placement:?}", setting.backend.id);
        let unlike = has_unlike(setting, placement);
        let decode = if unlike { &mut self.decode_unlike } else { &mut self.decode };
        let most = NEAR + if unlike { UNLIKE } else { 0.0 };
        check(decode, token, steady(&timeline), most, &what);
        let most = most + if setting.backend.pipelines { PIPELINED } else { 0.0 };
        let prompts = match (setting.backend.pipelines, unlike) {
            (false, false) => &mut self.prompt,
            (false, true) => &mut self.prompt_unlike,
            (true, false) => &mut self.pipelined_prompt,
            (true, true) => &mut self.pipelined_prompt_unlike,
        };
        for after in [0.0, 10_000.0] {
            let time = setting.prompt_time(placement, prompt, after).unwrap();
            let simulated = setting.simulate_prompt(placement, prompt, after).unwrap();
            check(prompts, time, simulated.end, most, &what);
        }
    }
}

fn has_unlike(setting: &Setting<'_>, placement: &Placement) -> bool {
    let machine = |node: usize| &setting.cluster.nodes()[node].machine;
    let mut stages = placement.stages.iter().map(pomar_plan::Stage::nodes);
    stages.any(|nodes| nodes.iter().any(|node| machine(*node) != machine(nodes[0])))
}

fn check(largest: &mut f64, formula: f64, simulated: f64, most: f64, what: &str) {
    let apart = (formula / simulated - 1.0).abs();
    assert!(apart <= most, "{formula} s, simulated {simulated} s: {what}");
    *largest = largest.max(apart);
}

/// Time per token in the second half of some, in s.
fn steady(timeline: &Timeline) -> f64 {
    let groups = timeline.done.len() / TOKENS;
    let last = |token: usize| timeline.done[token * groups..][..groups].iter().copied().fold(0.0, f64::max);
    (last(TOKENS - 1) - last(TOKENS / 2 - 1)) / (TOKENS / 2) as f64
}

/// Even splits, whether machines are alike or not.
fn even(setting: &Setting<'_>) -> Vec<Placement> {
    let layers = setting.model.layers.len();
    let nodes: Vec<usize> = (0..setting.cluster.nodes().len()).collect();
    let mut splits = vec![Placement::single(0, layers), Placement::pipeline(&nodes, layers)];
    splits.extend(setting.backend.tensor.then(|| Placement::tensor(&nodes, layers)));
    splits
}

#[test]
fn formulas_agree_on_drawn_clusters() {
    let mut largest = Largest::default();
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]),
    );
    let goal = prop::sample::select(vec![Goal::Decode, Goal::FirstToken, Goal::Throughput, Goal::Power]);
    let drawn = (clusters(5), models(5..40), 1_u32..9, 100.0..30_000.0_f64, goal);
    for round in 0..600 {
        let (cluster, model, users, prompt, goal) = drawn.new_tree(&mut runner).unwrap().current();
        let backend = backends()[round % backends().len()];
        let format = Format::bits(4.0);
        let setting = Setting { model: &model, format: &format, cluster: &cluster, backend: &backend };
        let workload = Workload { context: 4096.0, users: users.into(), depth: DEPTH, prompt };
        let found = search::search(&setting, &workload, goal, 6).into_iter().map(|found| found.placement);
        let placements = found.chain(even(&setting));
        placements.for_each(|placement| largest.compare(&setting, &placement, users, prompt));
    }
    println!("{largest:.4?}");
    assert!(largest.cases > 1000, "{largest:?}");
}

/// Machines of the catalogue, all joined alike.
fn joined(names: &[&str], link: &str) -> Cluster {
    let catalogue = Catalogue::built_in();
    let node = |name: &&str| Node { name: (*name).into(), machine: catalogue.machine(name).unwrap() };
    Cluster::uniform(names.iter().map(node).collect(), Link::named(link).ok())
}

#[test]
fn formulas_agree_on_the_catalogue() {
    let mut largest = Largest::default();
    let clusters = [
        joined(&["m3-ultra-512"; 4], "tb5-rdma"),
        joined(&["m3-ultra-512", "m3-ultra-512", "m3-ultra-256"], "tb5-tcp"),
        joined(&["rtx-5090"; 8], "pcie"),
    ];
    for name in Catalogue::built_in().model_names() {
        let Ok(model) = Catalogue::built_in().model(name) else { continue };
        for (cluster, backend) in clusters.iter().flat_map(|cluster| backends().map(|one| (cluster, one))) {
            let format = Format::bits(4.0);
            let setting = Setting { model: &model, format: &format, cluster, backend: &backend };
            for (users, prompt) in [(1, 700.0), (5, 8192.0), (8, 65_536.0)] {
                even(&setting).iter().for_each(|one| largest.compare(&setting, one, users, prompt));
            }
        }
    }
    println!("{largest:.4?}");
}

/// What a machine does never overlaps, and nothing ends after the end.
fn check_timeline(timeline: &Timeline) {
    assert!(timeline.spans.is_sorted_by(|a, b| a.start <= b.start));
    assert!(timeline.spans.iter().all(|span| span.start <= span.end && span.end <= timeline.end));
    assert!(timeline.done.iter().all(|done| *done > 0.0 && *done <= timeline.end));
    let machines = timeline.spans.iter().map(|span| span.node).max().unwrap_or(0);
    for node in 0..=machines {
        let own: Vec<&Span> = timeline.spans.iter().filter(|span| span.node == node).collect();
        assert!(own.windows(2).all(|two| two[0].end <= two[1].start), "machine {node}");
    }
}

fn model(name: &str) -> Model {
    Catalogue::built_in().model(name).unwrap()
}

#[test]
fn ranks_wait_for_the_slowest_at_each_collective() {
    let (model, format, backend) = (model("qwen3-4b"), Format::bits(4.0), backend::MLX);
    let cluster = joined(&["m3-ultra-512", "m4-pro-20c"], "tb5-rdma");
    let setting = Setting { model: &model, format: &format, cluster: &cluster, backend: &backend };
    let placement = Placement::tensor(&[0, 1], model.layers.len());
    let timeline = setting.simulate_decode(&placement, 1.0, DEPTH, 2).unwrap();
    check_timeline(&timeline);
    let collectives: Vec<&Span> =
        timeline.spans.iter().filter(|span| matches!(span.what, What::Collective { .. })).collect();
    assert_eq!(collectives.len(), 2 * 2 * model.layers.len());
    assert!(collectives.iter().all(|span| span.node == 1));
    assert_eq!(timeline.spans.len(), 3 * collectives.len());
}

#[test]
fn stages_work_at_once_only_where_the_backend_can() {
    let (model, format) = (model("qwen3-4b"), Format::bits(4.0));
    let cluster = joined(&["m3-ultra-512"; 3], "tb5-rdma");
    let placement = Placement::pipeline(&[0, 1, 2], model.layers.len());
    for backend in backends() {
        let setting = Setting { model: &model, format: &format, cluster: &cluster, backend: &backend };
        let prompt = setting.simulate_prompt(&placement, 6.0 * backend.chunk, 0.0).unwrap();
        let tokens = setting.simulate_decode(&placement, 5.0, DEPTH, 3).unwrap();
        assert_eq!(prompt.done.len(), 6);
        assert_eq!(tokens.done.len(), if backend.pipelines { 9 } else { 3 });
        for timeline in [prompt, tokens] {
            check_timeline(&timeline);
            let at_once = timeline.spans.windows(2).any(|two| two[1].start < two[0].end);
            assert_eq!(at_once, backend.pipelines, "{}", backend.id);
            assert_eq!(timeline.spans.len(), timeline.done.len() * (3 + 2));
        }
    }
}

#[test]
fn nothing_is_simulated_where_it_cannot_be() {
    let (model, format, backend) = (model("qwen3-4b"), Format::bits(4.0), backend::DS4);
    let machines = joined(&["m3-ultra-512"; 2], "tb5-rdma").nodes().to_vec();
    let cluster = Cluster::uniform(machines, None);
    let setting = Setting { model: &model, format: &format, cluster: &cluster, backend: &backend };
    for placement in [Placement::pipeline(&[0, 1], 36), Placement::tensor(&[0, 1], 36)] {
        assert_eq!(setting.simulate_prompt(&placement, 100.0, 0.0), None);
        assert_eq!(setting.simulate_decode(&placement, 1.0, 0.0, 1), None);
    }
    assert!(setting.simulate_decode(&Placement::single(0, 36), 1.0, 0.0, 0).unwrap().spans.is_empty());
}
