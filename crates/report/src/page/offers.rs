//! The page for a budget.

use super::{Page, Picture, Table, facts};
use crate::{
    Heading, ReportError,
    chart::{bars, printable},
    figures, tables,
};
use pomar_plan::budget::Offer;

/// The page for a budget.
///
/// # Errors
/// [`ReportError`] when a picture cannot be drawn.
pub fn offers(heading: &Heading, dollars: f64, offers: &[Offer]) -> Result<String, ReportError> {
    let title = format!("{} for ${}", printable(&heading.model), figures::count(dollars));
    let mut page = Page::new(title, facts(heading));
    let (shown, small): (Vec<&Offer>, Vec<&Offer>) =
        offers.iter().partition(|offer| offer.plan.is_some() || offer.memory >= heading.weights);
    page.table = Table::new(tables::offers(&shown));
    page.notes = notes(heading, dollars, &small);
    let planned: Vec<&Offer> = shown.into_iter().filter(|offer| offer.plan.is_some()).collect();
    if !planned.is_empty() {
        page.pictures = pictures(&planned)?;
    }
    page.write()
}

fn notes(heading: &Heading, dollars: f64, small: &[&Offer]) -> Vec<String> {
    let mut notes = Vec::new();
    if !small.is_empty() {
        let names: Vec<_> = small.iter().map(|offer| tables::what(offer)).collect();
        notes.push(format!("Too small for the weights: {}.", names.join(", ")));
    }
    notes.push(format!(
        "As many of each as ${} buy and can be joined each to each: Macs by their ports, four cards in a box, else \
         eight. List prices as of {}, without tax, cables, or the computer around a card; where the price is unknown, \
         as many as hold what the roomiest offer holds. Ranges hold eight of ten measurements.",
        figures::count(dollars),
        printable(&heading.catalogue_date)
    ));
    notes
}

fn pictures(offers: &[&Offer]) -> Result<Vec<Picture>, ReportError> {
    let (speed, cost) = ("Tokens per second for one user", "List price");
    Ok(vec![
        picture(speed, "tokens/s", &offers.iter().map(|offer| speed_of(offer)).collect::<Vec<_>>())?,
        picture(cost, "dollars", &offers.iter().map(|offer| price_of(offer)).collect::<Vec<_>>())?,
    ])
}

fn picture(title: &'static str, unit: &str, rows: &[bars::Row]) -> Result<Picture, ReportError> {
    Ok(Picture { title, svg: bars::bars(title, unit, &[unit], rows)?, note: String::new() })
}

fn speed_of(offer: &Offer) -> bars::Row {
    let decode = offer.plan.as_ref().map(|plan| plan.decode);
    bars::Row {
        label: tables::what(offer),
        parts: decode.iter().map(|range| range.likely).collect(),
        note: decode.map_or_else(|| "unknown".into(), figures::range),
    }
}

fn price_of(offer: &Offer) -> bars::Row {
    bars::Row {
        label: tables::what(offer),
        parts: offer.price.into_iter().collect(),
        note: tables::price(offer),
    }
}
