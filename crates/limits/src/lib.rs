//! What this machine can do, measured: how fast it reads memory, multiplies, and starts work on its threads.
//!
//! For the planner, whose predictions begin with these figures, and for judging kernels by them. This crate knows
//! kernels, and must never know models, files or what the figures are used for.
//!
//! To read: [`Limits`] is what is known; [`measure`] finds it out, one figure after the other, each the best of many short
//! timings, so that other work on the machine disturbs little.

mod host;
mod measure;

pub use measure::{Progress, measure};

use serde::{Deserialize, Serialize};

/// A machine, and what it does with some numbers of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The machine.
    pub host: Host,
    /// Ascending numbers of threads; the first is 1, the last all cores.
    pub threads: Vec<AtThreads>,
}

/// What tells one machine from another, as far as figures depend on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The processor's name for itself; empty where the system does not say.
    pub processor: String,
    /// Threads that run at once.
    pub cores: usize,
    /// Memory, in bytes.
    pub memory: u64,
    /// Instruction set that kernels use.
    pub level: String,
}

/// What some threads do together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtThreads {
    /// How many.
    pub threads: usize,
    /// Bytes/s read from memory, beyond all caches.
    pub read: f64,
    /// Operations/s in products with weights of 8 bits (two per multiplication).
    pub int8: f64,
    /// Operations/s in products with weights of 16 bits or more, which are computed in f32.
    pub f32: f64,
    /// Seconds from the call of a kernel that has nothing to do until all threads are done.
    pub start: f64,
}

impl Limits {
    /// What so many threads do; between measured numbers in proportion, beyond the last like the last. `None` when nothing
    /// was measured.
    pub fn at(&self, threads: usize) -> Option<AtThreads> {
        let above = self.threads.iter().find(|known| known.threads >= threads);
        let (Some(above), Some(below)) = (above, self.threads.iter().rfind(|known| known.threads <= threads))
        else {
            return above.or(self.threads.last()).copied();
        };
        if above.threads == below.threads {
            return Some(*above);
        }
        let part = (threads - below.threads) as f64 / (above.threads - below.threads) as f64;
        let between = |below: f64, above: f64| below + part * (above - below);
        Some(AtThreads {
            threads,
            read: between(below.read, above.read),
            int8: between(below.int8, above.int8),
            f32: between(below.f32, above.f32),
            start: between(below.start, above.start),
        })
    }

    /// Figures that are above 0 and finite, for threads in ascending order: what a file must hold to be believed.
    pub fn is_plausible(&self) -> bool {
        let figures = |known: &AtThreads| [known.read, known.int8, known.f32, known.start];
        let good = |figure: f64| figure.is_finite() && figure > 0.0;
        let ascending = self.threads.is_sorted_by(|a, b| a.threads < b.threads);
        ascending && !self.threads.is_empty() && self.threads.iter().flat_map(figures).all(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        let host = Host { processor: "any".into(), cores: 4, memory: 1 << 30, level: "plain".into() };
        let at = |threads, read| AtThreads { threads, read, int8: 8.0, f32: 4.0, start: 1e-6 };
        Limits { host, threads: vec![at(1, 10.0), at(2, 18.0), at(4, 22.0)] }
    }

    #[test]
    fn figures_between_are_in_proportion() {
        let read = |threads| limits().at(threads).unwrap().read;
        assert_eq!([1, 2, 3, 4, 9].map(read), [10.0, 18.0, 20.0, 22.0, 22.0]);
    }

    #[test]
    fn damaged_figures_are_not_believed() {
        assert!(limits().is_plausible());
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut limits = limits();
            limits.threads[1].read = wrong;
            assert!(!limits.is_plausible(), "{wrong}");
        }
        let mut descending = limits();
        descending.threads.reverse();
        assert!(!descending.is_plausible());
        assert!(!Limits { threads: vec![], ..limits() }.is_plausible());
    }

    #[test]
    fn this_machine_has_limits() {
        let mut steps = Vec::new();
        let limits = measure(std::time::Duration::from_millis(20), &mut |done, all| steps.push((done, all)));
        assert!(limits.is_plausible(), "{limits:?}");
        assert!(limits.host.cores >= 1 && limits.host.memory > 0);
        let (done, all) = *steps.last().unwrap();
        assert!(done == all && all == 4 * limits.threads.len(), "{steps:?}");
        // Several threads are never measured to read less than one: noise aside, they share one memory.
        assert!(
            limits.threads.iter().all(|at| at.read > 1e8 && at.int8 > 1e8 && at.start < 0.1),
            "{limits:?}"
        );
    }
}
