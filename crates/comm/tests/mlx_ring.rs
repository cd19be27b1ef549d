//! A rank of this crate among MLX's own: the same calls with the same inputs give the same bytes as in a ring
//! of Python ranks alone.
//!
//! Needs `python3` with `venv`; MLX itself is installed from PyPI once, into a virtual environment under the
//! target folder.

use half::bf16;
use pomar_comm::{BufferMut, CommError, Group, GroupOptions, RingGroup};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// The release that the wire format was last compared with.
const MLX_VERSION: &str = "0.32.4";
const MLX_PACKAGE: &str = if cfg!(target_os = "macos") { "mlx" } else { "mlx[cpu]" };

/// What one ring may take: MLX's threads spin, which on a busy machine takes their neighbours' time.
const RING_TIME: Duration = Duration::from_secs(100);

/// One ring at a time, for the same reason.
static MACHINE: Mutex<()> = Mutex::new(());

// --- what is compared

#[test]
fn two_ranks() {
    compare(2, 1, &[&[0], &[1]]);
}

#[test]
fn two_ranks_with_three_connections() {
    compare(2, 3, &[&[1]]);
}

#[test]
fn three_ranks_with_two_connections() {
    compare(3, 2, &[&[0], &[1], &[2]]);
}

#[test]
fn four_ranks() {
    compare(4, 1, &[&[0], &[2], &[3], &[1, 3]]);
}

/// Rings with ranks of ours in each choice of places, against a ring of Python ranks.
fn compare(ranks: usize, connections: usize, places: &[&[usize]]) {
    let all_python = run_ring(ranks, connections, &[]);
    assert_eq!(all_python[0].len(), 9 * 9, "every case was run");
    for ours in places {
        let mixed = run_ring(ranks, connections, ours);
        assert_same(&mixed, &all_python, &format!("ours: {ours:?} of {ranks}, {connections} connections"));
    }
}

fn assert_same(mixed: &[Vec<String>], all_python: &[Vec<String>], what: &str) {
    for (rank, (got, expected)) in mixed.iter().zip(all_python).enumerate() {
        for (got, expected) in got.iter().zip(expected) {
            assert_eq!(got, expected, "on rank {rank}; {what}");
        }
        assert_eq!(got.len(), expected.len(), "on rank {rank}; {what}");
    }
}

/// Every rank's lines.
fn run_ring(ranks: usize, connections: usize, ours: &[usize]) -> Vec<Vec<String>> {
    let python = mlx_python();
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let hosts = &hosts(ranks, connections);
    let folder = tempfile::tempdir().unwrap();
    let deadline = Instant::now() + RING_TIME;
    let mut theirs: Vec<Option<PythonRank>> = (0..ranks)
        .map(|rank| {
            (!ours.contains(&rank)).then(|| PythonRank::start(&python, folder.path(), hosts, rank, "run"))
        })
        .collect();
    thread::scope(|scope| {
        let our_threads: Vec<_> = ours.iter().map(|rank| scope.spawn(|| our_lines(hosts, *rank))).collect();
        let mut our_results = our_threads.into_iter();
        theirs
            .iter_mut()
            .map(|python| match python {
                Some(python) => python.lines(deadline),
                None => our_results.next().unwrap().join().unwrap(),
            })
            .collect()
    })
}

// --- our rank

/// What mlx_side.py does, in its order.
fn our_lines(hosts: &[Vec<String>], rank: usize) -> Vec<String> {
    let options = GroupOptions { deadline: RING_TIME, join_deadline: RING_TIME, ..GroupOptions::default() };
    let group = RingGroup::connect(hosts, rank, options).unwrap();
    let ranks = hosts.len();
    let lane = ranks * 65_536;
    let mut lines = Vec::new();
    for length in [1, ranks, ranks + 1, 1000, 4099, lane - 1, 2 * lane - 1, 2 * lane + 5, 3 * lane + 1] {
        reduce(&group, &mut lines, "f32", numbers(rank, length, |n| n));
        reduce(&group, &mut lines, "bf16", numbers(rank, length, bf16::from_f32));
        reduce(&group, &mut lines, "i32", mixed(rank, length).map(|n| n as i32).collect());
        let mine = to_bytes(&numbers(rank, length, |n| n));
        let mut all = vec![0; mine.len() * ranks];
        group.all_gather(&mine, &mut all).unwrap();
        lines.push(line("all_gather", "f32", length, &all));
        let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for (to, from) in [(right, left), (left, right)] {
            let received = exchange(&group, &mine, to, from).unwrap();
            lines.push(line("recv", &format!("from {from}"), length, &received));
        }
    }
    lines
}

fn exchange(group: &dyn Group, mine: &[u8], to: usize, from: usize) -> Result<Vec<u8>, CommError> {
    let mut received = vec![0; mine.len()];
    if group.rank() == 0 {
        group.recv(from, &mut received)?;
        group.send(to, mine)?;
    } else {
        group.send(to, mine)?;
        group.recv(from, &mut received)?;
    }
    Ok(received)
}

fn reduce<T: Scalar>(group: &dyn Group, lines: &mut Vec<String>, dtype: &str, own: Vec<T>)
where
    for<'a> BufferMut<'a>: From<&'a mut [T]>,
{
    let (mut sum, mut max) = (own.clone(), own);
    group.all_sum(sum.as_mut_slice().into()).unwrap();
    lines.push(line("all_sum", dtype, sum.len(), &to_bytes(&sum)));
    group.all_max(max.as_mut_slice().into()).unwrap();
    lines.push(line("all_max", dtype, max.len(), &to_bytes(&max)));
}

fn line(call: &str, what: &str, length: usize, bytes: &[u8]) -> String {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{call} {what} {length}: {digest}")
}

fn mixed(rank: usize, length: usize) -> impl Iterator<Item = u32> {
    let first = (rank as u32 + 1) * 40_503;
    (0..length as u32).map(move |index| {
        let mixed = index.wrapping_mul(2_654_435_761).wrapping_add(first);
        mixed ^ mixed >> 15
    })
}

fn numbers<T>(rank: usize, length: usize, round: fn(f32) -> T) -> Vec<T> {
    mixed(rank, length).map(|mixed| round(((mixed & 0xffff) as f32 - 32_768.0) / 77.0)).collect()
}

trait Scalar: Copy {
    fn bytes(self) -> impl Iterator<Item = u8>;
}

macro_rules! scalar {
    ($($type:ty),+) => {$(impl Scalar for $type {
        fn bytes(self) -> impl Iterator<Item = u8> { self.to_ne_bytes().into_iter() }
    })+};
}
scalar!(f32, bf16, i32);

fn to_bytes<T: Scalar>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|value| value.bytes()).collect()
}

// --- ends

#[test]
fn a_killed_python_neighbour_is_named() {
    let python = mlx_python();
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let hosts = hosts(3, 1);
    let mut theirs: Vec<PythonRank> =
        [1, 2].map(|rank| PythonRank::start(&python, folder.path(), &hosts, rank, "wait")).into();
    let options = GroupOptions { join_deadline: RING_TIME, ..GroupOptions::default() };
    let group = RingGroup::connect(&hosts, 0, options).unwrap();
    let sum = || {
        let mut data = [1.0_f32; 1024];
        group.all_sum(data.as_mut_slice().into()).map(|()| data)
    };
    for _ in 0..20 {
        assert_eq!(sum().unwrap(), [3.0; 1024]);
    }
    theirs[0].process.kill().unwrap();
    let killed = Instant::now();
    let error = loop {
        if let Err(error) = sum() {
            break error;
        }
    };
    assert!(matches!(error, CommError::PeerDead { rank: 1, .. }), "{error}");
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
}

// --- Python ranks

/// A Python process that is killed when the test ends, however it ends.
struct PythonRank {
    process: Child,
    output: PathBuf,
    errors: PathBuf,
    rank: usize,
}

impl PythonRank {
    fn start(python: &Path, folder: &Path, hosts: &[Vec<String>], rank: usize, what: &str) -> Self {
        let hostfile = folder.join("hosts.json");
        fs::write(&hostfile, serde_json::to_string(hosts).unwrap()).unwrap();
        let file = |name: &str| folder.join(format!("{rank}.{name}"));
        let (output, errors) = (file("out"), file("err"));
        let process = Command::new(python)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mlx_side.py"))
            .arg(what)
            .env("MLX_HOSTFILE", &hostfile)
            .env("MLX_RANK", rank.to_string())
            .stdin(Stdio::null())
            .stdout(File::create(&output).unwrap())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        Self { process, output, errors, rank }
    }

    /// What it has printed when it has ended well.
    fn lines(&mut self, deadline: Instant) -> Vec<String> {
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "Python rank {} takes too long: {}", self.rank, self.said());
            thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "Python rank {} ended with {status}: {}", self.rank, self.said());
        fs::read_to_string(&self.output).unwrap().lines().map(str::to_owned).collect()
    }

    fn said(&self) -> String {
        let said = |path| fs::read_to_string(path).unwrap();
        format!("{}\n{}", said(&self.output), said(&self.errors))
    }
}

impl Drop for PythonRank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A Python with MLX, in a virtual environment that is made once for all test programs.
fn mlx_python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(folder).unwrap();
    let environment = folder.join(format!("mlx-{MLX_VERSION}"));
    let (python, ready) = (environment.join("bin/python"), environment.join("ready"));
    let lock = File::create(folder.join("mlx.lock")).unwrap();
    lock.lock().unwrap();
    if !ready.exists() {
        must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
        must(
            Command::new(&python)
                .args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install"])
                .arg(format!("{MLX_PACKAGE}=={MLX_VERSION}")),
        );
        File::create(ready).unwrap();
    }
    python
}

/// Runs a command to its good end, or fails the test with what it said.
fn must(command: &mut Command) {
    let hint = "this test needs python3 with venv (Debian: apt install python3-venv) and MLX from PyPI";
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {hint}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {said}\n{hint}", output.status);
}

/// Addresses that no other program uses; see the suite's helper of the same purpose.
fn hosts(ranks: usize, connections: usize) -> Vec<Vec<String>> {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
    let id = process::id();
    let host = if cfg!(target_os = "linux") {
        format!("127.{}.{}.{}", 64 | id >> 16 & 63, id >> 8 & 255, id & 255)
    } else {
        "127.0.0.1".to_owned()
    };
    let address =
        |_| format!("{host}:{}", 28_000 + (id % 8) as u16 * 500 + NEXT_PORT.fetch_add(1, Relaxed) % 500);
    (0..ranks).map(|_| (0..connections).map(address).collect()).collect()
}
