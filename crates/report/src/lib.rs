//! Plans as a page and as pictures, for people who would rather look than read a terminal.
//!
//! Self-contained HTML and SVG as text: no scripts, nothing that a browser would fetch. The colours follow the reader's
//! light or dark setting. This room must never know files, clocks or networks: it gets what [`pomar_plan`] predicted, and
//! gives back a `String`.
//!
//! To read: `page` (what stands where; `report.html` is its template), `chart` (what all pictures share, and one file per
//! picture), [`figures`] and [`tables`] (how numbers and rows are written, on
//! terminals too).

mod chart;
pub mod figures;
mod page;
pub mod tables;

use thiserror::Error;

pub use chart::timeline::{Bar, BarKind, timeline};
pub use page::{offers::offers, plans::plans};

/// What was asked, as the caller knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heading {
    /// The model's name.
    pub model: String,
    /// The weights' format.
    pub format: String,
    /// Bytes of all weights.
    pub weights: f64,
    /// Kinds of the machines, one each.
    pub machines: Vec<String>,
    /// How they are joined.
    pub link: Option<String>,
    /// The program that runs the model.
    pub backend: String,
    /// Tokens of context for each user.
    pub context: f64,
    /// Users at once.
    pub users: f64,
    /// Tokens of the prompt whose speed is predicted.
    pub prompt: f64,
    /// When the catalogue's figures were gathered.
    pub catalogue_date: String,
}

/// Why there is no page or picture.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The template does not go with what it is given.
    #[error("the page cannot be written: {0}")]
    Page(#[from] minijinja::Error),
    /// The picture cannot be drawn.
    #[error("the picture cannot be drawn: {0}")]
    Picture(#[from] plotters::drawing::DrawingAreaErrorKind<std::io::Error>),
    /// A bar of a timeline is in no lane, or its times are not from 0 to the end of all.
    #[error("bar {0} of the timeline has no lane, or is not between the timeline's ends")]
    Bar(usize),
    /// A timeline must end after it starts.
    #[error("a timeline cannot end after {0} s")]
    End(f64),
}
