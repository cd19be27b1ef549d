//! The answer as files: a page, and the timeline of the first plan.

use super::Question;
use anyhow::Context;
use pomar_plan::{Placement, Setting, Timeline, simulate::What};
use pomar_report::{Bar, BarKind, Heading};
use std::{collections::BTreeMap, fs, path::Path};

/// Tokens that a timeline shows after the prompt.
const TOKENS: usize = 4;

/// A picture of more would be too much for a browser.
const MOST_BARS: usize = 10_000;

impl From<&Question> for Heading {
    fn from(question: &Question) -> Self {
        Self {
            model: question.model.clone(),
            format: question.format.clone(),
            weights: question.weights,
            machines: question.machines.clone(),
            link: question.link.clone(),
            backend: question.backend.clone(),
            context: question.context,
            users: question.users,
            prompt: question.prompt,
            catalogue_date: question.catalogue.to_owned(),
        }
    }
}

/// Writes what was made, and says where.
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// A prompt, and the first tokens after it, event by event.
pub(super) fn timeline(
    setting: &Setting<'_>,
    question: &Question,
    placement: &Placement,
) -> anyhow::Result<String> {
    let joined = "the plan's machines are joined";
    let prompt = setting.simulate_prompt(placement, question.prompt, 0.0).context(joined)?;
    let tokens = setting.simulate_decode(placement, 1.0, question.prompt, TOKENS).context(joined)?;
    let nodes: Vec<usize> = placement.stages.iter().flat_map(pomar_plan::Stage::nodes).collect();
    let mut bars = bars(placement, &nodes, &prompt, 0.0, 0);
    bars.extend(self::bars(placement, &nodes, &tokens, prompt.end, prompt.done.len()));
    if bars.len() > MOST_BARS {
        bars = one_bar_each(&bars);
    }
    let machines: Vec<String> =
        nodes.iter().map(|node| setting.cluster.nodes()[*node].name.clone()).collect();
    let title = format!(
        "{}: a prompt of {} tokens and the {TOKENS} tokens after it, by {}",
        question.model, question.prompt, question.backend
    );
    Ok(pomar_report::timeline(&title, &machines, &bars, prompt.end + tokens.end)?)
}

/// A timeline's bars, `begin` s and `before` items later.
fn bars(placement: &Placement, nodes: &[usize], timeline: &Timeline, begin: f64, before: usize) -> Vec<Bar> {
    let mut bars = Vec::new();
    for span in &timeline.spans {
        let mut add = |node: usize, kind, item| {
            let lane = nodes.iter().position(|other| *other == node);
            let bar = |lane| Bar {
                lane,
                kind,
                item: before + item,
                start: begin + span.start,
                end: begin + span.end,
            };
            bars.extend(lane.map(bar));
        };
        match span.what {
            What::Compute { item, .. } => add(span.node, BarKind::Compute, item),
            What::Hop { item } => add(span.node, BarKind::Hop, item),
            // All ranks of the stage take part.
            What::Collective { item, .. } => {
                placement.stages[span.stage]
                    .nodes()
                    .into_iter()
                    .for_each(|node| add(node, BarKind::Collective, item));
            }
        }
    }
    bars
}

/// For each machine, and each chunk or token, one bar from its first beginning to its last end.
fn one_bar_each(bars: &[Bar]) -> Vec<Bar> {
    let mut whole: BTreeMap<(usize, usize), Bar> = BTreeMap::new();
    for bar in bars {
        let known = whole.entry((bar.lane, bar.item)).or_insert(Bar { kind: BarKind::Compute, ..*bar });
        known.start = known.start.min(bar.start);
        known.end = known.end.max(bar.end);
    }
    whole.into_values().collect()
}
