//! Programs under mpirun, of both makes.

use crate::common::{Place, Running, assert_contains, failure, gone, lines, need, said};
use std::{path::PathBuf, process::Command, time::Duration};

const INSTALL: &str = "apt-get install openmpi-bin mpich";

/// Debian has both makes side by side under these names; elsewhere mpirun is what is there.
fn find(name: &str, makes: &[&str]) -> PathBuf {
    let beside = std::panic::catch_unwind(|| need(name, INSTALL));
    let program = beside.unwrap_or_else(|_| need("mpirun", INSTALL));
    let version = Command::new(&program).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    assert!(
        makes.iter().any(|make| version.contains(make)),
        "{program:?} is {version}, not {makes:?}: {INSTALL}"
    );
    program
}

pub(crate) fn open_mpi() -> PathBuf {
    find("mpirun.openmpi", &["Open MPI", "OpenRTE"])
}

fn mpich() -> PathBuf {
    find("mpirun.mpich", &["HYDRA"])
}

fn launch(place: &Place, mpirun: &std::path::Path, options: &[&str], script: &str) -> Command {
    let start = ["-n", "3", "--backend", "mpi", "--mpirun", mpirun.to_str().unwrap()];
    place.launch(&[&start[..], options, &["--", "sh", "-c", script]].concat())
}

#[test]
fn both_makes_start_ranks_with_variables_and_prefixes() {
    let place = Place::new();
    for mpirun in [open_mpi(), mpich()] {
        let script = "echo \"$OMPI_COMM_WORLD_RANK$PMI_RANK has $WHAT\"";
        let mut launch = launch(&place, &mpirun, &["--env", "WHAT=a b"], script);
        assert_eq!(lines(&mut launch), ["[0] 0 has a b", "[1] 1 has a b", "[2] 2 has a b"], "{mpirun:?}");
        place.assert_clean();
    }
}

#[test]
fn rank_0_gets_standard_input() {
    let place = Place::new();
    // MPICH's other ranks have an open input that never ends.
    let script = "[ $OMPI_COMM_WORLD_RANK$PMI_RANK = 0 ] && read word; echo \"got $word\"";
    for mpirun in [open_mpi(), mpich()] {
        let input = place.write("input", "hello\n");
        let mut launch = launch(&place, &mpirun, &[], script);
        launch.stdin(std::fs::File::open(input).unwrap());
        assert_eq!(lines(&mut launch), ["[0] got hello", "[1] got ", "[2] got "], "{mpirun:?}");
    }
}

#[test]
fn a_failing_rank_gives_the_status() {
    let place = Place::new();
    // Open MPI ends the others at once; MPICH waits for those that do not speak MPI.
    for (mpirun, others) in [(open_mpi(), "sleep 300"), (mpich(), "exit 0")] {
        let script = format!("[ $OMPI_COMM_WORLD_RANK$PMI_RANK = 1 ] && exit 3; {others}");
        let error = failure(&mut launch(&place, &mpirun, &[], &script), 3);
        assert_contains(&error, &["mpirun on host 127.0.0.1 ended with status 3"]);
    }
}

#[test]
fn killing_the_launcher_ends_mpirun_and_its_ranks() {
    let place = Place::new();
    let script = "echo $$ >$PLACE/rank.$OMPI_COMM_WORLD_RANK; sleep 300";
    let launch = Running::start(&mut launch(&place, &open_mpi(), &[], script));
    let pids = ["rank.0", "rank.1", "rank.2"].map(|file| place.pid(file));
    launch.signal("KILL");
    assert!(gone(&pids, Duration::from_secs(8)), "orphans among {pids:?}");
    place.assert_clean();
}

#[test]
fn what_is_no_mpirun_is_told() {
    let place = Place::new();
    let error = failure(&mut launch(&place, "no-such-mpirun".as_ref(), &[], "true"), 1);
    assert_contains(&error, &["cannot start 'no-such-mpirun'", "apt install openmpi-bin"]);
    let other = place.script("mpirun", "echo something else 1.0");
    let error = failure(&mut launch(&place, &other, &[], "true"), 1);
    assert_contains(&error, &["names neither Open MPI nor MPICH but says: something else 1.0"]);
    assert!(!said(&mut launch(&place, &other, &["--dry-run"], "true")).status.success());
}
