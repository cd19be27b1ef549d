//! Measured figures beside predicted ones.

use crate::rows::{Case, Row, case, measured};
use pomar_plan::{Backend, Catalogue, Setting};

/// One figure of a row.
pub(crate) struct Figure {
    pub(crate) row: Row,
    pub(crate) what: &'static str,
    pub(crate) measured: f64,
    pub(crate) predicted: f64,
    pub(crate) backend: &'static str,
    /// The backend's constants were calibrated on it.
    pub(crate) calibration: bool,
}

impl Figure {
    /// Share of the measured figure.
    pub(crate) fn error(&self) -> f64 {
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

/// What is predicted with these backends, and what is not, with the reason.
pub(crate) fn all_with(backends: &[Backend]) -> (Vec<Figure>, Vec<(Row, String)>) {
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
