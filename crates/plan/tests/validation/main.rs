//! The cost model against what other people measured. `-- --nocapture` prints the table of docs/plan.md.

mod figures;
mod rows;

use figures::{Figure, all_with};
use pomar_plan::backend;
use rows::Row;

fn share_within(figures: &[&Figure], limit: f64) -> f64 {
    figures.iter().filter(|figure| figure.error().abs() <= limit).count() as f64 / figures.len() as f64
}

fn median_error(figures: &[&Figure]) -> f64 {
    let mut errors: Vec<f64> = figures.iter().map(|figure| figure.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors[errors.len() / 2]
}

/// Some figures, and how far off they are.
struct Group<'a> {
    name: String,
    figures: Vec<&'a Figure>,
}

impl Group<'_> {
    fn line(&self) -> String {
        let cluster = self.figures.iter().filter(|figure| figure.row.nodes.unwrap_or(1) > 1).count();
        format!(
            "| {} | {} | {cluster} | {:.1}% | {:.0}% |",
            self.name,
            self.figures.len(),
            100.0 * median_error(&self.figures),
            100.0 * share_within(&self.figures, 0.35)
        )
    }
}

fn groups(figures: &[Figure], calibration: bool) -> Vec<Group<'_>> {
    let mut groups = Vec::new();
    for backend in backend::ALL.map(|backend| backend.id) {
        for what in ["decode", "prefill"] {
            let is = |figure: &&Figure| {
                figure.backend == backend && figure.what == what && figure.calibration == calibration
            };
            let figures: Vec<_> = figures.iter().filter(is).collect();
            if !figures.is_empty() {
                groups.push(Group { name: format!("{backend}, {what}"), figures });
            }
        }
    }
    let all = figures.iter().filter(|figure| figure.calibration == calibration).collect();
    groups.push(Group { name: "all".into(), figures: all });
    groups
}

#[test]
fn published_measurements_are_predicted() {
    let (known, unknown) = all_with(&backend::ALL);
    for figure in &known {
        let Figure { row, what, measured, predicted, backend, calibration } = figure;
        let error = 100.0 * figure.error();
        let used = if *calibration { "calibration" } else { "" };
        println!(
            "| {} | {what} | {backend} | {measured:.1} | {predicted:.1} | {error:+.0}% | {used} |",
            row.id
        );
    }
    unknown.iter().for_each(|(row, reason)| println!("| {} | not predicted: {reason} |", row.id));
    for calibration in [true, false] {
        println!("\n{}", if calibration { "calibrated on" } else { "checked on" });
        groups(&known, calibration).iter().for_each(|group| println!("{}", group.line()));
    }
    let document = include_str!("../../../../docs/plan.md");
    for group in [groups(&known, true), groups(&known, false)].iter().flatten() {
        assert!(document.contains(&group.line()), "not in docs/plan.md: {}", group.line());
    }
    let checked: Vec<_> = known.iter().filter(|figure| !figure.calibration).collect();
    let clusters: Vec<_> =
        checked.iter().copied().filter(|figure| figure.row.nodes.unwrap_or(1) > 1).collect();
    for figures in [&checked, &clusters] {
        assert!(median_error(figures) <= 0.15, "{}", median_error(figures));
    }
    assert!(share_within(&checked, 0.35) >= 0.9, "{}", share_within(&checked, 0.35));
}

/// Rows of one series: the same model, format, program and page, on different numbers of machines.
fn series(figures: &[Figure]) -> Vec<Vec<&Figure>> {
    let mut series: Vec<Vec<&Figure>> = Vec::new();
    let key = |figure: &Figure| {
        let Row { model, quant, software, source, batch, context_depth, .. } = figure.row.clone();
        let program = software.split(' ').next().unwrap_or_default().to_owned();
        (model, quant, program, source, batch.map(|users| users as u32), context_depth, figure.what)
    };
    for figure in figures {
        match series.iter_mut().find(|some| key(some[0]) == key(figure)) {
            Some(some) => some.push(figure),
            None => series.push(vec![figure]),
        }
    }
    let machines = |figure: &&Figure| figure.row.nodes.unwrap_or(1);
    series.retain(|some| some.iter().any(|figure| machines(figure) != machines(&some[0])));
    series.iter_mut().for_each(|some| some.sort_by_key(machines));
    series
}

#[test]
fn whether_machines_help_is_predicted() {
    let (known, _) = all_with(&backend::ALL);
    let (mut right, mut wrong) = (0, Vec::new());
    for some in series(&known) {
        for pair in some.windows(2) {
            let (few, more) = (pair[0], pair[1]);
            if few.row.nodes == more.row.nodes {
                continue;
            }
            println!(
                "{} -> {}: measured {:.2}x, predicted {:.2}x",
                few.row.id,
                more.row.id,
                more.measured / few.measured,
                more.predicted / few.predicted
            );
            if (more.measured > few.measured) == (more.predicted > few.predicted) {
                right += 1;
            } else {
                wrong.push(&more.row.id);
            }
        }
    }
    assert!(right >= 5 && 20 * wrong.len() <= right + wrong.len(), "{right} right, wrong: {wrong:?}");
}
