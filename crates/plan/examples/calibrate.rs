//! Finds the constants of the backends for every second row of the published measurements, one constant at a time, and prints
//! them and what is still far off: `cargo run --release -p pomar-plan --example calibrate`

#[path = "../tests/validation/figures.rs"]
mod figures;
#[path = "../tests/validation/rows.rs"]
mod rows;

use figures::all_with;
use pomar_plan::{Backend, backend};

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

fn main() {
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
    let (known, _) = all_with(&backends);
    println!("far off:");
    for figure in known.iter().filter(|figure| figure.error().abs() > 0.35) {
        println!("{} {}: {:+.0}%", figure.row.id, figure.what, 100.0 * figure.error());
    }
}
