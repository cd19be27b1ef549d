//! A rank is stopped, as a debugger, a full disk or a swapping machine does it.

use crate::{
    job::{Job, SOON},
    seeds::for_each_seed,
    transports::{Missed, Told},
};
use std::{
    thread,
    time::{Duration, Instant},
};

const DEADLINE: Duration = Duration::from_millis(2500);

#[test]
fn a_stopped_rank_is_named() {
    for_each_seed("a_stopped_rank", 1, |transport, random| {
        let ranks = 2 + random.below(4) as usize;
        let victim = random.below(ranks as u64) as usize;
        let (most, seed) = (random.one_of(&[64, 4096, 300_000]), random.next() >> 1);
        let deadline = match transport.promises().stopped {
            Missed::Soon => String::new(),
            Missed::AtTheDeadline => format!("--deadline-ms {}", DEADLINE.as_millis()),
        };
        let words = format!("--rounds 1000000000 --most {most} --seed {seed} {deadline}");
        let mut job = Job::start(transport, ranks, &words);
        job.wait_for_joining();
        thread::sleep(Duration::from_micros(random.below(200_000)));
        assert!(job.signal(victim, libc::SIGSTOP), "it has ended before:\n{}", job.outputs());
        let stopped = Instant::now();
        job.wait_for_the_end(Some(victim));

        let promises = transport.promises();
        let limit = match promises.stopped {
            Missed::Soon => SOON,
            Missed::AtTheDeadline => DEADLINE + SOON,
        };
        let mut named = 0;
        for survivor in (0..ranks).filter(|rank| *rank != victim) {
            let (took, words) = (job.assert_in_time(survivor, stopped, limit), job.last_words(survivor));
            println!("rank {survivor} of {ranks} after {took:.0?}: {words}");
            let names = words.contains(&format!("rank {victim}"));
            named += usize::from(names);
            let may_be_silent = promises.killed != Told::All;
            assert!(names || may_be_silent, "rank {survivor} said {words:?}:\n{}", job.outputs());
        }
        assert!(named > 0, "nobody names rank {victim}:\n{}", job.outputs());

        // Once it goes on, it finds that the others have ended the group. A launcher may have killed it.
        job.signal(victim, libc::SIGCONT);
        let resumed = Instant::now();
        job.wait_for_the_end(None);
        let (took, words) = (job.assert_in_time(victim, resumed, SOON), job.last_words(victim));
        println!("rank {victim} of {ranks}, {took:.0?} after it went on: {words}");
        let was_killed = promises.killed == Told::Launcher && words.is_empty();
        assert!(was_killed || words.starts_with("ENDED"), "{words:?}:\n{}", job.outputs());
        job.assert_nothing_left(0);
    });
}
