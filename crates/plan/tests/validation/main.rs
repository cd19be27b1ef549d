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

#[test]
fn published_measurements_are_predicted() {
    let (known, unknown) = all();
    for figure in &known {
        println!(
            "{:55} {:8} {:14} {:9.2} {:9.2} {:+6.1}% {}",
            figure.row.id,
            figure.what,
            figure.backend,
            figure.measured,
            figure.predicted,
            100.0 * figure.error(),
            if figure.calibration { "calibration" } else { "" }
        );
    }
    for (row, reason) in &unknown {
        println!("{:55} not predicted: {reason}", row.id);
    }
    let groups =
        |what: &str, backend: &str, calibration: Option<bool>, several: Option<bool>| -> Vec<&Figure> {
            known
                .iter()
                .filter(|f| {
                    (what.is_empty() || f.what == what) && (backend.is_empty() || f.backend == backend)
                })
                .filter(|f| calibration.is_none_or(|c| c == f.calibration))
                .filter(|f| several.is_none_or(|several| several == (f.row.nodes.unwrap_or(1) > 1)))
                .collect()
        };
    for what in ["decode", "prefill", ""] {
        for backend in ["mlx", "llama.cpp", "llama.cpp-cuda", "llama.cpp-2023", "ds4", "ds4-cuda", ""] {
            for calibration in [Some(true), Some(false)] {
                for several in [Some(false), Some(true), None] {
                    let some = groups(what, backend, calibration, several);
                    if some.is_empty() {
                        continue;
                    }
                    println!(
                        "{:8} {:15} {} {:8} rows {:4} median {:5.1}% within 35% {:5.1}%",
                        if what.is_empty() { "all" } else { what },
                        if backend.is_empty() { "all" } else { backend },
                        if calibration == Some(true) { "calibr." } else { "checked" },
                        match several {
                            Some(true) => "cluster",
                            Some(false) => "single",
                            None => "both",
                        },
                        some.len(),
                        100.0 * median_error(&some),
                        100.0 * share_within(&some, 0.35)
                    );
                }
            }
        }
    }
    let checked = groups("", "", Some(false), None);
    assert!(median_error(&checked) <= 0.15 && share_within(&checked, 0.35) >= 0.9);
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
