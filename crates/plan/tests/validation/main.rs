//! The cost model against what other people measured. `-- --nocapture` prints the table of docs/plan.md.

mod rows;

use pomar_plan::{Backend, Catalogue, Setting, backend};
use rows::{Case, Row, case, measured};

/// One figure of a row.
struct Figure {
    row: Row,
    what: &'static str,
    measured: f64,
    predicted: f64,
    backend: &'static str,
    calibration: bool,
}

impl Figure {
    fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

fn figures(row: &Row, case: &Case, calibration: bool) -> Vec<Figure> {
    let setting =
        Setting { model: &case.model, format: &case.format, cluster: &case.cluster, backend: &case.backend };
    let figure = |what, measured: Option<f64>, predicted: Option<f64>| {
        let (measured, predicted) = (measured?, predicted?);
        Some(Figure { row: row.clone(), what, measured, predicted, backend: case.backend.id, calibration })
    };
    let decode = setting.token_time(&case.placement, case.users, case.depth).map(|time| case.users / time);
    // 4,096 tokens took longer than 8,192 on the same machines: the time to start is in these figures.
    let steady = !row.id.starts_with("ds4-754-spark-tp");
    let prompt = case
        .prompt
        .filter(|_| steady)
        .and_then(|tokens| Some(tokens / setting.prompt_time(&case.placement, tokens, case.after)?));
    [figure("decode", row.decode_tps, decode), figure("prefill", row.prefill_tps, prompt)]
        .into_iter()
        .flatten()
        .collect()
}

fn all() -> (Vec<Figure>, Vec<(Row, String)>) {
    all_with(&backend::ALL)
}

/// With other constants for some backends.
fn all_with(backends: &[Backend]) -> (Vec<Figure>, Vec<(Row, String)>) {
    let catalogue = Catalogue::built_in();
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (i, row) in measured().into_iter().enumerate() {
        match case(&catalogue, &row) {
            Ok(mut case) => {
                let id = case.backend.id;
                case.backend = *backends.iter().find(|backend| backend.id == id).unwrap_or(&case.backend);
                known.extend(figures(&row, &case, i % 2 == 0));
            }
            Err(reason) => unknown.push((row, reason)),
        }
    }
    (known, unknown)
}

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
    let (known, unknown) = all();
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
    let (known, _) = all();
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

/// The constants of a backend that calibration may move, with their least and most.
fn knobs(backend: &mut Backend) -> [(&mut f64, f64, f64); 16] {
    let us = 1e-6;
    [
        (&mut backend.bandwidth_share, 0.6, 0.97),
        (&mut backend.two_die_share, 0.6, 0.95),
        (&mut backend.rate_share, 0.3, 1.5),
        (&mut backend.expert_rate_share, 0.2, 1.1),
        (&mut backend.latent_rate_share, 0.2, 1.1),
        (&mut backend.state_rate_share, 0.2, 1.1),
        (&mut backend.compressed_rate_share, 0.2, 1.1),
        (&mut backend.attention_share, 0.05, 1.2),
        (&mut backend.layer, 10.0 * us, 400.0 * us),
        (&mut backend.expert_layer, 1.0 * us, 400.0 * us),
        (&mut backend.latent_layer, 1.0 * us, 400.0 * us),
        (&mut backend.state_layer, 1.0 * us, 400.0 * us),
        (&mut backend.compressed_layer, 1.0 * us, 800.0 * us),
        (&mut backend.collective, 1.0 * us, 1000.0 * us),
        (&mut backend.hop, 10.0 * us, 20_000.0 * us),
        (&mut backend.step, 1.0 * us, 3000.0 * us),
    ]
}

/// Finds constants for the calibration rows, one at a time, and prints them:
/// `cargo test --release -p pomar-plan --test validation -- --ignored --nocapture calibrate`
#[test]
#[ignore = "a tool, not a test"]
fn calibrate() {
    let mut backends = backend::ALL;
    let loss = |backends: &[Backend], id: &str| -> f64 {
        let (known, _) = all_with(backends);
        let some = known.iter().filter(|figure| figure.calibration && figure.backend == id);
        some.map(|figure| (figure.predicted / figure.measured).ln().abs().min(0.4)).sum()
    };
    for i in 0..backends.len() {
        let id = backends[i].id;
        let mut best = loss(&backends, id);
        for round in 0..6 {
            let factor = 1.0 + 0.3 / f64::from(1 << round);
            for knob in 0..16 {
                for factor in [factor, 1.0 / factor] {
                    loop {
                        let before = backends[i];
                        let (value, least, most) = &mut knobs(&mut backends[i])[knob];
                        **value = (**value * factor).clamp(*least, *most);
                        let now = loss(&backends, id);
                        if now >= best - 1e-6 {
                            backends[i] = before;
                            break;
                        }
                        best = now;
                    }
                }
            }
        }
        println!("{best:.3} {:#?}", backends[i]);
    }
}
