//! A rank is killed at a random point.

use crate::{
    job::{Job, SOON},
    seeds::{Random, for_each_seed},
    transports::{Told, Transport},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long joining may wait, in milliseconds: a rank that was killed before it joined is missed then.
const JOIN_MS: u64 = 6000;

/// When the rank is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after the start, mostly while the ranks join.
    AfterStart(Duration),
    /// So long after it has joined.
    AfterJoining(Duration),
}

impl Moment {
    fn draw(random: &mut Random) -> Self {
        if random.below(5) == 0 {
            Self::AfterStart(Duration::from_millis(random.below(250)))
        } else {
            Self::AfterJoining(Duration::from_micros(random.below(300_000)))
        }
    }
}

#[test]
fn a_killed_rank_is_named() {
    for_each_seed("a_killed_rank", 2, |transport, random| {
        let ranks = 2 + random.below(7) as usize;
        let victim = random.below(ranks as u64) as usize;
        let (moment, most) = (Moment::draw(random), random.one_of(&[64, 4096, 300_000]));
        println!("rank {victim} of {ranks} at {moment:?}, at most {most} bytes");
        let seed = random.next() >> 1;
        let words = format!("--rounds 1000000000 --most {most} --seed {seed} --join-ms {JOIN_MS}");
        let mut job = Job::start(transport, ranks, &words);
        match moment {
            Moment::AfterStart(pause) => thread::sleep(pause),
            Moment::AfterJoining(pause) => {
                job.wait_for_joining_of(victim);
                thread::sleep(pause);
            }
        }
        assert!(job.signal(victim, libc::SIGKILL), "it has ended before:\n{}", job.outputs());
        let killed = Instant::now();
        job.wait_for_the_end(None);
        let had_joined = job.ranks[victim].joined.is_some_and(|joined| joined < killed);
        for survivor in (0..ranks).filter(|rank| *rank != victim) {
            check(transport, &job, (victim, survivor), killed, had_joined);
        }
        job.assert_nothing_left(1);
    });
}

/// Whether the survivor ended in time and with the right words.
fn check(
    transport: Transport,
    job: &Job,
    (victim, survivor): (usize, usize),
    killed: Instant,
    had_joined: bool,
) {
    let words = job.last_words(survivor);
    let from = job.ranks[survivor].joined.map_or(killed, |joined| joined.max(killed));
    let limit = if had_joined { SOON } else { SOON + Duration::from_millis(JOIN_MS) };
    let took = job.assert_in_time(survivor, from, limit);
    println!("rank {survivor} after {took:.0?}: {words}");
    let names = |rank: usize| words.contains(&format!("rank {rank} "));
    let ranks = job.ranks.len();
    let neighbours = [(survivor + 1) % ranks, (survivor + ranks - 1) % ranks];
    let good = match transport.promises().killed {
        Told::All => names(victim),
        Told::Neighbours if neighbours.contains(&victim) => names(victim),
        Told::Neighbours => neighbours.into_iter().any(names),
        Told::Launcher => words.is_empty() || names(victim),
    };
    let ended =
        words.is_empty() || words.starts_with("ENDED") || (!had_joined && words.starts_with("NOT JOINED"));
    assert!(good && ended, "rank {survivor} said {words:?}:\n{}", job.outputs());
}
