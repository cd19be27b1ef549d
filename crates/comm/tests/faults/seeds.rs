//! Runs that are drawn from a seed, and can be replayed from it.

use crate::transports::{ALL, Transport};
use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// How many runs a test makes, over all transports.
const RUNS: &str = "POMAR_FAULT_RUNS";

/// The only run to make, such as "tcp:17".
const SEED: &str = "POMAR_FAULT_SEED";

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Random(u64);

impl Random {
    /// Other numbers for each transport, so that one round of seeds shows more.
    fn of(transport: Transport, seed: u64) -> Self {
        Self(seed << 8 | transport as u64)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// One test at a time: the ranks of one run alone are more than there are cores, and times are promised.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `run` for `usual` seeds of each transport, or as often as the environment says. All runs are made, and each one
/// that fails is named with the command that repeats it.
pub(crate) fn for_each_seed(test: &str, usual: u64, run: impl Fn(Transport, &mut Random)) {
    let _turn = turn();
    let mut failed = Vec::new();
    for (transport, seed) in chosen(usual) {
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| run(transport, &mut Random::of(transport, seed))));
        let (name, took) = (transport.name(), started.elapsed());
        if outcome.is_ok() {
            println!("{test} {name}:{seed}: good after {took:.1?}");
        } else {
            println!("{test} {name}:{seed}: FAILED after {took:.1?}");
            failed.push(format!("{SEED}={name}:{seed} cargo test -p pomar-comm --test faults {test}"));
        }
    }
    assert!(failed.is_empty(), "{} runs failed; to repeat them:\n{}", failed.len(), failed.join("\n"));
}

fn chosen(usual: u64) -> Vec<(Transport, u64)> {
    if let Ok(chosen) = env::var(SEED) {
        let (name, seed) = chosen.split_once(':').unwrap_or_else(|| panic!("{SEED} is like tcp:17"));
        let transport = ALL.into_iter().find(|transport| transport.name() == name);
        let transport = transport.unwrap_or_else(|| panic!("{SEED}: there is no transport {name}"));
        return vec![(transport, seed.parse().unwrap_or_else(|_| panic!("{SEED} is like tcp:17")))];
    }
    let transports = ALL.len() as u64;
    let runs = env::var(RUNS).map_or(usual * transports, |runs| {
        runs.parse().unwrap_or_else(|_| panic!("{RUNS} is a number of runs"))
    });
    (0..runs).map(|run| (ALL[(run % transports) as usize], run / transports)).collect()
}
