//! One rank makes another call than the others.

use crate::{job::Job, job::SOON, seeds::for_each_seed};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(1500);

/// Parts of the messages that say what two ranks have called.
const NAMED: [&str; 2] = ["while this rank is in", "where this rank has"];

#[test]
fn a_rank_that_calls_something_else_is_named() {
    for_each_seed("a_rank_that_calls", 1, |transport, random| {
        let ranks = 2 + random.below(5) as usize;
        let odd_one = random.below(ranks as u64) as usize;
        let (rounds, seed) = (1 + random.below(30), random.next() >> 1);
        let deadline = DEADLINE.as_millis();
        let words = format!(
            "--rounds {rounds} --most 20000 --seed {seed} --differ {odd_one} --deadline-ms {deadline}"
        );
        let mut job = Job::start(transport, ranks, &words);
        job.wait_for_joining();
        let joined = Instant::now();
        job.wait_for_the_end(None);
        let mut named = 0;
        for rank in 0..ranks {
            let (took, words) = (job.assert_in_time(rank, joined, DEADLINE + SOON), job.last_words(rank));
            println!("rank {rank} of {ranks} after {took:.0?}: {words}");
            if transport.promises().differing {
                let is_told = words.starts_with("ENDED") && NAMED.iter().any(|part| words.contains(part));
                assert!(is_told, "rank {rank}: {words:?}\n{}", job.outputs());
                named += usize::from(rank != odd_one && words.contains(&format!("rank {odd_one} ")));
            }
        }
        assert!(named > 0 || !transport.promises().differing, "rank {odd_one}:\n{}", job.outputs());
        job.assert_nothing_left(0);
    });
}
