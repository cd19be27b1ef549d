//! Groups under the real launchers of Open MPI and MPICH.
//!
//! The test program has `mpirun` start itself with `SCENARIO` in its environment; [`child`] is then the whole process.
//! Needs `apt-get install openmpi-bin libopenmpi3 mpich`.

#![cfg(target_os = "linux")]

#[path = "suite/checks.rs"]
mod checks;

use checks::check_all;
use pomar_comm::{CommError, Group, GroupOptions, MAX_MESSAGE_BYTES, MpiGroup, from_env};
use std::{
    env, fs,
    process::{Child, Command, ExitStatus, Stdio, exit},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

const SCENARIO: &str = "POMAR_COMM_MPI_SCENARIO";
const LIBRARY: &str = "POMAR_MPI_LIBRARY";

/// No job takes longer unless it hangs.
const JOB_LIMIT: Duration = Duration::from_secs(60);

const SOON: Duration = Duration::from_millis(100);

/// What a stopped peer may take to be named, and an abort to be heard.
const LIMIT: Duration = Duration::from_secs(2);

const VICTIM: usize = 1;

/// A launcher, its options, and what its library calls itself.
#[derive(Clone, Copy, Debug)]
struct Launcher {
    program: &'static str,
    options: &'static [&'static str],
    library: &'static str,
}

const OPEN_MPI: Launcher =
    Launcher { program: "mpirun.openmpi", options: &["--oversubscribe"], library: "Open MPI" };
const MPICH: Launcher = Launcher { program: "mpirun.mpich", options: &[], library: "MPICH" };
const LAUNCHERS: [Launcher; 2] = [OPEN_MPI, MPICH];

/// A launcher at work; killed when dropped.
struct Job(Child);

impl Job {
    fn wait(&mut self) -> Option<ExitStatus> {
        let started = Instant::now();
        while started.elapsed() < JOB_LIMIT {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a job ended and what all its ranks printed.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    output: String,
}

impl Ended {
    /// The rest of each line that begins with `word`.
    fn lines(&self, word: &str) -> Vec<&str> {
        self.output.lines().filter_map(|line| line.strip_prefix(word)).collect()
    }

    /// No rank that told its process number is still there.
    fn assert_no_orphans(&self, ranks: usize) {
        let processes = self.lines("PROCESS ");
        assert_eq!(processes.len(), ranks, "{}", self.output);
        let started = Instant::now();
        while processes.iter().any(|id| is_running(id)) {
            assert!(started.elapsed() < LIMIT, "ranks are left over: {processes:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A dead process that nobody has collected yet does not count.
fn is_running(process: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn run(mut command: Command) -> Ended {
    let file = tempfile::NamedTempFile::new().unwrap();
    let append = fs::OpenOptions::new().append(true).open(file.path()).unwrap();
    command.stdin(Stdio::null()).stdout(append.try_clone().unwrap()).stderr(append);
    // One job at a time: its ranks alone are more than there are cores.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut job = Job(command.spawn().unwrap_or_else(|error| {
        let program = command.get_program().display();
        panic!("{program}: {error}; apt-get install openmpi-bin libopenmpi3 mpich")
    }));
    let status = job.wait();
    let output = fs::read_to_string(file.path()).unwrap();
    Ended { status: status.unwrap_or_else(|| panic!("the job hangs; so far:\n{output}")), output }
}

/// Adds this program as a rank to a launcher's command, or runs it by itself.
fn as_child(mut command: Command, scenario: &str) -> Command {
    command.args(["--exact", "child", "--nocapture"]).env(SCENARIO, scenario);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

fn launch_with(launcher: Launcher, ranks: usize, scenario: &str, library: Option<&str>) -> Ended {
    let mut command = Command::new(launcher.program);
    command.args(launcher.options).args(["-n", &ranks.to_string()]).arg(env::current_exe().unwrap());
    command.envs(library.map(|library| (LIBRARY, library)));
    run(as_child(command, scenario))
}

fn launch(launcher: Launcher, ranks: usize, scenario: &str) -> Ended {
    launch_with(launcher, ranks, scenario, None)
}

fn launch_well(launcher: Launcher, ranks: usize, scenario: &str) {
    let started = Instant::now();
    let ended = launch(launcher, ranks, scenario);
    println!("{scenario} with {ranks} ranks of {}: {:.1?}", launcher.library, started.elapsed());
    assert!(ended.status.success(), "{launcher:?} {ranks} {scenario}\n{}", ended.output);
    let libraries = ended.lines("LIBRARY ");
    assert!(libraries.len() == ranks && libraries.iter().all(|l| l.starts_with(launcher.library)));
    ended.assert_no_orphans(ranks);
}

/// A rank of the tests below; nothing when run as a test of its own.
#[test]
fn child() {
    let Ok(scenario) = env::var(SCENARIO) else { return };
    println!("\nPROCESS {}", std::process::id());
    if scenario == "environment" {
        let group = from_env(GroupOptions::default()).unwrap();
        println!("\nRANKS {}", group.size());
        return check_all(&*group);
    }
    let options = if scenario == "stopped" { GroupOptions::default() } else { patient() };
    let group = match MpiGroup::join(options) {
        Ok(group) => group,
        Err(error) => {
            println!("\nREFUSED {error}");
            exit(1)
        }
    };
    println!("\nLIBRARY {}", group.library());
    group.barrier().unwrap();
    match &*scenario {
        "alone" => check_all(&group),
        "all" => everything(&group),
        "out-of-step" => out_of_step(group),
        "deadlines" => deadlines(group),
        "aborts" => aborts(group),
        "farewells" => farewells(group),
        "late" => late(group),
        "killed" => killed(group),
        "stopped" => stopped(group),
        other => panic!("{other}"),
    }
}

/// A group that all have joined: before that, joining fails when the others have ended the group already.
fn join() -> MpiGroup {
    let group = MpiGroup::join(patient()).unwrap();
    group.barrier().unwrap();
    group
}

/// Where nobody is meant to die, a busy machine shall not make it seem so.
fn patient() -> GroupOptions {
    GroupOptions { dead_after: Duration::from_secs(20), ..GroupOptions::default() }
}

fn everything(group: &MpiGroup) {
    check_all(group);
    long_data(group);
    messages(group);
    side_by_side(group);
    nan_wins(group);
}

/// 4 MiB per rank, whose values tell rank and place.
fn long_data(group: &MpiGroup) {
    let (rank, size, length) = (group.rank(), group.size(), 4 << 20);
    let value = |rank: usize, i: usize| ((rank + 1) * (i % 1021)) as f32;
    let mut data: Vec<f32> = (0..length / 4).map(|i| value(rank, i)).collect();
    group.all_sum(data.as_mut_slice().into()).unwrap();
    let factor = (size * (size + 1) / 2) as f32;
    assert!(data.iter().enumerate().all(|(i, got)| *got == (i % 1021) as f32 * factor));
    let mut all = vec![0; length * size];
    group.all_gather(&vec![rank as u8 + 1; length], &mut all).unwrap();
    assert!(all.chunks(length).enumerate().all(|(rank, part)| part.iter().all(|b| *b == rank as u8 + 1)));
    let mut data = vec![rank as u8; length];
    group.broadcast(size - 1, &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == size as u8 - 1));
}

/// Around the ring, in both directions at once.
fn messages(group: &MpiGroup) {
    let sizes = [0, 1, 23, 24, 25, 1000, 65_535, 65_560, 65_561, 1 << 20, 4 << 20];
    let (rank, size) = (group.rank(), group.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let content = |rank: usize, bytes: usize| vec![(rank * 31 + bytes) as u8; bytes];
    thread::scope(|scope| {
        scope.spawn(|| sizes.iter().for_each(|n| group.send_message(next, &content(rank, *n)).unwrap()));
        let mut message = vec![];
        for bytes in sizes {
            group.recv_message(before, &mut message).unwrap();
            assert!(message == content(before, bytes), "{bytes}");
        }
    });
    // Many short ones fit into the window before anybody receives.
    (0..2000_u32).for_each(|i| group.send(next, &i.to_le_bytes()).unwrap());
    let mut got = [0; 4];
    for i in 0..2000 {
        group.recv(before, &mut got).unwrap();
        assert_eq!(u32::from_le_bytes(got), i);
    }
}

/// Unread data holds up no collective; messages and collectives run on different threads.
fn side_by_side(group: &MpiGroup) {
    let (rank, size) = (group.rank(), group.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    group.send(next, &[rank as u8; 900_000]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| (0..500_u32).for_each(|i| group.send(before, &i.to_le_bytes()).unwrap()));
        for i in 0..100 {
            let mut data = vec![i; 20_000];
            group.all_sum(data.as_mut_slice().into()).unwrap();
            assert!(data.iter().all(|got| *got == i * size as i64));
        }
    });
    let mut long = vec![0; 900_000];
    let mut short = [0; 4];
    let mut receive_short = || {
        for i in 0..500_u32 {
            group.recv(next, &mut short).unwrap();
            assert_eq!(u32::from_le_bytes(short), i);
        }
    };
    // With two ranks both come from the same one, in the order sent.
    if next != before {
        receive_short();
        group.recv(before, &mut long).unwrap();
    } else {
        group.recv(before, &mut long).unwrap();
        receive_short();
    }
    assert!(long.iter().all(|byte| *byte == before as u8));
}

fn nan_wins(group: &MpiGroup) {
    let mut data = [if group.rank() == 1 { f32::NAN } else { 9.0 }, group.rank() as f32];
    group.all_max(data.as_mut_slice().into()).unwrap();
    assert!(data[0].is_nan() && data[1] == (group.size() - 1) as f32);
}

/// One group after the other: each mistake is named, spends its group, and leaves MPI as it was.
fn out_of_step(group: MpiGroup) {
    let rank = group.rank();
    let error = group.all_sum(vec![0_i32; 4 + rank].as_mut_slice().into()).unwrap_err();
    assert!(matches!(error, CommError::SizeMismatch { .. } | CommError::Aborted { .. }), "{error}");
    assert!(group.barrier().is_err(), "the group is spent");
    drop(group);

    let group = join();
    let mut data = [0; 8];
    let error = match rank {
        0 => group.broadcast(0, &mut data).unwrap_err(),
        _ => group.all_max(data.as_mut_slice().into()).unwrap_err(),
    };
    assert!(matches!(error, CommError::OutOfStep { .. } | CommError::Aborted { .. }), "{error}");
    drop(group);

    let group = join();
    if rank == 0 {
        (1..group.size()).for_each(|peer| group.send(peer, &[1; 5]).unwrap());
        assert!(matches!(group.recv(1, &mut [0]).unwrap_err(), CommError::Aborted { .. }));
    } else {
        let error = group.recv(0, &mut [0; 6]).unwrap_err();
        let named = matches!(error, CommError::SizeMismatch { rank: 0, expected: 6, got: 5, .. });
        assert!(named || matches!(error, CommError::Aborted { .. }), "{error}");
    }
    drop(group);

    let group = join();
    if rank == 0 {
        group.send(1, &(MAX_MESSAGE_BYTES as u64 + 1).to_le_bytes()).unwrap();
    } else if rank == 1 {
        let error = group.recv_message(0, &mut vec![]).unwrap_err();
        assert!(matches!(error, CommError::MessageTooLarge { .. }), "{error}");
    }
    assert!(group.barrier().is_err());
    drop(group);
    join();
}

fn deadlines(group: MpiGroup) {
    let rank = group.rank();
    if rank == 0 {
        let started = Instant::now();
        let error = group.recv_within(1, &mut [0; 4], SOON).unwrap_err();
        assert!(matches!(error, CommError::Timeout { waiting_for: 1, op: "recv", .. }), "{error}");
        assert!((SOON..LIMIT).contains(&started.elapsed()));
        group.send(1, b"now").unwrap();
        group.recv(1, &mut [0; 4]).unwrap();
    } else if rank == 1 {
        group.recv(0, &mut [0; 3]).unwrap();
        group.send(0, b"late").unwrap();
    }
    group.barrier().unwrap();
    drop(group);

    // A send that nobody takes.
    let group = join();
    if rank == 0 {
        group.set_deadline(SOON);
        let error = loop {
            if let Err(error) = group.send(1, &[0; 1000]) {
                break error;
            }
        };
        assert!(matches!(error, CommError::Timeout { waiting_for: 1, op: "send", .. }), "{error}");
        group.abort("nobody takes it");
    }
    assert!(matches!(group.barrier().unwrap_err(), CommError::Aborted { by: 0, .. }));
    drop(group);

    // A collective without the last rank.
    let group = join();
    let last = group.size() - 1;
    if rank == last {
        let error = group.recv_within(0, &mut [0], LIMIT * 5).unwrap_err();
        assert!(matches!(error, CommError::Aborted { .. }), "{error}");
    } else {
        group.set_deadline(SOON);
        let error = group.barrier().unwrap_err();
        assert!(matches!(error, CommError::Timeout { .. } | CommError::Aborted { .. }), "{error}");
    }
    drop(group);

    // A rank that never makes its group.
    if rank != last {
        let options = GroupOptions { join_deadline: SOON * 10, ..patient() };
        let error = MpiGroup::join(options).unwrap_err();
        assert!(matches!(error, CommError::DidNotJoin { missing, .. } if missing == last), "{error}");
    }
}

/// Every rank aborts in turn, from a second thread, while it and all others wait in a call.
fn aborts(group: MpiGroup) {
    let (rank, size) = (group.rank(), group.size());
    drop(group);
    for aborter in 0..size {
        let group = join();
        thread::scope(|scope| {
            if rank == aborter {
                scope.spawn(|| {
                    thread::sleep(SOON);
                    group.abort("enough");
                });
            }
            let started = Instant::now();
            let error = group.recv((rank + 1) % size, &mut [0; 8]).unwrap_err();
            let by_name =
                matches!(&error, CommError::Aborted { by, reason } if *by == aborter && reason == "enough");
            assert!(by_name, "{error}");
            assert!((SOON / 2..LIMIT).contains(&started.elapsed()), "{:?}", started.elapsed());
        });
        assert!(matches!(group.barrier().unwrap_err(), CommError::Aborted { .. }), "future calls fail too");
    }
}

fn farewells(group: MpiGroup) {
    let (rank, last) = (group.rank(), group.size() - 1);
    if rank == last {
        group.send(0, &[7; 300_000]).unwrap();
        return;
    }
    if rank == 0 {
        let mut bytes = vec![0; 300_000];
        group.recv(last, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7), "what was sent before the farewell still counts");
        let error = group.recv(last, &mut bytes).unwrap_err();
        assert!(matches!(error, CommError::PeerDead { rank, .. } if rank == last), "{error}");
    }
    assert_eq!(group.barrier().unwrap_err().rank(), Some(last));
    assert!(group.send(last, b"hello?").is_err());
}

/// The others have long done when the last rank ends; the launcher must not take that for a crash. A group that failed
/// before, from which all have recovered, makes no difference.
fn late(group: MpiGroup) {
    group.set_deadline(SOON);
    group.abort("to be forgotten");
    drop(group);
    let group = join();
    if group.rank() == group.size() - 1 {
        thread::sleep(Duration::from_secs(3));
    }
}

/// Sums until that fails, says why, and ends as a program does whose work has failed.
fn sum_in_vain(group: MpiGroup) -> ! {
    let error = loop {
        if let Err(error) = group.all_sum([1_i64; 1024].as_mut_slice().into()) {
            break error;
        }
    };
    // A victim that the launcher wakes up when it ends the job has its own view of things.
    if group.rank() != VICTIM {
        println!("\nNAMED {error}");
    }
    drop(group);
    exit(1)
}

fn killed(group: MpiGroup) {
    if group.rank() == VICTIM {
        signal_oneself(libc::SIGKILL);
    }
    // The launcher ends this rank, or the silence does; whichever comes first.
    sum_in_vain(group);
}

fn stopped(group: MpiGroup) {
    if group.rank() == VICTIM {
        signal_oneself(libc::SIGSTOP);
        // The signal takes a moment to stop all threads. Inside MPI, this one would make others deaf (`verdict_on`).
        thread::sleep(SOON);
    }
    // Without a word about the victim until then, the error would be the deadline's.
    group.set_deadline(LIMIT);
    sum_in_vain(group);
}

fn signal_oneself(signal: libc::c_int) {
    // SAFETY: plain integers.
    unsafe { libc::kill(libc::getpid(), signal) };
}

#[test]
fn all_calls_all_types_all_sizes() {
    for (launcher, ranks) in [(OPEN_MPI, 2), (OPEN_MPI, 3), (MPICH, 3), (MPICH, 4)] {
        launch_well(launcher, ranks, "all");
    }
}

#[test]
fn a_rank_without_a_launcher_is_a_group_of_one() {
    for launcher in LAUNCHERS {
        let mut command = Command::new(env::current_exe().unwrap());
        let library = if launcher.library == "MPICH" { "libmpich.so.12" } else { "libmpi.so.40" };
        command.env(LIBRARY, library);
        let ended = run(as_child(command, "alone"));
        assert!(ended.status.success(), "{}", ended.output);
        assert!(ended.lines("LIBRARY ")[0].starts_with(launcher.library), "{}", ended.output);
    }
}

#[test]
fn a_launcher_is_found_in_the_environment() {
    for launcher in LAUNCHERS {
        let ended = launch(launcher, 2, "environment");
        assert!(ended.status.success() && ended.lines("RANKS ") == ["2", "2"], "{}", ended.output);
    }
}

#[test]
fn ranks_that_call_other_things_are_named() {
    for launcher in LAUNCHERS {
        [2, 3].into_iter().for_each(|ranks| launch_well(launcher, ranks, "out-of-step"));
    }
}

#[test]
fn deadlines_end_every_wait() {
    for launcher in LAUNCHERS {
        [2, 3].into_iter().for_each(|ranks| launch_well(launcher, ranks, "deadlines"));
    }
}

#[test]
fn an_abort_ends_every_wait() {
    for launcher in LAUNCHERS {
        [2, 3].into_iter().for_each(|ranks| launch_well(launcher, ranks, "aborts"));
    }
}

#[test]
fn a_rank_that_left_is_named() {
    for launcher in LAUNCHERS {
        [2, 3].into_iter().for_each(|ranks| launch_well(launcher, ranks, "farewells"));
    }
}

#[test]
fn ranks_wait_for_the_last_one() {
    for launcher in LAUNCHERS {
        launch_well(launcher, 3, "late");
    }
}

#[test]
fn a_killed_rank_ends_the_job() {
    for launcher in LAUNCHERS {
        let started = Instant::now();
        let ended = launch(launcher, 3, "killed");
        println!("{}: ended after {:.1?}: {:?}", launcher.library, started.elapsed(), ended.lines("NAMED "));
        assert!(!ended.status.success());
        ended.assert_no_orphans(3);
    }
}

#[test]
fn a_stopped_rank_is_named_and_ends_the_job() {
    for launcher in LAUNCHERS {
        let ended = launch(launcher, 3, "stopped");
        let named = ended.lines("NAMED ");
        assert!(named.len() == 2 && named.iter().all(|error| error.contains("rank 1 is dead")), "{named:?}");
        assert!(!ended.status.success());
        ended.assert_no_orphans(3);
    }
}

#[test]
fn the_other_launchers_library_is_refused() {
    for (launcher, library) in [(OPEN_MPI, "libmpich.so.12"), (MPICH, "libmpi.so.40")] {
        let ended = launch_with(launcher, 2, "all", Some(library));
        assert!(ended.output.contains("the launcher started 2 ranks"), "{}", ended.output);
        assert!(ended.output.contains(LIBRARY) && !ended.status.success());
    }
}

#[test]
fn what_is_no_mpi_library_is_refused() {
    for (library, complaint) in
        [("/nowhere/libmpi.so", "/nowhere/libmpi.so"), ("libc.so.6", "MPI_Get_library_version")]
    {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(LIBRARY, library);
        let ended = run(as_child(command, "alone"));
        let [refusal] = ended.lines("REFUSED ")[..] else { panic!("{}", ended.output) };
        assert!(refusal.contains(LIBRARY) && refusal.contains(complaint), "{refusal}");
    }
}
