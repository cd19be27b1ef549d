//! Random models, machines and links.

use pomar_plan::{
    Cluster, Link, Machine, Maker, Model, Node,
    model::{Attention, Layer, Mlp},
};
use proptest::prelude::*;

/// A small model: its first layer is dense, the others have experts.
fn model(layers: usize, hidden: f64, kv_heads: f64) -> Model {
    let attention = Attention::Grouped { heads: 32.0, kv_heads, head_dim: 128.0, window: None, gated: false };
    let experts = Mlp::Experts { count: 64.0, active: 4.0, width: hidden / 2.0, hidden, shared: 0.0 };
    let mlp = |i| if i == 0 { Mlp::Dense { width: 3.0 * hidden } } else { experts };
    let layers = (0..layers).map(|i| Layer { attention, mlp: mlp(i) }).collect();
    Model { id: "drawn".into(), hidden, vocab: 50_000.0, tied: false, context: 0, layers }
}

pub(crate) fn machine(memory: f64, bandwidth: f64, rate: f64) -> Machine {
    let memory = memory * 1e9;
    Machine {
        id: "drawn".into(),
        name: "drawn".into(),
        maker: Maker::Apple,
        memory,
        usable: Machine::usable(Maker::Apple, memory, true, false),
        unified: true,
        bandwidth: bandwidth * 1e9,
        two_dies: false,
        rate: rate * 1e12,
        idle_power: Some(10.0),
        full_power: Some(10.0 + bandwidth / 4.0),
        price: None,
        year: None,
        rdma: true,
        ports: 4,
    }
}

pub(crate) fn machines(most: usize) -> impl Strategy<Value = Vec<Machine>> {
    let one = (16.0..200.0_f64, 100.0..1000.0_f64, 2.0..40.0_f64);
    // Some are alike.
    let some = prop::collection::vec((one, 1..3_usize), 1..=most);
    some.prop_map(move |kinds| {
        let alike = kinds
            .into_iter()
            .flat_map(|((memory, bandwidth, rate), count)| vec![machine(memory, bandwidth, rate); count]);
        alike.take(most).collect()
    })
}

/// Links between each two of some machines; about one in eight is missing.
pub(crate) fn links(machines: usize) -> impl Strategy<Value = Vec<Option<Link>>> {
    let link = (5.0..400.0_f64, 0.1..10.0_f64)
        .prop_map(|(us, gigabytes)| Link { latency: us * 1e-6, bandwidth: gigabytes * 1e9 });
    prop::collection::vec(prop::option::weighted(0.88, link), machines * machines)
}

pub(crate) fn clusters(most: usize) -> impl Strategy<Value = Cluster> {
    machines(most).prop_flat_map(|machines| {
        let count = machines.len();
        (Just(machines), links(count)).prop_map(|(machines, links)| joined(machines, &links))
    })
}

pub(crate) fn joined(machines: Vec<Machine>, links: &[Option<Link>]) -> Cluster {
    let count = machines.len();
    let nodes = machines.into_iter().enumerate();
    let nodes = nodes.map(|(i, machine)| Node { name: i.to_string(), machine }).collect();
    Cluster::new(nodes, |a, b| links[a * count + b])
}

pub(crate) fn models(layers: std::ops::Range<usize>) -> impl Strategy<Value = Model> {
    (layers, 4_u32..40, 1_u32..9)
        .prop_map(|(layers, width, heads)| model(layers, f64::from(width) * 256.0, heads.into()))
}
