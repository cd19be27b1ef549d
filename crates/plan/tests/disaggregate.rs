//! Prompts on one machine, tokens on another.

use pomar_plan::{
    Backend, Catalogue, Cluster, Format, Goal, Link, Model, Node, Setting, Workload, answer::answer,
    backend::MLX, disaggregate,
};

const WORKLOAD: Workload = Workload { context: 8192.0, users: 1.0, depth: 1024.0, prompt: 8192.0 };

fn cluster(names: &[&str], link: Option<Link>) -> Cluster {
    let catalogue = Catalogue::built_in();
    let node = |name: &&str| Node { name: (*name).to_owned(), machine: catalogue.machine(name).unwrap() };
    Cluster::uniform(names.iter().map(node).collect(), link)
}

fn model(name: &str) -> Model {
    Catalogue::built_in().model(name).unwrap()
}

fn setting<'a>(
    model: &'a Model,
    format: &'a Format,
    cluster: &'a Cluster,
    backend: &'a Backend,
) -> Setting<'a> {
    Setting { model, format, cluster, backend }
}

/// exo's Spark and Mac Studio over 10 Gb/s (`exo-disagg-hybrid` in `measurements`): tokens come as fast as from the Mac alone,
/// 32 in 0.85 s. Its prompt of 8,192 tokens took 1.47 s on a program that is more than twice as fast on a Spark as llama.cpp,
/// which is what is predicted for.
#[test]
fn a_spark_reads_the_prompt_for_a_mac_studio() {
    let cluster = cluster(&["dgx-spark", "m3-ultra-256"], Link::named("10gbe-tcp").ok());
    let (model, format) = (model("llama-3.1-8b"), Format::bits(16.0));
    let setting = setting(&model, &format, &cluster, &MLX);
    let found = disaggregate::best(&setting, &WORKLOAD).unwrap();
    let places = [&found.prefill, &found.decode].map(|placement| placement.stages[0].ranks[0].node);
    assert_eq!((places, found.prefill_backend, found.decode_backend), ([0, 1], "llama.cpp-cuda", "mlx"));
    let near = |predicted: f64, measured: f64| (0.65..1.35).contains(&(predicted / measured));
    let alone = setting.prompt_time(&found.decode, 8192.0, 0.0).unwrap();
    assert!(found.first_token < 0.8 * alone, "{} {alone}", found.first_token);
    assert!(near(found.token, 0.85 / 32.0), "{}", found.token);
    // 8,192 tokens of 32 layers with keys and values of 8 heads of 128 numbers.
    assert_eq!(found.cache, 8192.0 * 32.0 * 2.0 * 8.0 * 128.0 * 2.0);
    let answer = answer(&setting, &WORKLOAD, Goal::Decode, 5);
    assert_eq!(answer.disaggregated, Some(found));
}

#[test]
fn a_slow_way_hides_nothing() {
    let (model, format) = (model("llama-3.1-8b"), Format::bits(16.0));
    let time = |link: &str| {
        let cluster = cluster(&["dgx-spark", "m3-ultra-256"], Link::named(link).ok());
        disaggregate::best(&setting(&model, &format, &cluster, &MLX), &WORKLOAD).unwrap()
    };
    let (fast, slow) = (time("10gbe-tcp"), time("1gbe-tcp"));
    assert!(slow.first_token > fast.first_token && slow.first_token > slow.cache / 0.112e9);
}

#[test]
fn alike_machines_alone_or_apart_gain_nothing() {
    let (model, format) = (model("llama-3.1-8b"), Format::bits(4.0));
    let alone = cluster(&["m3-ultra-256"], None);
    assert_eq!(disaggregate::best(&setting(&model, &format, &alone, &MLX), &WORKLOAD), None);
    let not_joined = cluster(&["dgx-spark", "m3-ultra-256"], None);
    assert_eq!(disaggregate::best(&setting(&model, &format, &not_joined, &MLX), &WORKLOAD), None);
    let alike = cluster(&["m3-ultra-256", "m3-ultra-256"], Link::named("tb5-rdma").ok());
    assert_eq!(
        answer(&setting(&model, &format, &alike, &MLX), &WORKLOAD, Goal::Decode, 5).disaggregated,
        None
    );
    // Each side must hold the whole model.
    let (large, format) = (self::model("llama-3.1-405b"), Format::bits(4.0));
    let small = cluster(&["dgx-spark", "m3-ultra-256"], Link::named("10gbe-tcp").ok());
    assert_eq!(disaggregate::best(&setting(&large, &format, &small, &MLX), &WORKLOAD), None);
}
