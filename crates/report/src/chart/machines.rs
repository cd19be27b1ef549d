//! Speed against the number of machines.

use super::{Drawn, Paper, WIDTH, colour, grid, picture, text, text_at};
use crate::{ReportError, figures};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};
use pomar_plan::{
    Goal, Setting, Workload,
    answer::{Plan, Range, describe},
    search,
};

const HEIGHT: u32 = 320;

/// How fast the best plan on exactly so many machines is; nothing where none fits.
pub(crate) struct Point {
    machines: usize,
    speed: Option<Range>,
}

/// Every number of machines where all placements can be compared, else those of the plans that are given.
pub(crate) fn points(setting: &Setting<'_>, workload: &Workload, plans: &[Plan]) -> Vec<Point> {
    let count = setting.cluster.nodes().len();
    if count <= search::EXACT { searched(setting, workload) } else { given(plans) }
}

fn searched(setting: &Setting<'_>, workload: &Workload) -> Vec<Point> {
    // Best first, so that the first with a number of machines is the best with it.
    let found = search::search(setting, workload, Goal::Decode, usize::MAX);
    let best = |machines: usize| {
        let placement = &found.iter().find(|found| found.placement.ranks() == machines)?.placement;
        Some(describe(setting, workload, placement, None)?.decode)
    };
    let counts = 1..=setting.cluster.nodes().len();
    counts.map(|machines| Point { machines, speed: best(machines) }).collect()
}

fn given(plans: &[Plan]) -> Vec<Point> {
    let speed = |plan: &Plan| plan.decode.likely;
    let mut plans: Vec<&Plan> = plans.iter().collect();
    plans.sort_by(|a, b| a.machines.len().cmp(&b.machines.len()).then(speed(b).total_cmp(&speed(a))));
    plans.dedup_by_key(|plan| plan.machines.len());
    plans.iter().map(|plan| Point { machines: plan.machines.len(), speed: Some(plan.decode) }).collect()
}

/// A point and its range for each number of machines.
pub(crate) fn machines(name: &str, points: &[Point]) -> Result<String, ReportError> {
    picture(name, (WIDTH, HEIGHT), |paper| draw(paper, points))
}

fn draw(paper: &Paper<'_>, points: &[Point]) -> Drawn {
    let most = points.iter().map(|point| point.machines).max().unwrap_or(1) as u32;
    let ranges: Vec<(u32, Range)> =
        points.iter().filter_map(|point| Some((point.machines as u32, point.speed?))).collect();
    let fastest = ranges.iter().map(|(_, range)| range.high).fold(0.0, f64::max);
    let top = if fastest > 0.0 && fastest.is_finite() { 1.1 * fastest } else { 1.0 };
    let mut chart = ChartBuilder::on(paper)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .margin(8)
        .build_cartesian_2d(0..most + 1, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .y_max_light_lines(0)
        .x_labels(points.len().min(12) + 2)
        .bold_line_style(grid())
        .axis_style(grid())
        .label_style(text())
        .x_label_formatter(&|machines| match *machines {
            machines if machines == 0 || machines > most => String::new(),
            machines => machines.to_string(),
        })
        .y_label_formatter(&|value| figures::tick(*value))
        .x_desc("machines")
        .y_desc("tokens/s, one user")
        .draw()?;
    let line = ranges.iter().map(|(machines, range)| (*machines, range.likely));
    chart.draw_series(LineSeries::new(line.clone(), colour(0).stroke_width(2)))?;
    chart.draw_series(line.map(|point| Circle::new(point, 5, colour(0).filled())))?;
    let whisker = |(machines, range): &(u32, Range)| {
        PathElement::new(vec![(*machines, range.low), (*machines, range.high)], colour(0).stroke_width(2))
    };
    chart.draw_series(ranges.iter().map(whisker))?;
    let missing = points.iter().filter(|point| point.speed.is_none());
    let none = |point: &Point| {
        let style = text_at(HPos::Center, VPos::Bottom);
        Text::new("none", (point.machines as u32, top / 50.0), style)
    };
    chart.draw_series(missing.map(none))?;
    Ok(())
}
