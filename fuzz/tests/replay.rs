//! Replays every seed: each input that once mattered must still be harmless, in memory and in time too.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pomar_fuzz::memory::{self, Counting};
use pomar_fuzz::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Far above what any seed takes, even on a slow and busy machine without optimisation.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// One test for all targets: what is counted is the whole process's memory.
#[test]
fn seeds_stay_within_their_limits() {
    for target in TARGETS {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "no seeds in {}", folder(target).display());
        let mut peak = 0;
        for path in &seeds {
            peak = peak.max(replay(target, path));
        }
        println!("{}: {} seeds, at most {} KiB", target.name, seeds.len(), peak >> 10);
    }
}

/// Runs one seed; returns the memory it took at most, in bytes.
fn replay(target: &Target, path: &Path) -> usize {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // Shown when the test fails: a panic in a crate doesn't name the seed.
    println!("{}", path.display());
    // What a crate sets up once and keeps is no single input's doing.
    (target.run)(&bytes);
    let started = Instant::now();
    let peak = memory::peak_of(|| (target.run)(&bytes));
    let limit = target.memory_limit(bytes.len());
    assert!(peak <= limit, "{}: {peak} bytes of memory, the limit is {limit}", path.display());
    let taken = started.elapsed();
    assert!(taken <= TIME_LIMIT, "{}: took {taken:?}", path.display());
    peak
}

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target.name)
}

/// The files of a target's folder, but for its README.
fn seeds(target: &Target) -> Vec<PathBuf> {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.extension().is_none_or(|extension| extension != "md"));
    paths.sort();
    paths
}
