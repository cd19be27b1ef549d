//! Measures collectives between processes of one machine, over one transport after another:
//!
//!     cargo run --release -p pomar-comm --example collectives -- [RANKS] [TRANSPORTS] [--json]
//!
//! with 2 ranks over `shm,tcp,ring` unless said otherwise. Prints a table in microseconds, or one line of JSON per figure. The
//! program starts itself once per further rank; rank 0 is the program itself and does the timing.

use pomar_comm::{
    CommError, Group, GroupOptions, RingGroup, Segment, ShmGroup, TcpGroup, TcpListenerHandle,
    shm::inherited_fd,
};
use std::{
    env,
    error::Error,
    net::SocketAddr,
    process::{Child, Command},
    time::{Duration, Instant},
};

const SIZES: [usize; 8] = [64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const OPS: [&str; 3] = ["all_sum", "all_gather", "round_trip"];

/// Each figure is measured for about this long.
const PER_FIGURE: Duration = Duration::from_millis(400);
const FEWEST_ROUNDS: u32 = 20;
const MOST_ROUNDS: u32 = 10_000;

/// A key for a measurement on this machine; an instance draws its own at random.
const KEY: [u8; 32] = [0x6b; 32];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["rank", transport, rank, ref way @ ..] = words[..] {
        return measure(&*join(transport, rank.parse()?, way)?).map(|_| ());
    }
    let json = words.contains(&"--json");
    let words: Vec<&str> = words.into_iter().filter(|word| *word != "--json").collect();
    let (ranks, transports) = match words[..] {
        [] => (2, "shm,tcp,ring"),
        [ranks] => (ranks.parse()?, "shm,tcp,ring"),
        [ranks, transports] => (ranks.parse()?, transports),
        _ => return Err("usage: collectives [RANKS] [TRANSPORTS] [--json]".into()),
    };
    for transport in transports.split(',') {
        let figures = with_peers(transport, ranks)?;
        if json { print_json(transport, ranks, &figures) } else { print_table(transport, ranks, &figures) }
    }
    Ok(())
}

/// Takes a rank's place; `way` is what all ranks need to know: addresses, or the group's size and a descriptor.
fn join(transport: &str, rank: usize, way: &[&str]) -> Outcome<Box<dyn Group>> {
    let options = GroupOptions::default();
    Ok(match (transport, way) {
        ("shm", [size, fd]) => {
            Box::new(ShmGroup::attach(inherited_fd(fd.parse()?)?, rank, size.parse()?, options)?)
        }
        ("tcp", addresses) => {
            let addresses: Vec<Vec<SocketAddr>> =
                addresses.iter().map(|a| Ok(vec![a.parse()?])).collect::<Outcome<_>>()?;
            let listener = TcpListenerHandle::bind(&addresses[rank])?;
            Box::new(TcpGroup::connect(listener, rank, &addresses, &KEY, options)?)
        }
        ("ring", addresses) => {
            let hosts: Vec<Vec<&str>> = addresses.iter().map(|address| vec![*address]).collect();
            Box::new(RingGroup::connect(&hosts, rank, options)?)
        }
        _ => return Err(format!("{transport}: the transports are shm, tcp and ring").into()),
    })
}

/// Measures as rank 0, among processes that are ended and collected whatever happens.
fn with_peers(transport: &str, ranks: usize) -> Outcome<Vec<Figure>> {
    let mut peers = Vec::new();
    let result = start(transport, ranks, &mut peers).and_then(|group| measure(&*group));
    for mut peer in peers {
        if result.is_err() {
            peer.kill()?;
        }
        peer.wait()?;
    }
    result
}

fn start(transport: &str, ranks: usize, peers: &mut Vec<Child>) -> Outcome<Box<dyn Group>> {
    let command = |rank: usize| -> Outcome<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["rank", transport, &rank.to_string()]);
        Ok(command)
    };
    if transport == "shm" {
        let segment = Segment::create(ranks)?;
        for rank in 1..ranks {
            let mut command = command(rank)?;
            let fd = segment.inherit(&mut command);
            peers.push(command.args([ranks.to_string(), fd.to_string()]).spawn()?);
        }
        return Ok(Box::new(ShmGroup::attach(segment.into_owned_fd(), 0, ranks, GroupOptions::default())?));
    }
    let addresses = free_addresses(ranks)?;
    for rank in 1..ranks {
        peers.push(command(rank)?.args(&addresses).spawn()?);
    }
    join(transport, 0, &addresses.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Free ports, found by taking them for a moment.
fn free_addresses(ranks: usize) -> Outcome<Vec<String>> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let ears = (0..ranks).map(|_| TcpListenerHandle::bind(&[any])).collect::<Result<Vec<_>, _>>()?;
    Ok(ears.iter().map(|ear| ear.addresses()[0].to_string()).collect())
}

/// The times of one call at one size, in microseconds.
struct Figure {
    op: &'static str,
    bytes: usize,
    rounds: usize,
    min: f64,
    median: f64,
    p99: f64,
}

/// Every rank makes the same calls.
fn measure(group: &dyn Group) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    for op in OPS {
        for bytes in SIZES {
            figures.push(measure_one(group, op, bytes)?);
        }
    }
    Ok(figures)
}

fn measure_one(group: &dyn Group, op: &'static str, bytes: usize) -> Outcome<Figure> {
    let mut data = vec![0.0_f32; bytes / 4];
    let mine = vec![1; bytes];
    let mut all = vec![0; bytes * group.size()];
    let mut call = || match op {
        "all_sum" => group.all_sum(data.as_mut_slice().into()),
        "all_gather" => group.all_gather(&mine, &mut all),
        _ => round_trip(group, &mut all[..bytes]),
    };
    let mut times = Vec::new();
    for _ in 0..agree_on_rounds(group, &mut call)? {
        let started = Instant::now();
        call()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let at = |share: usize| micros(times[times.len() * share / 100]);
    Ok(Figure { op, bytes, rounds: times.len(), min: at(0), median: at(50), p99: at(99) })
}

/// Warms up, and lets rank 0 decide how many rounds fit into the time.
fn agree_on_rounds(
    group: &dyn Group,
    call: &mut impl FnMut() -> Result<(), CommError>,
) -> Result<u32, CommError> {
    let started = Instant::now();
    (0..FEWEST_ROUNDS).try_for_each(|_| call())?;
    let each = (started.elapsed() / FEWEST_ROUNDS).max(Duration::from_nanos(1));
    let rounds = (PER_FIGURE.as_nanos() / each.as_nanos()).clamp(FEWEST_ROUNDS.into(), MOST_ROUNDS.into());
    let mut agreed = (rounds as u32).to_le_bytes();
    group.broadcast(0, &mut agreed)?;
    Ok(u32::from_le_bytes(agreed))
}

/// From rank 0 to rank 1 and back; the others have nothing to do.
fn round_trip(group: &dyn Group, data: &mut [u8]) -> Result<(), CommError> {
    match group.rank() {
        0 => {
            group.send(1, data)?;
            group.recv(1, data)
        }
        1 => {
            group.recv(0, data)?;
            group.send(0, data)
        }
        _ => Ok(()),
    }
}

fn print_table(transport: &str, ranks: usize, figures: &[Figure]) {
    println!("{transport}, {ranks} ranks, microseconds");
    println!("{:<11}{:>10}{:>12}{:>12}{:>12}{:>8}", "call", "bytes", "min", "median", "p99", "rounds");
    for Figure { op, bytes, rounds, min, median, p99 } in figures {
        println!("{op:<11}{bytes:>10}{min:>12.1}{median:>12.1}{p99:>12.1}{rounds:>8}");
    }
}

fn print_json(transport: &str, ranks: usize, figures: &[Figure]) {
    for Figure { op, bytes, rounds, min, median, p99 } in figures {
        println!(
            "{{\"transport\": \"{transport}\", \"ranks\": {ranks}, \"op\": \"{op}\", \"bytes\": {bytes}, \
             \"rounds\": {rounds}, \"min_us\": {min:.2}, \"median_us\": {median:.2}, \"p99_us\": {p99:.2}}}"
        );
    }
}
