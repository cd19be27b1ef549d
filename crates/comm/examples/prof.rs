//! Measures `all_sum` between processes: `cargo run --release -p pomar-comm --example latency [ranks]`.
//!
//! Prints the median and the 99th percentile in microseconds, over shared memory and over tcp. The program starts
//! itself once per further rank; rank 0 is the program itself and does the timing.

use pomar_comm::{Group, GroupOptions, Segment, ShmGroup, TcpGroup, TcpListenerHandle, shm::inherited_fd};
use std::{
    env,
    error::Error,
    net::SocketAddr,
    process::{Child, Command},
    time::{Duration, Instant},
};

const SIZES: [usize; 1] = [8 << 10];

/// A key for a measurement on this machine; an instance draws its own at random.
const KEY: [u8; 32] = [0x6b; 32];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["shm", rank, size, fd] => measure(&attach(fd, rank.parse()?, size.parse()?)?).map(|_| ()),
        ["tcp", rank, ref addresses @ ..] => measure(&connect(rank.parse()?, addresses)?).map(|_| ()),
        [] => print_table(2),
        [ranks] => print_table(ranks.parse()?),
        _ => Err("usage: latency [ranks]".into()),
    }
}

fn attach(fd: &str, rank: usize, size: usize) -> Outcome<ShmGroup> {
    Ok(ShmGroup::attach(inherited_fd(fd.parse()?)?, rank, size, GroupOptions::default())?)
}

fn connect(rank: usize, addresses: &[&str]) -> Outcome<TcpGroup> {
    let addresses: Vec<Vec<SocketAddr>> =
        addresses.iter().map(|address| Ok(vec![address.parse()?])).collect::<Outcome<_>>()?;
    let listener = TcpListenerHandle::bind(&addresses[rank])?;
    Ok(TcpGroup::connect(listener, rank, &addresses, &KEY, GroupOptions::default())?)
}

fn print_table(ranks: usize) -> Outcome<()> {
    let which = std::env::var("WHICH").unwrap_or_default();
    let shm = if which == "tcp" { vec![] } else { with_peers(ranks, measure_shm)? };
    let tcp = if which == "shm" { vec![] } else { with_peers(ranks, measure_tcp)? };
    for q in shm.iter().chain(&tcp) { println!("{:.2} {:.2} {:.2}", q.p10, q.median, q.p99); }
    println!("all_sum of f32, {ranks} ranks, microseconds");
    println!("{:>9} | {:>10} {:>10} | {:>10} {:>10}", "bytes", "shm median", "p99", "tcp median", "p99");
    for ((size, shm), tcp) in SIZES.iter().zip(shm).zip(tcp) {
        println!(
            "{size:>9} | {:>10.1} {:>10.1} | {:>10.1} {:>10.1}",
            shm.median, shm.p99, tcp.median, tcp.p99
        );
    }
    Ok(())
}

/// Runs a measurement and collects the processes it started.
fn with_peers(
    ranks: usize,
    run: impl Fn(usize, &mut Vec<Child>) -> Outcome<Vec<Quantiles>>,
) -> Outcome<Vec<Quantiles>> {
    let mut peers = Vec::new();
    let result = run(ranks, &mut peers);
    for mut peer in peers {
        if result.is_err() {
            peer.kill()?;
        }
        peer.wait()?;
    }
    result
}

fn measure_shm(ranks: usize, peers: &mut Vec<Child>) -> Outcome<Vec<Quantiles>> {
    let segment = Segment::create(ranks)?;
    for rank in 1..ranks {
        let mut command = Command::new(env::current_exe()?);
        let fd = segment.inherit(&mut command);
        command.args(["shm", &rank.to_string(), &ranks.to_string(), &fd.to_string()]);
        peers.push(command.spawn()?);
    }
    measure(&ShmGroup::attach(segment.into_owned_fd(), 0, ranks, GroupOptions::default())?)
}

fn measure_tcp(ranks: usize, peers: &mut Vec<Child>) -> Outcome<Vec<Quantiles>> {
    // Free ports, found by taking them for a moment.
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let ears = (0..ranks).map(|_| TcpListenerHandle::bind(&[any])).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<String> = ears.iter().map(|ear| ear.addresses()[0].to_string()).collect();
    drop(ears);
    for rank in 1..ranks {
        let mut command = Command::new(env::current_exe()?);
        peers.push(command.args(["tcp", &rank.to_string()]).args(&addresses).spawn()?);
    }
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    measure(&connect(0, &addresses)?)
}

/// Of the times of one size, in microseconds.
struct Quantiles {
    median: f64,
    p10: f64,
    p99: f64,
}

/// Every rank makes the same calls: a warm-up tenth, then the counted ones.
fn measure(group: &dyn Group) -> Outcome<Vec<Quantiles>> {
    SIZES.iter().map(|size| measure_size(group, *size)).collect()
}

fn measure_size(group: &dyn Group, bytes: usize) -> Outcome<Quantiles> {
    let rounds = std::env::var("ROUNDS").map_or(100_000, |r| r.parse().unwrap());
    let mut data = vec![0.0_f32; bytes / 4];
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds + rounds / 10 {
        let started = Instant::now();
        group.all_sum(data.as_mut_slice().into())?;
        if round >= rounds / 10 {
            times.push(started.elapsed());
        }
    }
    times.sort_unstable();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    Ok(Quantiles { p10: micros(times[rounds/10]), median: micros(times[rounds / 2]), p99: micros(times[rounds * 99 / 100]) })
}
