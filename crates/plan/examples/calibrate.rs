//! Finds the constants of the backends for every second row of the published measurements, one constant at a time, and prints
//! them and what is still far off: `cargo run --release -p pomar-plan --example calibrate`

#[path = "../tests/validation/figures.rs"]
mod figures;
#[path = "../tests/validation/rows.rs"]
mod rows;

use figures::all_with;
use pomar_plan::{
    Backend, backend,
    calibrate::{Knob, calibrate},
};

const US: f64 = 1e-6;

/// What is moved.
const KNOBS: [Knob; 16] = [
    Knob { value: |backend| &mut backend.bandwidth_share, least: 0.6, most: 0.97 },
    Knob { value: |backend| &mut backend.two_die_share, least: 0.6, most: 0.95 },
    Knob { value: |backend| &mut backend.rate_share, least: 0.3, most: 1.5 },
    Knob { value: |backend| &mut backend.expert_rate_share, least: 0.2, most: 1.1 },
    Knob { value: |backend| &mut backend.latent_rate_share, least: 0.2, most: 1.1 },
    Knob { value: |backend| &mut backend.state_rate_share, least: 0.2, most: 1.1 },
    Knob { value: |backend| &mut backend.compressed_rate_share, least: 0.2, most: 1.1 },
    Knob { value: |backend| &mut backend.attention_share, least: 0.05, most: 1.2 },
    Knob { value: |backend| &mut backend.layer, least: 10.0 * US, most: 400.0 * US },
    Knob { value: |backend| &mut backend.expert_layer, least: US, most: 400.0 * US },
    Knob { value: |backend| &mut backend.latent_layer, least: US, most: 400.0 * US },
    Knob { value: |backend| &mut backend.state_layer, least: US, most: 400.0 * US },
    Knob { value: |backend| &mut backend.compressed_layer, least: US, most: 800.0 * US },
    Knob { value: |backend| &mut backend.collective, least: US, most: 1000.0 * US },
    Knob { value: |backend| &mut backend.hop, least: 10.0 * US, most: 20_000.0 * US },
    Knob { value: |backend| &mut backend.step, least: US, most: 3000.0 * US },
];

fn main() {
    let mut backends = backend::ALL;
    for i in 0..backends.len() {
        let start = backends[i];
        let loss = |backend: &Backend| -> f64 {
            let mut all = backends;
            all[i] = *backend;
            let (known, _) = all_with(&all);
            let some = known.iter().filter(|figure| figure.calibration && figure.backend == start.id);
            some.map(|figure| (figure.predicted / figure.measured).ln().abs().min(0.4)).sum()
        };
        let found = calibrate(&start, &KNOBS, &loss);
        println!("{:.3} {found:#?}", loss(&found));
        backends[i] = found;
    }
    let (known, _) = all_with(&backends);
    println!("far off:");
    for figure in known.iter().filter(|figure| figure.error().abs() > 0.35) {
        println!("{} {}: {:+.0}%", figure.row.id, figure.what, 100.0 * figure.error());
    }
}
