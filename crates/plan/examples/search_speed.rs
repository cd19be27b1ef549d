//! How long the search takes: eight unequal machines for each goal, and sixty-four.
//!
//! `cargo run --release -p pomar-plan --example search_speed`

use pomar_plan::{Catalogue, Cluster, Format, Goal, Link, Node, Setting, Workload, backend, search};
use std::time::Instant;

const KINDS: [&str; 8] = [
    "m3-ultra-512",
    "m3-ultra-256",
    "m2-ultra-192",
    "m4-max-128",
    "m5-max-128",
    "m1-ultra-128",
    "m3-max-96",
    "m4-pro-64",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let catalogue = Catalogue::built_in();
    let model = catalogue.model("deepseek-v3.1")?;
    let format: Format = "4bit".parse()?;
    let workload = Workload { context: 32_768.0, users: 4.0, depth: 1024.0, prompt: 8192.0 };
    for count in [8, 64] {
        let mut nodes = Vec::new();
        for i in 0..count {
            let mut machine = catalogue.machine(KINDS[i % KINDS.len()])?;
            // No two alike.
            machine.bandwidth *= 1.0 + i as f64 / 1000.0;
            nodes.push(Node { name: i.to_string(), machine });
        }
        let cluster = Cluster::uniform(nodes, Some(Link::named("tb5-rdma")?));
        for (backend, name) in [(backend::MLX, "one step at a time"), (backend::DS4, "steps side by side")] {
            let setting = Setting { model: &model, format: &format, cluster: &cluster, backend: &backend };
            for goal in [Goal::Decode, Goal::FirstToken, Goal::Throughput, Goal::Power, Goal::Machines] {
                let began = Instant::now();
                let found = search(&setting, &workload, goal, 10);
                let took = began.elapsed().as_secs_f64() * 1e3;
                println!("{count:3} machines, {name}, {goal:?}: {took:7.1} ms, {} plans", found.len());
            }
        }
    }
    Ok(())
}
