//! A rank aborts the group from another thread, while its first one is in a call.

use crate::{
    job::{Job, SOON},
    seeds::for_each_seed,
};
use std::time::Instant;

#[test]
fn an_abort_from_another_thread_ends_all_ranks() {
    for_each_seed("an_abort", 1, |transport, random| {
        let ranks = 2 + random.below(7) as usize;
        let aborter = random.below(ranks as u64) as usize;
        let (most, at, seed) = (random.one_of(&[64, 4096, 300_000]), random.below(50), random.next() >> 1);
        let words = format!("--rounds 1000000000 --most {most} --seed {seed} --abort {aborter} --at {at}");
        let mut job = Job::start(transport, ranks, &words);
        job.wait_until("the abort", |job| job.has_said(aborter, "ABORTS"));
        let aborted = Instant::now();
        job.wait_for_the_end(None);
        for rank in 0..ranks {
            let (took, words) = (job.assert_in_time(rank, aborted, SOON), job.last_words(rank));
            println!("rank {rank} of {ranks} after {took:.0?}: {words}");
            let knows = words.contains(&format!("rank {aborter} aborted the group: soak was told to"));
            let need_not = rank != aborter && !transport.promises().reason;
            assert!(knows || need_not && words.starts_with("ENDED"), "{words}:\n{}", job.outputs());
        }
        job.assert_nothing_left(0);
    });
}
