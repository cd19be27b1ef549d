//! Finding a backend's constants from what was measured.

use crate::Backend;

/// A constant that calibration may move, and how far.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Where it is.
    pub value: fn(&mut Backend) -> &mut f64,
    /// Its least value.
    pub least: f64,
    /// Its greatest.
    pub most: f64,
}

/// Times that all knobs are gone through, in ever smaller steps.
const ROUNDS: u32 = 6;

/// The first step: by so much more or less.
const FIRST_STEP: f64 = 0.3;

/// What `error` must lessen by for a step to count.
const ENOUGH: f64 = 1e-6;

/// Moves one constant after the other, as long as `error` gets less. The same start and errors give the same constants.
pub fn calibrate(start: &Backend, knobs: &[Knob], error: &dyn Fn(&Backend) -> f64) -> Backend {
    let mut best = (error(start), *start);
    for round in 0..ROUNDS {
        let factor = 1.0 + FIRST_STEP / f64::from(1 << round);
        for knob in knobs {
            for factor in [factor, 1.0 / factor] {
                while let Some(better) = step(&best, knob, factor, error) {
                    best = better;
                }
            }
        }
    }
    best.1
}

fn step(
    (error_now, now): &(f64, Backend),
    knob: &Knob,
    factor: f64,
    error: &dyn Fn(&Backend) -> f64,
) -> Option<(f64, Backend)> {
    let mut next = *now;
    let value = (knob.value)(&mut next);
    *value = (*value * factor).clamp(knob.least, knob.most);
    let error_then = error(&next);
    (error_then < error_now - ENOUGH).then_some((error_then, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::MLX;

    #[test]
    fn constants_that_made_the_figures_are_found() {
        let knobs = [
            Knob { value: |backend| &mut backend.bandwidth_share, least: 0.1, most: 1.0 },
            Knob { value: |backend| &mut backend.layer, least: 1e-6, most: 1e-3 },
        ];
        // Two figures that depend on both.
        let figures = |backend: &Backend| {
            let layers = [10.0, 60.0];
            layers.map(|layers| layers * backend.layer + 1e-3 / backend.bandwidth_share)
        };
        let truth = figures(&Backend { bandwidth_share: 0.5, layer: 30e-6, ..MLX });
        let error = |backend: &Backend| {
            let pairs = figures(backend).into_iter().zip(truth);
            pairs.map(|(now, then)| (now / then).ln().abs()).sum::<f64>()
        };
        let found = calibrate(&MLX, &knobs, &error);
        assert!(error(&found) < 0.01, "{found:?}");
        assert!((found.bandwidth_share - 0.5).abs() < 0.02, "{found:?}");
        let bounded = calibrate(&MLX, &[Knob { least: 0.9, ..knobs[0] }], &error);
        assert!(bounded.bandwidth_share >= 0.9);
    }
}
