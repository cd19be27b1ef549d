//! Ranks as real processes that are killed, stopped, and leave nothing behind.
//!
//! The test program starts itself again with `CHILD` in its environment; [`child`] is then the whole process.

use crate::common::{KEY, Kind, groups, loopback, ring_hosts, run};
use pomar_comm::{
    Group, GroupOptions, RingGroup, Segment, ShmGroup, TcpGroup, TcpListenerHandle, shm::inherited_fd,
};
use std::{
    env,
    io::{BufRead, BufReader, Lines, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// What a dead or stopped peer may take to be named.
const LIMIT: Duration = Duration::from_secs(2);

const VICTIM: usize = 1;
const RANKS: usize = 3;

/// "kind rank size way action", where the way is a descriptor or a ring's addresses; words for one child.
const CHILD: &str = "POMAR_COMM_CHILD";

/// The child process of the tests below; nothing when run as a test of its own.
#[test]
fn child() {
    let Ok(spec) = env::var(CHILD) else { return };
    let words: Vec<&str> = spec.split(' ').collect();
    let [kind, rank, size, way, action] = words[..] else { panic!("{spec}") };
    let (rank, size) = (rank.parse().unwrap(), size.parse().unwrap());
    let group: Box<dyn Group> = match kind {
        "none" => return leave_nothing_behind(),
        "tcp" => Box::new(join_by_tcp(rank)),
        "ring" => {
            let hosts: Vec<_> = way.split(',').map(|address| vec![address]).collect();
            Box::new(RingGroup::connect(&hosts, rank, GroupOptions::default()).unwrap())
        }
        _ => {
            let fd = inherited_fd(way.parse().unwrap()).unwrap();
            Box::new(ShmGroup::attach(fd, rank, size, GroupOptions::default()).unwrap())
        }
    };
    println!("\nJOINED");
    let error = loop {
        if let Err(error) = act(&*group, action) {
            break error;
        }
    };
    println!("\nENDED {error}");
}

/// Tells the parent the own address and hears all of them.
fn join_by_tcp(rank: usize) -> TcpGroup {
    let listener = TcpListenerHandle::bind(&[loopback()]).unwrap();
    println!("\nADDRESS {}", listener.addresses()[0]);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let addresses: Vec<_> = line.split_whitespace().map(|word| vec![word.parse().unwrap()]).collect();
    TcpGroup::connect(listener, rank, &addresses, &KEY, GroupOptions::default()).unwrap()
}

/// What all ranks do until it fails.
fn act(group: &dyn Group, action: &str) -> Result<(), pomar_comm::CommError> {
    let am_victim = group.rank() == VICTIM;
    match action {
        "sum" => group.all_sum([1_i64; 1024].as_mut_slice().into()),
        "long-sum" => group.all_sum(vec![1_i64; 400_000].as_mut_slice().into()),
        _ if am_victim => {
            thread::sleep(Duration::from_millis(1));
            Ok(())
        }
        "recv" => group.recv(VICTIM, &mut [0; 64]),
        "send" => group.send_message(VICTIM, &[0; 100_000]),
        "recv-from-other" => group.recv(if group.rank() == 0 { 2 } else { 0 }, &mut [0; 64]),
        other => panic!("{other}"),
    }
}

struct Rank {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Rank {
    fn start(spec: String, segment: Option<&Segment>) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "processes::child", "--nocapture"]);
        let fd = segment.map_or(-1, |segment| segment.inherit(&mut command));
        command.env(CHILD, spec.replace("FD", &fd.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output }
    }

    /// The rest of the next line that begins with `word`.
    fn hear(&mut self, word: &str) -> String {
        let rest = |line: String| line.strip_prefix(word).map(str::to_owned);
        self.output.by_ref().find_map(|line| rest(line.unwrap())).unwrap_or_else(|| panic!("no {word}"))
    }

    fn signal(&self, signal: libc::c_int) {
        let pid = self.process.id() as libc::pid_t;
        // SAFETY: plain integers; the child has not been waited for, so the number is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the ranks of one scenario and waits until they are joined; the addresses are those of tcp ranks.
fn start(kind: Kind, action: &str) -> (Vec<Rank>, Vec<SocketAddr>) {
    let segment = (kind == Kind::Shm).then(|| Segment::create(RANKS).unwrap());
    let (name, way) = match kind {
        Kind::Tcp => ("tcp", "-".to_owned()),
        Kind::Ring => ("ring", ring_hosts(RANKS, 1).concat().join(",")),
        _ => ("shm", "FD".to_owned()),
    };
    let spec = |rank| format!("{name} {rank} {RANKS} {way} {action}");
    let mut ranks: Vec<_> = (0..RANKS).map(|rank| Rank::start(spec(rank), segment.as_ref())).collect();
    let mut addresses = vec![];
    if kind == Kind::Tcp {
        let words: Vec<_> = ranks.iter_mut().map(|rank| rank.hear("ADDRESS ")).collect();
        for rank in &mut ranks {
            writeln!(rank.input, "{}", words.join(" ")).unwrap();
        }
        addresses = words.iter().map(|word| word.parse().unwrap()).collect();
    }
    for rank in &mut ranks {
        rank.hear("JOINED");
    }
    (ranks, addresses)
}

/// Sends `signal` to the victim while all are busy; every other rank must name it in time.
fn survivors_name_the_victim(kind: Kind, action: &str, signal: libc::c_int) {
    let (mut ranks, addresses) = start(kind, action);
    thread::sleep(Duration::from_millis(300));
    let at = Instant::now();
    ranks[VICTIM].signal(signal);
    for survivor in [0, 2] {
        let error = ranks[survivor].hear("ENDED ");
        let took = at.elapsed();
        println!("{kind:?}, signal {signal} in {action}: rank {survivor} said after {took:.0?}: {error}");
        assert!(error.contains(&format!("rank {VICTIM} is dead")), "{error}");
        assert!(took < LIMIT, "{took:?}");
        assert!(ranks[survivor].process.wait().unwrap().success());
    }
    drop(ranks);
    for address in addresses {
        assert!(TcpStream::connect(address).is_err(), "{address} is still open");
    }
}

const ACTIONS: [&str; 5] = ["sum", "long-sum", "recv", "send", "recv-from-other"];

#[test]
fn a_killed_rank_is_named_over_shared_memory() {
    ACTIONS.iter().for_each(|action| survivors_name_the_victim(Kind::Shm, action, libc::SIGKILL));
}

#[test]
fn a_killed_rank_is_named_over_tcp() {
    ACTIONS.iter().for_each(|action| survivors_name_the_victim(Kind::Tcp, action, libc::SIGKILL));
}

#[test]
fn a_killed_rank_is_named_over_a_ring() {
    ACTIONS.iter().for_each(|action| survivors_name_the_victim(Kind::Ring, action, libc::SIGKILL));
}

#[test]
fn a_stopped_rank_is_named() {
    for kind in [Kind::Shm, Kind::Tcp] {
        for action in ["sum", "long-sum", "recv", "send"] {
            survivors_name_the_victim(kind, action, libc::SIGSTOP);
        }
    }
}

#[test]
fn groups_leave_no_descriptors_threads_or_segments() {
    let mut alone = Rank::start("none 0 0 0 -".into(), None);
    assert_eq!(alone.hear("LEFT "), "nothing");
}

/// In a process of its own, because the other tests open descriptors too.
fn leave_nothing_behind() {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).map_or(0, Iterator::count);
    let segments = || std::fs::read_dir("/dev/shm").map_or(0, |d| d.flatten().filter(is_ours).count());
    let now = || (count("fd"), count("task"), segments());
    let before = now();
    for kind in [Kind::Shm, Kind::Tcp, Kind::Ring] {
        run(groups(kind, 3, &GroupOptions::default()), |group| group.barrier().unwrap());
    }
    // The test's own threads may need a moment to end.
    let started = Instant::now();
    while now() != before && started.elapsed() < Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(before, now(), "descriptors, threads, segments");
    println!("\nLEFT nothing");
}

fn is_ours(entry: &std::fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().contains("pomar")
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = libc::CLOCK_THREAD_CPUTIME_ID;
    // SAFETY: the call only fills the struct.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(answer, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn an_idle_receive_costs_next_to_nothing() {
    for kind in [Kind::Shm, Kind::Tcp, Kind::Ring] {
        let groups = groups(kind, 2, &GroupOptions::default());
        let before = processor_time();
        for _ in 0..2 {
            let mut message = vec![];
            let error = groups[0].recv_message_within(1, &mut message, Duration::from_millis(500));
            assert!(error.unwrap_err().is_timeout());
        }
        let used = processor_time() - before;
        println!("{kind:?}: a second of waiting used {used:?} of processor time");
        assert!(used < Duration::from_millis(50), "{used:?}");
    }
}
