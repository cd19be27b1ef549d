//! However a launch ends, no process and no file stays.

use crate::common::{Place, Running, assert_contains, gone, runs};
use std::{
    process::Stdio,
    time::{Duration, Instant},
};

/// A rank with a child of its own; rank 1 cannot be asked to leave.
const STUBBORN: &str = "[ $POMAR_RANK = 1 ] && trap '' INT TERM
    sleep 300 & echo $! >$PLACE/child.$POMAR_RANK
    echo $$ >$PLACE/rank.$POMAR_RANK
    while :; do sleep 1; done";

fn processes(place: &Place) -> Vec<u32> {
    ["rank.0", "rank.1", "child.0", "child.1"].map(|file| place.pid(file)).into()
}

#[test]
fn control_c_asks_then_insists() {
    let place = Place::new();
    let script = "trap 'echo bye; exit 0' INT; trap '' TERM
        [ $POMAR_RANK = 1 ] && trap '' INT
        echo $$ >$PLACE/rank.$POMAR_RANK; while :; do sleep 0.1; done";
    let launch = Running::start(&mut place.here(2, &[], script));
    let pids = ["rank.0", "rank.1"].map(|file| place.pid(file));
    let began = Instant::now();
    launch.signal("INT");
    assert!(gone(&pids[..1], Duration::from_secs(2)), "rank 0 did not hear of the interrupt");
    let said = launch.said();
    assert_eq!((said.status.code(), said.out.as_str()), (Some(130), "[0] bye\n"), "{}", said.err);
    assert!(!runs(pids[1]) && began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    place.assert_clean();
}

#[test]
fn control_c_twice_does_not_wait() {
    let place = Place::new();
    let launch = Running::start(&mut place.here(2, &[], STUBBORN));
    let pids = processes(&place);
    let began = Instant::now();
    launch.signal("INT");
    std::thread::sleep(Duration::from_millis(300));
    launch.signal("INT");
    assert_eq!(launch.said().status.code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(gone(&pids, Duration::ZERO));
}

#[test]
fn terminating_the_launcher_terminates_the_ranks() {
    let place = Place::new();
    let launch = Running::start(&mut place.here(2, &[], STUBBORN));
    let pids = processes(&place);
    launch.signal("TERM");
    assert_eq!(launch.said().status.code(), Some(143));
    assert!(gone(&pids, Duration::ZERO));
    place.assert_clean();
}

#[test]
fn nohup_is_respected() {
    let place = Place::new();
    let script = "echo $$ >$PLACE/rank.$POMAR_RANK; until [ -e $PLACE/go ]; do sleep 0.1; done; echo done";
    let inner = place.here(2, &[], script);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_pomar")]);
    command.args(inner.get_args().skip_while(|argument| *argument != "launch"));
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let launch = Running::start(&mut command);
    for file in ["rank.0", "rank.1"] {
        place.pid(file);
    }
    launch.signal("HUP");
    std::thread::sleep(Duration::from_millis(300));
    place.write("go", "");
    let said = launch.said();
    assert!(said.status.success() && said.out.matches("done").count() == 2, "{} {}", said.out, said.err);
}

#[test]
fn killing_the_launcher_leaves_no_orphan() {
    let place = Place::new();
    let launch = Running::start(&mut place.here(2, &[], STUBBORN));
    let pids = processes(&place);
    assert!(pids.iter().all(|pid| runs(*pid)));
    launch.signal("KILL");
    assert!(gone(&pids, Duration::from_secs(8)), "orphans among {pids:?}");
    place.assert_clean();
}

#[test]
fn what_a_rank_leaves_running_ends_with_it() {
    let place = Place::new();
    let said = Running::start(&mut place.here(1, &[], "sleep 300 & echo $! >$PLACE/child")).said();
    assert!(said.status.success(), "{}", said.err);
    assert!(gone(&[place.pid("child")], Duration::from_secs(2)));
    place.assert_clean();
}

#[test]
fn an_interrupt_before_the_start_starts_nothing() {
    let place = Place::new();
    // An ssh that never answers.
    let ssh = place.script("ssh", "echo $$ >$PLACE/ssh; exec sleep 300");
    let arguments = ["--hosts", "10.0.0.1", "--ssh", ssh.to_str().unwrap(), "--", "touch", "started"];
    let launch = Running::start(&mut place.launch(&arguments));
    let pid = place.pid("ssh");
    launch.signal("INT");
    let said = launch.said();
    assert_eq!(said.status.code(), Some(130), "{}", said.err);
    crate::common::kill("KILL", pid.into());
    assert!(!place.path("started").exists());
    assert_contains(&said.out, &[]);
}
