//! What a sum of money buys: for each kind of machine as many as it pays for, and how a model runs on them.

use crate::{
    Backend, Catalogue, Cluster, Format, Goal, Machine, Maker, Model, Node, Setting, Workload,
    answer::{self, Plan},
    search,
};
use serde::Serialize;

/// Cards in one workstation.
const CARDS: usize = 4;

/// Most machines of a kind that are put together: Macs have a cable to each other one, cards are in one box, and boxes are
/// as many as the search compares exhaustively.
pub fn most_together(machine: &Machine) -> usize {
    match machine.maker {
        Maker::Apple if machine.ports > 0 => (machine.ports as usize + 1).min(search::EXACT),
        Maker::Nvidia if !machine.unified => CARDS,
        _ => search::EXACT,
    }
}

/// Machines of one kind for a budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Offer {
    /// The machine.
    pub machine: String,
    /// The name on the box.
    pub name: String,
    /// How many; the plan may use fewer.
    pub count: usize,
    /// Bytes of memory of all.
    pub memory: f64,
    /// US dollars for all; `None` where the price is not known.
    pub price: Option<f64>,
    /// Year of the price.
    pub year: Option<u64>,
    /// W of all at full power, where known.
    pub full_power: Option<f64>,
    /// More than can be put together in one place ([`most_together`]), so that nothing is predicted.
    pub too_many: bool,
    /// The fastest plan, where the model fits.
    pub plan: Option<Plan>,
    /// US dollars for the machines that the plan uses.
    pub plan_price: Option<f64>,
}

/// For each kind as many as the budget pays for, and the fastest plan on them, which may use fewer; kinds whose price is
/// not known last, with as many as hold what the roomiest offer holds. Fastest first, then by memory. None when the sum buys
/// nothing.
pub fn offers(
    catalogue: &Catalogue,
    model: &Model,
    format: &Format,
    workload: &Workload,
    dollars: f64,
    backend: Option<Backend>,
) -> Vec<Offer> {
    let for_sale = catalogue.for_sale();
    let within = |machine: &Machine| {
        machine.price.map_or(0, |price| (dollars / price) as usize).min(most_together(machine))
    };
    let mut offers: Vec<Offer> = for_sale
        .iter()
        .filter(|machine| within(machine) > 0)
        .map(|machine| offer(model, format, workload, machine, within(machine), backend))
        .collect();
    if offers.is_empty() {
        return offers;
    }
    let roomiest = offers.iter().map(|offer| offer.memory).fold(0.0, f64::max);
    for machine in catalogue.without_price() {
        let count = (roomiest / machine.memory).ceil().max(1.0) as usize;
        let most = most_together(&machine);
        let mut one = offer(model, format, workload, &machine, count.min(most), backend);
        one.count = count;
        one.memory = count as f64 * machine.memory;
        one.full_power = machine.full_power.map(|watts| watts * count as f64);
        one.plan = one.plan.filter(|_| count <= most);
        one.too_many = count > most;
        offers.push(one);
    }
    let speed = |offer: &Offer| offer.plan.as_ref().map_or(0.0, |plan| plan.decode.likely);
    let known = |offer: &Offer| offer.price.is_some();
    offers.sort_by(|a, b| {
        let by_speed = speed(b).total_cmp(&speed(a)).then(b.memory.total_cmp(&a.memory));
        known(b).cmp(&known(a)).then(by_speed)
    });
    offers
}

fn offer(
    model: &Model,
    format: &Format,
    workload: &Workload,
    machine: &Machine,
    most: usize,
    backend: Option<Backend>,
) -> Offer {
    let backend = backend.unwrap_or_else(|| Backend::usual(machine.maker));
    let cluster = alike(machine, most);
    let setting = Setting { model, format, cluster: &cluster, backend: &backend };
    let found = search::search(&setting, workload, Goal::Decode, 1).pop();
    let plan = found.and_then(|found| answer::describe(&setting, workload, &found.placement, None));
    let plan_price = machine.price.zip(plan.as_ref()).map(|(price, plan)| price * plan.machines.len() as f64);
    Offer {
        machine: machine.id.clone(),
        name: machine.name.clone(),
        count: most,
        memory: most as f64 * machine.memory,
        price: machine.price.map(|price| price * most as f64),
        year: machine.year,
        full_power: machine.full_power.map(|watts| watts * most as f64),
        too_many: false,
        plan,
        plan_price,
    }
}

fn alike(machine: &Machine, count: usize) -> Cluster {
    let node = |i: usize| Node { name: format!("{} #{}", machine.id, i + 1), machine: machine.clone() };
    Cluster::uniform((0..count).map(node).collect(), answer::usual_link(machine))
}
