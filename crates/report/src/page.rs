//! What stands where on a page; `report.html` says how it looks.

pub(crate) mod offers;
pub(crate) mod plans;

use crate::{Heading, ReportError, chart::printable, figures};
use minijinja::{Environment, value::Serde};
use serde::Serialize;

const TEMPLATE: &str = include_str!("report.html");

/// All that the template knows. What is empty is left out of the page.
#[derive(Default, Serialize)]
struct Page {
    title: String,
    facts: Vec<Fact>,
    table: Table,
    /// Stands below the table.
    notes: Vec<String>,
    pictures: Vec<Picture>,
    details: Vec<Detail>,
    advice: Vec<Advice>,
    shortage: Option<Shortage>,
}

#[derive(Serialize)]
struct Fact {
    name: &'static str,
    value: String,
}

#[derive(Default, Serialize)]
struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct Column {
    name: String,
    /// Stands at the right of its column.
    number: bool,
}

#[derive(Serialize)]
struct Picture {
    title: &'static str,
    /// Put into the page as it is.
    svg: String,
    note: String,
}

/// A plan in detail.
#[derive(Serialize)]
struct Detail {
    title: String,
    causes: Vec<Part>,
    memory: Vec<Memory>,
}

/// A part of a whole, with its length in percent for a bar.
#[derive(Serialize)]
struct Part {
    percent: f64,
    text: String,
    what: String,
}

/// What fills a machine.
#[derive(Serialize)]
struct Memory {
    machine: String,
    /// Layers and share of them.
    layers: String,
    parts: Vec<Part>,
    all: String,
    usable: String,
}

#[derive(Serialize)]
struct Advice {
    times: String,
    what: String,
}

/// Why nothing fits.
#[derive(Serialize)]
struct Shortage {
    needed: String,
    room: String,
    missing: Vec<Missing>,
    fits_with: Vec<String>,
}

#[derive(Serialize)]
struct Missing {
    machine: String,
    bytes: String,
}

impl Page {
    fn new(title: String, facts: Vec<Fact>) -> Self {
        Self { title, facts, ..Self::default() }
    }

    fn write(&self) -> Result<String, ReportError> {
        let mut environment = Environment::new();
        // The ending of the name makes every value be escaped.
        environment.add_template("report.html", TEMPLATE)?;
        Ok(environment.get_template("report.html")?.render(Serde(self))?)
    }
}

impl Table {
    /// Names of columns; a `>` before a name puts its column's numbers at the right.
    fn new((names, rows): crate::tables::Table) -> Self {
        let column = |name: &String| match name.strip_prefix('>') {
            Some(name) => Column { name: name.to_owned(), number: true },
            None => Column { name: name.clone(), number: false },
        };
        Self { columns: names.iter().map(column).collect(), rows }
    }
}

/// What both pages say of the question.
fn facts(heading: &Heading) -> Vec<Fact> {
    let users = if heading.users > 1.0 { figures::count(heading.users) } else { "one".into() };
    let weights = format!("{}, {}", heading.format, figures::bytes(heading.weights));
    let tokens = |count: f64| format!("{} tokens", figures::count(count));
    let machines = figures::counted(heading.machines.iter().map(String::as_str));
    let all = [
        ("Weights", weights),
        ("Machines", machines),
        ("Joined by", heading.link.clone().unwrap_or_default()),
        ("Run by", heading.backend.clone()),
        ("Users", users),
        ("Context for each", tokens(heading.context)),
        ("Prompt", tokens(heading.prompt)),
        ("Catalogue of", heading.catalogue_date.clone()),
    ];
    all.into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| Fact { name, value: printable(&value) })
        .collect()
}
