//! Random calls of all kinds, with all element types, from 1 byte to 64 MiB.

use crate::{job::Job, seeds::for_each_seed, transports::Transport};

#[test]
fn random_calls_give_the_right_answers() {
    for_each_seed("random_calls", 1, |transport, random| {
        let ranks = 2 + random.below(7) as usize;
        let (rounds, most) = (40 + random.below(100), random.one_of(&[64, 4096, 300_000]));
        finish(transport, ranks, &format!("--rounds {rounds} --most {most} --seed {}", random.next() >> 1));
    });
}

#[test]
fn big_calls_give_the_right_answers() {
    for_each_seed("big_calls", 1, |transport, random| {
        let ranks = 2 + random.below(2) as usize;
        let (least, seed) = (random.one_of(&[64 << 20, (64 << 20) - 4091]), random.next() >> 1);
        finish(transport, ranks, &format!("--rounds 1 --least {least} --most {least} --seed {seed}"));
    });
}

fn finish(transport: Transport, ranks: usize, words: &str) {
    println!("{ranks} ranks: {words}");
    let mut job = Job::start(transport, ranks, words);
    job.wait_for_the_end(None);
    for rank in 0..ranks {
        assert!(job.last_words(rank).starts_with("DONE"), "rank {rank}:\n{}", job.outputs());
    }
    job.assert_nothing_left(0);
}
