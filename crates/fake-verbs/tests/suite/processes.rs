//! Ranks as real processes. The test program starts itself again with `RANK` in its environment; [`rank`] is then the
//! whole process.

use crate::common::{End, PATIENCE, RETRIES_TAKE, Size, this_program};
use pomar_fake_verbs::{Script, live};
use pomar_verbs::{Gid, QpKind, RemoteEnd};
use std::{
    env,
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};

/// "kind action", for one rank.
const RANK: &str = "POMAR_FAKE_VERBS_RANK";

const BYTES: usize = 512 << 10;
const SIZE: Size = Size { depth: 4, memory: 2 * BYTES };
const ROUNDS: u64 = 30;

/// One rank of the tests below; nothing when run as a test of its own.
#[test]
fn rank() {
    let Ok(spec) = env::var(RANK) else { return };
    let (kind, action) = spec.split_once(' ').expect("two words");
    let kind = if kind == "rc" { QpKind::Rc } else { QpKind::Uc };
    // Both ranks use the device of the same name: each process has its own.
    let end = End::new("fake0", kind, SIZE);
    end.post_receive(2, BYTES..2 * BYTES);
    println!("\nNUMBER {}", end.pair.number());
    let queue_pair = answer().parse().expect("the peer's number");
    let gid = Gid("::ffff:10.99.0.1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    end.pair.connect(&end.local(), &RemoteEnd { queue_pair, packet_sequence: 7, lid: 0, gid }).unwrap();
    println!("\nCONNECTED");
    answer();
    match action {
        "first" => ping_pong(&end, true, ROUNDS),
        "second" => ping_pong(&end, false, ROUNDS),
        "sleeper" => {
            ping_pong(&end, true, 1);
            // Until the background thread waits for nothing but news.
            thread::sleep(Duration::from_millis(100));
            end.post_send(1, 0..BYTES);
            println!("\nPOSTED");
            answer();
            end.wait_for(1);
        }
        "waiter" => {
            ping_pong(&end, false, 1);
            end.wait_for(2);
            println!("\nRECEIVED");
        }
        "victim" => loop {
            std::thread::park();
        },
        "survivor" => survive(&end, kind),
        other => panic!("{other}"),
    }
    drop(end);
    assert_eq!(live(), Ok(0));
    println!("\nDONE");
}

/// A line from the parent.
fn answer() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent");
    line.trim().to_owned()
}

fn ping_pong(end: &End, is_first: bool, rounds: u64) {
    // Completions by id: the answer may be here before the acknowledgement of what it answers.
    let mut come = [0; 3];
    let mut wait_for = |id: usize| {
        while come[id] == 0 {
            let completion = end.wait();
            assert!(completion.status.is_ok(), "{completion:?}");
            come[completion.id as usize] += 1;
        }
        come[id] -= 1;
    };
    for round in 0..rounds {
        for is_mine in [is_first, !is_first] {
            if is_mine {
                end.fill(0..BYTES, round as u8);
                end.post_send(1, 0..BYTES);
                wait_for(1);
            } else {
                wait_for(2);
                assert!(end.bytes(BYTES..2 * BYTES).iter().all(|byte| *byte == round as u8), "round {round}");
                end.post_receive(2, BYTES..2 * BYTES);
            }
        }
    }
}

/// The peer has been killed.
fn survive(end: &End, kind: QpKind) {
    let start = Instant::now();
    end.post_send(1, 0..BYTES);
    if kind == QpKind::Uc {
        end.wait_for(1);
        return;
    }
    assert!(end.wait_for_failure(1).starts_with("transport retry counter exceeded"));
    assert!(start.elapsed() >= RETRIES_TAKE);
    assert!(end.wait_for_failure(2).starts_with("flushed"));
}

struct Rank {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Rank {
    fn start(spec: &str, folder: &Path) -> Self {
        let mut command = this_program(&Script::default(), folder);
        let command = command.args(["--exact", "processes::rank", "--nocapture"]).env(RANK, spec);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program");
        let output = BufReader::new(process.stdout.take().expect("piped")).lines();
        Self { process, output }
    }

    /// What the rank prints after `word`.
    fn hear(&mut self, word: &str) -> String {
        let found = self
            .output
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(word).map(str::to_owned));
        found.unwrap_or_else(|| panic!("no {word}")).trim().to_owned()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().expect("piped"), "{line}").expect("alive");
    }

    fn kill(&mut self) {
        self.process.kill().expect("alive");
        self.process.wait().expect("ours");
    }

    /// Waits for its good end.
    fn finish(mut self) {
        self.hear("DONE");
        let start = Instant::now();
        assert!(self.process.wait().expect("ours").success());
        assert!(start.elapsed() < PATIENCE);
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn connected(kind: &str, actions: [&str; 2], folder: &Path) -> [Rank; 2] {
    let mut ranks = actions.map(|action| Rank::start(&format!("{kind} {action}"), folder));
    let [a, b] = ranks.each_mut().map(|rank| rank.hear("NUMBER"));
    assert_ne!(a, b, "numbers are unique in the folder");
    ranks[0].tell(&b);
    ranks[1].tell(&a);
    for rank in &mut ranks {
        rank.hear("CONNECTED");
    }
    ranks
}

#[test]
fn ping_pong_between_processes() {
    for kind in ["rc", "uc"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ranks = connected(kind, ["first", "second"], folder.path());
        ranks.iter_mut().for_each(|rank| rank.tell("go"));
        ranks.into_iter().for_each(Rank::finish);
        assert_eq!(folder.path().read_dir().expect("the folder").count(), 0, "sockets are left");
    }
}

#[test]
fn a_rank_that_is_killed_is_noticed_by_rc_only() {
    for kind in ["rc", "uc"] {
        let folder = tempfile::tempdir().expect("a folder");
        let [mut victim, mut survivor] = connected(kind, ["victim", "survivor"], folder.path());
        victim.kill();
        survivor.tell("go");
        survivor.finish();
    }
}

#[test]
fn a_long_send_goes_on_while_its_program_does_something_else() {
    for kind in ["rc", "uc"] {
        let folder = tempfile::tempdir().expect("a folder");
        let [mut sleeper, mut waiter] = connected(kind, ["sleeper", "waiter"], folder.path());
        sleeper.tell("go");
        waiter.tell("go");
        sleeper.hear("POSTED");
        // More than a socket holds, from a process that neither posts nor polls.
        waiter.hear("RECEIVED");
        sleeper.tell("on");
        sleeper.finish();
        waiter.finish();
    }
}
