//! Bars side by side, each made of parts.

use super::{Drawn, Paper, WIDTH, colour, grid, legend, legend_places, picture, printable, text, text_at};
use crate::{ReportError, figures};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

/// One bar.
pub(crate) struct Row {
    /// Stands over it.
    pub(crate) label: String,
    /// One length for each of the picture's kinds; nothing where a length is not known.
    pub(crate) parts: Vec<f64>,
    /// Stands at its end.
    pub(crate) note: String,
}

/// Height of a bar with its label.
const ROW: u32 = 44;
/// Height of the axis and its title.
const AXIS: u32 = 48;
/// What the longest bar leaves for its note, as a share of its length.
const ROOM_FOR_NOTES: f64 = 0.3;

/// Bars from left to right, one below the other. `kinds` are what parts are; with one kind there is no legend.
pub(crate) fn bars(name: &str, unit: &str, kinds: &[&str], rows: &[Row]) -> Result<String, ReportError> {
    let (places, legend_height) = if kinds.len() > 1 { legend_places(kinds, WIDTH) } else { (Vec::new(), 0) };
    let height = legend_height + ROW * rows.len() as u32 + AXIS;
    picture(name, (WIDTH, height), |paper| {
        let entries: Vec<_> = kinds.iter().enumerate().map(|(i, kind)| (*kind, colour(i))).collect();
        legend(paper, &entries, &places)?;
        let (_, below) = paper.split_vertically(legend_height);
        draw(&below, unit, rows)
    })
}

fn draw(paper: &Paper<'_>, unit: &str, rows: &[Row]) -> Drawn {
    let longest = rows.iter().map(Row::length).fold(0.0, f64::max);
    let with_notes = longest * (1.0 + ROOM_FOR_NOTES);
    let end = if with_notes > 0.0 && with_notes.is_finite() { with_notes } else { 1.0 };
    let mut chart = ChartBuilder::on(paper)
        .x_label_area_size(AXIS)
        .margin_left(8)
        .margin_right(12)
        .build_cartesian_2d(0.0..end, rows.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(6)
        .x_max_light_lines(0)
        .bold_line_style(grid())
        .axis_style(grid())
        .label_style(text())
        .x_label_formatter(&|value| figures::tick(*value))
        .x_desc(unit)
        .draw()?;
    for (i, row) in rows.iter().enumerate() {
        let top = i as f64;
        let label = Text::new(printable(&row.label), (0.0, top + 0.3), text_at(HPos::Left, VPos::Center));
        chart.draw_series([label])?;
        chart.draw_series(row.pieces().map(|(kind, from, to)| {
            Rectangle::new([(from, top + 0.5), (to, top + 0.9)], colour(kind).filled())
        }))?;
        let after = row.length() + end / 100.0;
        let note = Text::new(printable(&row.note), (after, top + 0.7), text_at(HPos::Left, VPos::Center));
        chart.draw_series([note])?;
    }
    Ok(())
}

impl Row {
    /// Lengths that can be drawn.
    fn lengths(&self) -> impl Iterator<Item = f64> {
        self.parts.iter().map(|part| if part.is_finite() { part.max(0.0) } else { 0.0 })
    }

    fn length(&self) -> f64 {
        self.lengths().sum()
    }

    /// Kind, start and end of each part.
    fn pieces(&self) -> impl Iterator<Item = (usize, f64, f64)> {
        self.lengths().enumerate().scan(0.0, |end, (kind, length)| {
            let start = *end;
            *end += length;
            Some((kind, start, *end))
        })
    }
}
