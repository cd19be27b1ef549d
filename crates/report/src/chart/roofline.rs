//! What bounds each step: for every kind of machine the operations/s that its memory allows for how often a byte that is
//! read is used, and those that it can multiply (<https://doi.org/10.1145/1498765.1498785>).

use super::{Drawn, Paper, WIDTH, colour, grid, legend, legend_places, picture, text, text_at};
use crate::{ReportError, figures};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};
use pomar_plan::{
    Machine, Setting, Workload,
    cost::{self, Roof, Step},
};

const HEIGHT: u32 = 360;

/// The bounds of a kind of machine.
struct Kind {
    name: String,
    roof: Roof,
    /// Operations/byte, and operations/s that are predicted, for each step; nothing where the machine's rate would say it
    /// and is not known.
    points: Vec<(f64, Option<f64>)>,
}

/// The steps that are shown, with their names and the letters that stand for them.
fn steps(setting: &Setting<'_>, workload: &Workload) -> Vec<(String, char, Step)> {
    let context = workload.depth;
    let chunk = setting.backend.chunk.min(workload.prompt).max(1.0);
    let middle = (workload.prompt - chunk).max(0.0) / 2.0;
    let mut steps = vec![("a token for one user".into(), 'A', Step::Decode { users: 1.0, context })];
    if workload.users > 1.0 {
        let name = format!("a token for each of {} users", figures::count(workload.users));
        steps.push((name, 'B', Step::Decode { users: workload.users, context }));
    }
    let name = format!("{} tokens of a prompt", figures::count(chunk));
    steps.push((name, 'P', Step::Prefill { tokens: chunk, context: middle }));
    steps
}

/// What the letters of the picture mean.
pub(crate) fn letters(setting: &Setting<'_>, workload: &Workload) -> String {
    let steps = steps(setting, workload);
    let words: Vec<_> = steps.iter().map(|(name, letter, _)| format!("{letter}: {name}")).collect();
    words.join("; ")
}

fn kinds(setting: &Setting<'_>, workload: &Workload) -> Vec<Kind> {
    let mut machines: Vec<&Machine> = Vec::new();
    for node in setting.cluster.nodes() {
        if !machines.iter().any(|known| known.id == node.machine.id) {
            machines.push(&node.machine);
        }
    }
    let steps = steps(setting, workload);
    let kind = |machine: &Machine| Kind {
        name: machine.id.clone(),
        roof: cost::roof(setting.model, machine, setting.backend),
        points: steps.iter().map(|(_, _, step)| point(setting, machine, *step)).collect(),
    };
    machines.into_iter().map(kind).collect()
}

fn point(setting: &Setting<'_>, machine: &Machine, step: Step) -> (f64, Option<f64>) {
    let work = cost::work(setting.model, setting.format, setting.backend, step);
    let times = cost::layer_times(setting.model, setting.format, machine, setting.backend, step);
    let time: f64 = times.iter().map(|time| time.shared() + time.fixed).sum();
    // One token reads far more than it multiplies on any machine.
    let is_known = machine.rate > 0.0 || matches!(step, Step::Decode { users: 1.0, .. });
    (work.operations / work.bytes, is_known.then_some(work.operations / time))
}

/// A roof per kind of machine, and on or under it the steps of the workload.
pub(crate) fn roofline(
    name: &str,
    setting: &Setting<'_>,
    workload: &Workload,
) -> Result<String, ReportError> {
    let kinds = kinds(setting, workload);
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    let (places, legend_height) = legend_places(&names, WIDTH);
    picture(name, (WIDTH, HEIGHT + legend_height), |paper| {
        let entries: Vec<_> = names.iter().enumerate().map(|(i, name)| (*name, colour(i))).collect();
        legend(paper, &entries, &places)?;
        let (_, below) = paper.split_vertically(legend_height);
        let letters: Vec<char> = steps(setting, workload).iter().map(|(_, letter, _)| *letter).collect();
        draw(&below, &kinds, &letters)
    })
}

impl Kind {
    /// Operations/s at most.
    fn attainable(&self, intensity: f64) -> f64 {
        let by_memory = intensity * self.roof.bandwidth;
        self.roof.rate.map_or(by_memory, |rate| rate.min(by_memory))
    }

    /// Operations/byte at which the two bounds meet.
    fn ridge(&self) -> Option<f64> {
        self.roof.rate.map(|rate| rate / self.roof.bandwidth)
    }
}

/// Decades around some numbers; a decade around 1 where there are none that can be drawn.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let drawable = values.filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = drawable.fold((f64::MAX, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    if high == 0.0 {
        return (1.0, 10.0);
    }
    let (low, high) = (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil()));
    if low < high { (low, high) } else { (low, 10.0 * low) }
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoordinate, LogCoordinate>>;
type LogCoordinate = plotters::coord::combinators::LogCoord<f64>;

fn draw(paper: &Paper<'_>, kinds: &[Kind], letters: &[char]) -> Drawn {
    let points = || kinds.iter().flat_map(|kind| &kind.points);
    let ridges = kinds.iter().filter_map(Kind::ridge);
    let (left, right) = decades(points().map(|(intensity, _)| *intensity).chain(ridges));
    let ends = kinds.iter().flat_map(|kind| [left, right].map(|intensity| kind.attainable(intensity)));
    let (bottom, top) = decades(ends.chain(points().filter_map(|(_, reached)| *reached)));
    let mut chart = ChartBuilder::on(paper)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .margin(8)
        .margin_right(28)
        .build_cartesian_2d((left..right).log_scale(), (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .x_max_light_lines(0)
        .y_max_light_lines(0)
        .bold_line_style(grid())
        .axis_style(grid())
        .label_style(text())
        .x_label_formatter(&|value| figures::tick(*value))
        .y_label_formatter(&|value| figures::tick(*value))
        .x_desc("operations per byte read")
        .y_desc("operations/s")
        .draw()?;
    for (i, kind) in kinds.iter().enumerate() {
        // Letters of machines that are close to each other do not cover each other.
        let beside = if i.is_multiple_of(2) { (-16, -9) } else { (9, 9) };
        draw_kind(&mut chart, kind, colour(i), beside, (left, right), letters)?;
    }
    Ok(())
}

fn draw_kind(
    chart: &mut Chart<'_, '_>,
    kind: &Kind,
    colour: RGBColor,
    beside: (i32, i32),
    (left, right): (f64, f64),
    letters: &[char],
) -> Drawn {
    let ridge = kind.ridge().filter(|ridge| (left..right).contains(ridge));
    let corners = [Some(left), ridge, Some(right)].into_iter().flatten();
    let roof = corners.map(|intensity| (intensity, kind.attainable(intensity)));
    chart.draw_series(LineSeries::new(roof, colour.stroke_width(2)))?;
    for ((intensity, reached), letter) in kind.points.iter().zip(letters) {
        let Some(reached) = reached.filter(|reached| reached.is_finite() && *reached > 0.0) else { continue };
        chart.draw_series([Circle::new((*intensity, reached), 5, colour.filled())])?;
        let label = EmptyElement::at((*intensity, reached))
            + Text::new(letter.to_string(), beside, text_at(HPos::Left, VPos::Center));
        chart.draw_series([label])?;
    }
    Ok(())
}
