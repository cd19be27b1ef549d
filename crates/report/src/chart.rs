//! What all pictures share: paper, colours, text, a legend. Sizes are in units of the picture, which is drawn as wide as
//! there is room.

pub(crate) mod bars;
pub(crate) mod machines;
pub(crate) mod roofline;
pub(crate) mod timeline;

use crate::ReportError;
use plotters::{
    coord::Shift,
    drawing::DrawingAreaErrorKind,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

pub(crate) type Paper<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Narrow enough for a phone to show its text.
pub(crate) const WIDTH: u32 = 520;

/// Stands for the colour of the text around the picture, which the page knows: see [`picture`].
pub(crate) const INK: RGBColor = RGBColor(1, 1, 1);
const INK_IN_SVG: &str = "#010101";

/// Told apart by colour-blind people, and seen on white as on black (Okabe and Ito, <https://jfly.uni-koeln.de/color/>).
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// One of the colours; they come again when there are none left.
pub(crate) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

pub(crate) fn grid() -> ShapeStyle {
    INK.mix(0.15).stroke_width(1)
}

/// Text in the size of labels.
pub(crate) fn text<'a>() -> TextStyle<'a> {
    ("sans-serif", LABEL).into_font().color(&INK)
}

/// Height of labels, as plotters counts it: a quarter more than the size of the font.
const LABEL: u32 = 17;

pub(crate) fn text_at<'a>(horizontal: HPos, vertical: VPos) -> TextStyle<'a> {
    text().pos(Pos::new(horizontal, vertical))
}

/// A picture as SVG, with a name for those who cannot see it.
pub(crate) fn picture(
    name: &str,
    size: (u32, u32),
    draw: impl FnOnce(&Paper<'_>) -> Drawn,
) -> Result<String, ReportError> {
    let mut svg = String::new();
    {
        let paper = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&paper)?;
        paper.present()?;
    }
    let title = format!(">\n<title>{}</title>\n", minijinja::HtmlEscape(&printable(name)));
    let named = svg.replacen("<svg ", "<svg role=\"img\" ", 1).replacen(">\n", &title, 1);
    Ok(named.replace(INK_IN_SVG, "currentColor"))
}

/// XML has no place for control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Height of a line of a legend.
const LEGEND_LINE: i32 = 20;
/// Width of a letter of a label, about.
const LETTER: i32 = 8;
/// From the left of a legend's mark to its word.
const AFTER_MARK: i32 = 16;

/// Where each entry of a legend goes, and the height of all.
pub(crate) fn legend_places(names: &[&str], width: u32) -> (Vec<(i32, i32)>, u32) {
    let (mut x, mut y) = (0, 0);
    let mut places = Vec::new();
    for name in names {
        let wide = AFTER_MARK + LETTER * (name.chars().count() as i32 + 2);
        if x > 0 && x + wide > width as i32 {
            (x, y) = (0, y + LEGEND_LINE);
        }
        places.push((x, y));
        x += wide;
    }
    (places, (y + LEGEND_LINE) as u32)
}

/// Squares with names, from the top left corner.
pub(crate) fn legend(paper: &Paper<'_>, entries: &[(&str, RGBColor)], places: &[(i32, i32)]) -> Drawn {
    for ((name, colour), (x, y)) in entries.iter().zip(places) {
        paper.draw(&Rectangle::new([(*x, y + 3), (x + 11, y + 14)], colour.filled()))?;
        paper.draw(&Text::new(
            printable(name),
            (x + AFTER_MARK, y + 9),
            text_at(HPos::Left, VPos::Center),
        ))?;
    }
    Ok(())
}
