//! The tables of plans and of offers, for terminals and pages alike: headings, `>` before those of numbers, and rows of text.

use crate::{chart::printable, figures};
use pomar_plan::{
    answer::{self, PROMPTS, Plan},
    budget::Offer,
};

/// Headings, and as many cells in each row.
pub type Table = (Vec<String>, Vec<Vec<String>>);

/// Ranked plans, for so many tokens of context and users.
pub fn plans(plans: &[Plan], context: f64, users: f64) -> Table {
    let several = users > 1.0;
    let prompts = answer::prompts(context);
    let mut names: Vec<String> = ["split", "machines", ">tokens/s"].map(String::from).into();
    names.push(format!(">at {}", figures::count(context)));
    names.extend(several.then(|| format!(">all {} users", figures::count(users))));
    names.push(">prompt tokens/s".into());
    names.extend(prompts.iter().map(|prompt| format!(">first after {}k", prompt / PROMPTS[0])));
    names.extend([">power", ">J/token", ">against one"].map(String::from));
    (names, plans.iter().map(|plan| plan_row(plan, several, &prompts)).collect())
}

fn plan_row(plan: &Plan, several: bool, prompts: &[f64]) -> Vec<String> {
    let mut row = vec![
        plan.split.clone(),
        printable(&figures::machines(plan)),
        figures::range(plan.decode),
        figures::range(plan.decode_at_end),
    ];
    row.extend(several.then(|| plan.throughput.map_or_else(String::new, figures::range)));
    row.push(figures::known_range(plan.prefill));
    row.extend(prompts.iter().map(|prompt| figures::first_token(plan, *prompt)));
    row.push(figures::known(plan.power, " W"));
    row.push(figures::known_figure(plan.energy_per_token));
    row.push(
        plan.against_one.map_or_else(|| "fits none".into(), |times| format!("{}x", figures::figure(times))),
    );
    row
}

/// Offers for a budget.
pub fn offers(offers: &[&Offer]) -> Table {
    let names = [
        "what",
        "name",
        ">memory",
        ">list price",
        ">full power",
        "plan",
        ">tokens/s",
        ">prompt tokens/s",
        ">J/token",
    ];
    (names.map(String::from).into(), offers.iter().map(|offer| offer_row(offer)).collect())
}

fn offer_row(offer: &Offer) -> Vec<String> {
    let of_plan = |show: fn(&Plan) -> String| offer.plan.as_ref().map_or_else(|| "-".into(), show);
    let plan = match &offer.plan {
        Some(plan) => {
            let price = offer.plan_price.map(|price| format!(", ${}", figures::count(price)));
            format!("{} on {}{}", plan.split, plan.machines.len(), price.unwrap_or_default())
        }
        None if offer.too_many => "too many for one place".into(),
        None => "does not fit".into(),
    };
    vec![
        what(offer),
        printable(&offer.name),
        figures::bytes(offer.memory),
        price(offer),
        figures::known(offer.full_power, " W"),
        plan,
        of_plan(|plan| figures::range(plan.decode)),
        of_plan(|plan| figures::known_range(plan.prefill)),
        of_plan(|plan| figures::known_figure(plan.energy_per_token)),
    ]
}

/// `4 x m3-ultra-512`.
pub fn what(offer: &Offer) -> String {
    format!("{} x {}", offer.count, printable(&offer.machine))
}

/// The list price and its year, or `unknown`.
pub(crate) fn price(offer: &Offer) -> String {
    let year = offer.year.map(|year| format!(" ({year})")).unwrap_or_default();
    offer.price.map_or_else(|| "unknown".into(), |price| format!("${}{year}", figures::count(price)))
}
