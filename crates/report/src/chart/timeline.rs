//! What each machine does when.

use super::{COLOURS, Drawn, Paper, grid, legend, legend_places, picture, printable, text, text_at};
use crate::{ReportError, figures};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

/// One bar of a timeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Index of the machine.
    pub lane: usize,
    /// What it does.
    pub kind: BarKind,
    /// Chunk of the prompt, or group of users: those with odd numbers are drawn in a lighter shade.
    pub item: usize,
    /// In s.
    pub start: f64,
    /// In s.
    pub end: f64,
}

/// What a machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// Works on its layers.
    Compute,
    /// Adds up parts with others.
    Collective,
    /// Sends to the next stage.
    Hop,
}

impl BarKind {
    const ALL: [Self; 3] = [Self::Compute, Self::Collective, Self::Hop];

    fn name(self) -> &'static str {
        match self {
            Self::Compute => "works on its layers",
            Self::Collective => "adds up parts with others",
            Self::Hop => "sends to the next stage",
        }
    }

    fn colour(self) -> RGBColor {
        match self {
            Self::Compute => COLOURS[0],
            Self::Collective => COLOURS[1],
            Self::Hop => COLOURS[2],
        }
    }
}

/// Wider than other pictures: bars may be many.
const WIDTH: u32 = 960;
/// Height of a lane.
const LANE: u32 = 36;
/// Height of the title above all.
const TITLE: u32 = 30;
/// Height of the axis and its title.
const AXIS: u32 = 48;
/// Most letters of a machine's name.
const MOST_LETTERS: usize = 28;

/// A timeline as one SVG picture: a lane per machine.
///
/// # Errors
/// [`ReportError::Bar`] for a bar in no lane or beyond the ends, [`ReportError::End`] for a timeline without length.
pub fn timeline(title: &str, machines: &[String], bars: &[Bar], end: f64) -> Result<String, ReportError> {
    if !(end.is_finite() && end > 0.0) {
        return Err(ReportError::End(end));
    }
    if let Some(wrong) = bars.iter().position(|bar| !bar.fits(machines.len(), end)) {
        return Err(ReportError::Bar(wrong));
    }
    let entries = BarKind::ALL.map(|kind| (kind.name(), kind.colour()));
    let (places, legend_height) = legend_places(&entries.map(|(name, _)| name), WIDTH);
    let above = TITLE + legend_height;
    let height = above + LANE * machines.len().max(1) as u32 + AXIS;
    picture(title, (WIDTH, height), |paper| {
        paper.draw(&Text::new(printable(title), (0, 4), text()))?;
        let (_, below_title) = paper.split_vertically(TITLE);
        legend(&below_title, &entries, &places)?;
        let (_, lanes) = paper.split_vertically(above);
        draw(&lanes, machines, bars, end)
    })
}

impl Bar {
    fn fits(&self, lanes: usize, end: f64) -> bool {
        // Rounding may put the last bar a little beyond the end.
        self.lane < lanes && 0.0 <= self.start && self.start <= self.end && self.end <= end * (1.0 + 1e-9)
    }

    fn style(&self) -> ShapeStyle {
        let opacity = if self.item.is_multiple_of(2) { 1.0 } else { 0.55 };
        self.kind.colour().mix(opacity).filled()
    }
}

fn draw(paper: &Paper<'_>, machines: &[String], bars: &[Bar], end: f64) -> Drawn {
    let (scale, unit) = if end >= 1.0 { (1.0, "s") } else { (1e3, "ms") };
    let names: Vec<String> = machines.iter().map(|name| shortened(&printable(name))).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut chart = ChartBuilder::on(paper)
        .x_label_area_size(AXIS)
        .margin_left(8 * longest as u32 + 12)
        .margin_right(12)
        .build_cartesian_2d(0.0..scale * end, names.len().max(1) as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_max_light_lines(0)
        .bold_line_style(grid())
        .axis_style(grid())
        .label_style(text())
        .x_label_formatter(&|value| figures::tick(*value))
        .x_desc(unit)
        .draw()?;
    for (lane, name) in names.iter().enumerate() {
        let label = EmptyElement::at((0.0, lane as f64 + 0.5))
            + Text::new(name.clone(), (-8, 0), text_at(HPos::Right, VPos::Center));
        chart.draw_series([label])?;
    }
    chart.draw_series(bars.iter().map(|bar| {
        let (top, bottom) = (bar.lane as f64 + 0.15, bar.lane as f64 + 0.85);
        Rectangle::new([(scale * bar.start, top), (scale * bar.end, bottom)], bar.style())
    }))?;
    Ok(())
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= MOST_LETTERS {
        return name.to_owned();
    }
    let kept: String = name.chars().take(MOST_LETTERS - 3).collect();
    format!("{kept}...")
}
