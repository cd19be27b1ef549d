//! The answer for people.

use super::Question;
use crate::output::{print_json, print_line, print_table};
use pomar_plan::{
    Catalogue, Cluster, Link,
    answer::{Answer, PROMPTS, Plan, Shortage, prompts},
    backend,
    budget::Offer,
};
use pomar_report::figures::{
    bytes, count, counted, first_token, known, known_figure, known_range, machines, range,
};
use serde_json::json;

pub(super) fn answer(question: &Question, answer: &Answer, cluster: &Cluster) -> anyhow::Result<()> {
    heading(question)?;
    if let Some(shortage) = &answer.shortage {
        return self::shortage(shortage);
    }
    plans(question, &answer.plans)?;
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

fn plans(question: &Question, plans: &[Plan]) -> anyhow::Result<()> {
    let at_end = format!(">at {}", count(question.context));
    let all = format!(">all {} users", question.users);
    let prompts = prompts(question.context);
    let first: Vec<String> =
        prompts.iter().map(|prompt| format!(">first after {}k", prompt / PROMPTS[0])).collect();
    let mut heading = vec!["split", "machines", ">tokens/s", &at_end];
    if question.users > 1.0 {
        heading.push(&all);
    }
    heading.push(">prompt tokens/s");
    heading.extend(first.iter().map(String::as_str));
    heading.extend([">power", ">J/token", ">against one"]);
    let row = |plan: &Plan| {
        let mut row = vec![plan.split.clone(), machines(plan), range(plan.decode), range(plan.decode_at_end)];
        if question.users > 1.0 {
            row.push(plan.throughput.map_or_else(String::new, range));
        }
        row.push(known_range(plan.prefill));
        row.extend(prompts.iter().map(|prompt| first_token(plan, *prompt)));
        row.push(known(plan.power, " W"));
        row.push(known_figure(plan.energy_per_token));
        row.push(plan.against_one.map_or_else(|| "fits none".into(), |times| format!("{times:.2}x")));
        row
    };
    print_table(&heading, &plans.iter().map(row).collect::<Vec<_>>())
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
    let row = |offer: &Offer| {
        let year = offer.year.map(|year| format!(" ({year})")).unwrap_or_default();
        let price = offer.price.map_or_else(|| "unknown".into(), |price| format!("${}{year}", count(price)));
        let plan = |show: &dyn Fn(&Plan) -> String| offer.plan.as_ref().map_or_else(|| "-".into(), show);
        vec![
            format!("{} x {}", offer.count, offer.machine),
            offer.name.clone(),
            bytes(offer.memory),
            price,
            known(offer.full_power, " W"),
            match &offer.plan {
                Some(plan) => {
                    let price = offer.plan_price.map(|price| format!(", ${}", count(price)));
                    format!("{} on {}{}", plan.split, plan.machines.len(), price.unwrap_or_default())
                }
                None if offer.too_many => "too many for one place".into(),
                None => "does not fit".into(),
            },
            plan(&|plan| range(plan.decode)),
            plan(&|plan| known_range(plan.prefill)),
            plan(&|plan| known_figure(plan.energy_per_token)),
        ]
    };
    let heading = [
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
    let (shown, small): (Vec<&Offer>, Vec<&Offer>) =
        offers.iter().partition(|offer| offer.plan.is_some() || offer.memory >= question.weights);
    print_table(&heading, &shown.into_iter().map(row).collect::<Vec<_>>())?;
    if !small.is_empty() {
        let names: Vec<_> =
            small.iter().map(|offer| format!("{} x {}", offer.count, offer.machine)).collect();
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
