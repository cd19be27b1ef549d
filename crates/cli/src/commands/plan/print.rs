//! The answer for people.

use super::Question;
use crate::output::{print_json, print_line, print_table};
use pomar_plan::{
    Catalogue, Cluster, Link,
    answer::{Answer, Plan, Shortage},
    backend,
    budget::Offer,
};
use pomar_report::{
    figures::{bytes, count, counted},
    tables,
};
use serde_json::json;

pub(super) fn answer(question: &Question, answer: &Answer, cluster: &Cluster) -> anyhow::Result<()> {
    heading(question)?;
    if let Some(shortage) = &answer.shortage {
        return self::shortage(shortage);
    }
    table(tables::plans(&answer.plans, question.context, question.users))?;
    if let Some(best) = answer.plans.first() {
        details(best, cluster)?;
    }
    if let Some(apart) = &answer.disaggregated {
        print_line("\nFaster for a prompt and 256 tokens")?;
        print_line(format!("  {}", apart.in_words(cluster, question.prompt)))?;
    }
    if !answer.advice.is_empty() {
        print_line("\nFaster with")?;
        for advice in &answer.advice {
            print_line(format!("  {:.2}x  {}", advice.times, advice.what))?;
        }
    }
    Ok(())
}

fn heading(question: &Question) -> anyhow::Result<()> {
    let machines = counted(question.machines.iter().map(String::as_str));
    let on = if machines.is_empty() { String::new() } else { format!(" on {machines}") };
    let link = question.link.as_ref().map(|link| format!(", joined by {link}")).unwrap_or_default();
    print_line(format!(
        "{}, {} weights ({}){on}{link}",
        question.model,
        question.format,
        bytes(question.weights)
    ))?;
    let users = if question.users > 1.0 { format!("{} users", question.users) } else { "one user".into() };
    print_line(format!(
        "{users}, {} tokens of context each, run by {}; ranges hold eight of ten measurements\n",
        count(question.context),
        question.backend
    ))
}

fn table((names, rows): tables::Table) -> anyhow::Result<()> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    print_table(&names, &rows)
}

fn details(plan: &Plan, cluster: &Cluster) -> anyhow::Result<()> {
    print_line(format!("\nThe first, {}, in detail", plan.split))?;
    print_line("  where a token's time goes")?;
    for cause in &plan.causes {
        print_line(format!("  {:>4.0}%  {}", 100.0 * cause.part, cause.what))?;
    }
    let name = |node: usize| cluster.nodes()[node].name.clone();
    let mut rows = Vec::new();
    let ranks =
        plan.placement.stages.iter().flat_map(|stage| stage.ranks.iter().map(move |rank| (stage, rank)));
    for ((stage, rank), memory) in ranks.zip(&plan.memory) {
        rows.push(vec![
            format!("  {}", name(rank.node)),
            format!("{}-{}", stage.layers.start, stage.layers.end - 1),
            format!("{:.0}%", 100.0 * rank.share),
            bytes(memory.weights),
            bytes(memory.cache),
            bytes(memory.base),
            bytes(memory.total()),
            bytes(memory.usable),
        ]);
    }
    print_line("")?;
    print_table(
        &["  machine", ">layers", ">share", ">weights", ">cache", ">program", ">in all", ">of"],
        &rows,
    )
}

fn shortage(shortage: &Shortage) -> anyhow::Result<()> {
    print_line(format!(
        "It does not fit: weights and cache need {}, these machines have {} for them.",
        bytes(shortage.needed),
        bytes(shortage.room)
    ))?;
    for (machine, missing) in shortage.missing.iter().filter(|(_, missing)| *missing > 0.0) {
        print_line(format!("  {machine} lacks {}", bytes(*missing)))?;
    }
    if shortage.fits_with.is_empty() {
        return print_line("Neither fewer bits, nor a shorter context, nor eight more machines make it fit.");
    }
    print_line("It fits with one of")?;
    shortage.fits_with.iter().try_for_each(|change| print_line(format!("  {change}")))
}

pub(super) fn offers(question: &Question, dollars: f64, offers: &[Offer]) -> anyhow::Result<()> {
    heading(question)?;
    let (shown, small): (Vec<&Offer>, Vec<&Offer>) =
        offers.iter().partition(|offer| offer.plan.is_some() || offer.memory >= question.weights);
    table(tables::offers(&shown))?;
    if !small.is_empty() {
        let names: Vec<_> = small.iter().map(|offer| tables::what(offer)).collect();
        print_line(format!("\nToo small for the weights: {}.", names.join(", ")))?;
    }
    print_line(format!(
        "\nAs many of each as ${} buy and can be joined each to each (Macs by their ports, four cards in a box, else \
         eight). List prices as of {}, without tax, cables, or the computer around a \
         card; where the price is unknown, as many as hold what the roomiest offer holds.",
        count(dollars),
        question.catalogue
    ))
}

pub(super) fn list(catalogue: &Catalogue, as_json: bool) -> anyhow::Result<()> {
    let machines: Vec<&str> = catalogue.machine_names().collect();
    let models: Vec<&str> = catalogue.model_names().collect();
    let links: Vec<&str> = Link::names().collect();
    let backends = backend::ALL.map(|backend| backend.id);
    if as_json {
        return print_json(&json!({
            "machines": machines, "models": models, "links": links, "backends": backends
        }));
    }
    for (title, names) in
        [("MACHINES", &machines), ("MODELS", &models), ("LINKS", &links), ("BACKENDS", &backends.to_vec())]
    {
        print_line(title)?;
        names.iter().try_for_each(|name| print_line(format!("  {name}")))?;
    }
    Ok(())
}
