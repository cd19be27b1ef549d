//! The page for ranked plans, or for what is missing when there are none.

use super::{Advice, Detail, Fact, Memory, Missing, Page, Part, Picture, Shortage, Table, facts};
use crate::{
    Heading, ReportError,
    chart::{bars, machines, printable, roofline},
    figures, tables,
};
use pomar_plan::{
    Goal, Setting, Workload,
    answer::{self, Answer, Plan},
    cost::Step,
    predict::{NodeMemory, Rank, Stage},
};

/// The page for ranked plans.
///
/// # Errors
/// [`ReportError`] when a picture cannot be drawn.
pub fn plans(
    heading: &Heading,
    setting: &Setting<'_>,
    workload: &Workload,
    goal: Goal,
    answer: &Answer,
) -> Result<String, ReportError> {
    let mut facts = facts(heading);
    facts.push(Fact { name: "Best first by", value: goal_name(goal).into() });
    let mut page = Page::new(format!("Plans for {}", printable(&heading.model)), facts);
    page.shortage = answer.shortage.as_ref().map(shortage);
    if answer.plans.is_empty() {
        return page.write();
    }
    page.table = Table::new(tables::plans(&answer.plans, heading.context, heading.users));
    page.notes.push("Ranges hold eight of ten measurements.".into());
    if let Some(apart) = &answer.disaggregated {
        let words = apart.in_words(setting.cluster, workload.prompt);
        page.notes.push(format!("Faster for a prompt and 256 tokens: {}.", printable(&words)));
    }
    page.pictures = pictures(setting, workload, &answer.plans)?;
    page.details = answer.plans.iter().map(|plan| detail(setting, plan)).collect();
    page.advice = answer.advice.iter().map(advice).collect();
    page.write()
}

fn goal_name(goal: Goal) -> &'static str {
    match goal {
        Goal::Decode => "time per token for one user",
        Goal::FirstToken => "time from a prompt to its first new token",
        Goal::Throughput => "tokens per second of all users together",
        Goal::Power => "energy per token",
        Goal::Machines => "fewest machines",
    }
}

fn pictures(setting: &Setting<'_>, workload: &Workload, plans: &[Plan]) -> Result<Vec<Picture>, ReportError> {
    let (time, speed, bounds) = ("Where a token's time goes", "More machines", "What bounds a step");
    let points = machines::points(setting, workload, plans);
    Ok(vec![
        Picture {
            title: time,
            svg: bars::bars(time, "ms per token for one user", &CAUSES, &causes(setting, workload, plans))?,
            note: String::new(),
        },
        Picture {
            title: speed,
            svg: machines::machines(speed, &points)?,
            note: "The fastest plan for one user on each number of these machines; the line upright through \
                   a point is its range. \"none\": no plan on exactly so many fits."
                .into(),
        },
        Picture {
            title: bounds,
            svg: roofline::roofline(bounds, setting, workload)?,
            note: format!(
                "{}. Each line is what a kind of machine can reach at most, sloping where its memory bounds it and \
                 level where its arithmetic does; a machine without a level part has a rate that is not known. A \
                 letter is what is predicted when one machine has all the layers; below the line is time that the \
                 program takes for itself.",
                roofline::letters(setting, workload)
            ),
        },
    ])
}

/// Kinds of causes, as [`causes`] lists their times.
const CAUSES: [&str; 5] = [
    "memory bandwidth",
    "compute",
    "the program's own time",
    "adding up the ranks' parts",
    "borders between stages",
];

fn causes(setting: &Setting<'_>, workload: &Workload, plans: &[Plan]) -> Vec<bars::Row> {
    let step = Step::Decode { users: 1.0, context: workload.depth };
    let row = |plan: &Plan| {
        let breakdown = setting.step(&plan.placement, step)?;
        let mut parts = [0.0; CAUSES.len()];
        for stage in &breakdown.stages {
            parts[0] += stage.memory;
            parts[1] += stage.compute;
            parts[2] += stage.overhead;
            parts[3] += stage.collectives;
        }
        parts[4] = breakdown.hops.iter().sum();
        let milliseconds = parts.iter().map(|seconds| 1e3 * seconds).collect();
        Some(bars::Row {
            label: figures::plan(plan),
            parts: milliseconds,
            note: figures::time(breakdown.total()),
        })
    };
    plans.iter().filter_map(row).collect()
}

fn detail(setting: &Setting<'_>, plan: &Plan) -> Detail {
    let ranks =
        plan.placement.stages.iter().flat_map(|stage| stage.ranks.iter().map(move |rank| (stage, rank)));
    let memory = ranks.zip(&plan.memory).map(|((stage, rank), memory)| filled(setting, stage, rank, memory));
    let cause = |cause: &answer::Cause| Part {
        percent: percent_of(cause.part, 1.0),
        text: figures::percent(cause.part),
        what: printable(&cause.what),
    };
    Detail {
        title: printable(&figures::plan(plan)),
        causes: plan.causes.iter().map(cause).collect(),
        memory: memory.collect(),
    }
}

fn filled(setting: &Setting<'_>, stage: &Stage, rank: &Rank, memory: &NodeMemory) -> Memory {
    let part = |bytes: f64, what: &str| Part {
        percent: percent_of(bytes, memory.usable),
        text: figures::bytes(bytes),
        what: what.into(),
    };
    let name = setting.cluster.nodes().get(rank.node).map(|node| node.name.as_str());
    Memory {
        machine: printable(name.unwrap_or("unknown")),
        layers: format!(
            "{} of layers {} to {}",
            figures::percent(rank.share),
            stage.layers.start,
            stage.layers.end.saturating_sub(1)
        ),
        parts: vec![
            part(memory.weights, "weights"),
            part(memory.cache, "cache"),
            part(memory.base, "program"),
        ],
        all: figures::bytes(memory.total()),
        usable: figures::bytes(memory.usable),
    }
}

/// Length of a bar, to a tenth of a percent.
fn percent_of(part: f64, whole: f64) -> f64 {
    let percent = 100.0 * part / whole;
    if percent.is_finite() { (10.0 * percent.clamp(0.0, 100.0)).round() / 10.0 } else { 0.0 }
}

fn advice(advice: &answer::Advice) -> Advice {
    Advice { times: format!("{}x", figures::figure(advice.times)), what: printable(&advice.what) }
}

fn shortage(shortage: &answer::Shortage) -> Shortage {
    let missing = shortage.missing.iter().filter(|(_, bytes)| *bytes > 0.0);
    Shortage {
        needed: figures::bytes(shortage.needed),
        room: figures::bytes(shortage.room),
        missing: missing
            .map(|(machine, bytes)| Missing { machine: printable(machine), bytes: figures::bytes(*bytes) })
            .collect(),
        fits_with: shortage.fits_with.iter().map(|change| printable(change)).collect(),
    }
}
