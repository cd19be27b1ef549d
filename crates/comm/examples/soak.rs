//! Ranks that make random calls and check every answer.
//!
//! Joins the group that the environment describes and makes `--rounds` calls that are drawn, with all sizes and element
//! types, from `--seed`: the same on all ranks, so that each knows what must come. It stops at the first error, prints it
//! after the word ENDED, and exits with status 1; after a wrong answer it exits with status 2.
//!
//!     POMAR_RANK=0 POMAR_SIZE=1 cargo run --release -p pomar-comm --example soak -- --rounds 1000 --seed 7
//!
//! Further words: `--most BYTES` bounds the sizes (64 MiB by default), `--differ RANK` has one rank make another call
//! than the others in the last round, `--abort RANK` has one rank abort from a second thread half way.

use half::{bf16, f16};
use pomar_comm::{BufferMut, CommError, Group, GroupOptions, from_env};
use std::{
    fmt::Debug,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

struct Settings {
    rounds: u64,
    seed: u64,
    most: usize,
    differ: Option<usize>,
    abort: Option<usize>,
}

impl Settings {
    fn read() -> Result<Self, String> {
        let mut settings = Self { rounds: 100, seed: 1, most: 64 << 20, differ: None, abort: None };
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            let text = words.next().ok_or_else(|| format!("{name} needs a number"))?;
            let number: u64 = text.parse().map_err(|_| format!("{name} takes a number, not {text:?}"))?;
            match &name[..] {
                "--rounds" => settings.rounds = number,
                "--seed" => settings.seed = number,
                "--most" => settings.most = (number as usize).max(1),
                "--differ" => settings.differ = Some(number as usize),
                "--abort" => settings.abort = Some(number as usize),
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(settings)
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A size from 1 to `most`, every order of magnitude about as often.
    fn size(&mut self, most: usize) -> usize {
        let bits = u64::from(most.ilog2());
        let magnitude = 1 << self.below(bits + 1);
        ((magnitude + self.below(magnitude)) as usize).min(most)
    }
}

/// What went wrong in a round.
enum Trouble {
    Comm(CommError),
    Wrong(String),
}

impl From<CommError> for Trouble {
    fn from(error: CommError) -> Self {
        Self::Comm(error)
    }
}

fn main() -> ExitCode {
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("soak: {error}");
            return ExitCode::from(64);
        }
    };
    let group: Arc<dyn Group> = match from_env(GroupOptions::default()) {
        Ok(group) => group.into(),
        Err(error) => {
            println!("NOT JOINED {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("JOINED");
    let started = Instant::now();
    match soak(&group, &settings) {
        Ok(()) => {
            println!("DONE {} rounds in {:.3?}", settings.rounds, started.elapsed());
            ExitCode::SUCCESS
        }
        Err(Trouble::Comm(error)) => {
            println!("ENDED {error}");
            ExitCode::FAILURE
        }
        Err(Trouble::Wrong(what)) => {
            println!("WRONG {what}");
            ExitCode::from(2)
        }
    }
}

fn soak(group: &Arc<dyn Group>, settings: &Settings) -> Result<(), Trouble> {
    let mut random = Random(settings.seed);
    for round in 0..settings.rounds {
        if settings.abort == Some(group.rank()) && round == settings.rounds / 2 {
            let group = Arc::clone(group);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(3));
                group.abort("soak was told to");
            });
        }
        let differs = settings.differ == Some(group.rank()) && round + 1 == settings.rounds;
        one_round(&**group, &mut random, settings.most, differs)?;
    }
    Ok(())
}

fn one_round(group: &dyn Group, random: &mut Random, most: usize, differs: bool) -> Result<(), Trouble> {
    let (call, size, seed) = (random.below(12), random.size(most), random.next());
    if differs {
        let mut other = vec![0_u8; size + 1];
        // Whatever the others call, it is not a broadcast from the last rank of one byte more.
        return Ok(group.broadcast(group.size() - 1, &mut other)?);
    }
    match call {
        0 => reduce::<i64>(group, size, seed),
        1 => reduce::<f32>(group, size, seed),
        2 => reduce::<f16>(group, size, seed),
        3 => reduce::<bf16>(group, size, seed),
        4 => reduce::<i32>(group, size, seed),
        5 => reduce::<u8>(group, size, seed),
        6 | 7 => gather(group, size, seed),
        8 => broadcast(group, size, seed),
        9 => Ok(group.barrier()?),
        _ => to_the_right(group, size, seed),
    }
}

/// Whole numbers so small that floats add them exactly in any order, whatever the transport's is.
trait Element: Copy + PartialEq + Debug + 'static {
    fn small(number: u64) -> Self;
}

macro_rules! elements {
    ($($type:ty: $small:expr),+ $(,)?) => {$(impl Element for $type {
        fn small(number: u64) -> Self { ($small)(number) }
    })+};
}
elements!(
    i64: |n| n as i64, i32: |n| n as i32, u8: |n| n as u8, f32: |n| n as f32,
    f16: |n| f16::from_f32(n as f32), bf16: |n| bf16::from_f32(n as f32),
);

/// The number that `rank` brings at `index`, 0 to 7.
fn number(seed: u64, rank: usize, index: usize) -> u64 {
    let mixed = seed
        ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
    (mixed ^ mixed >> 29) & 7
}

fn reduce<T: Element>(group: &dyn Group, bytes: usize, seed: u64) -> Result<(), Trouble>
where
    for<'a> BufferMut<'a>: From<&'a mut [T]>,
{
    let length = (bytes / size_of::<T>()).max(1);
    let mut data: Vec<T> = (0..length).map(|i| T::small(number(seed, group.rank(), i))).collect();
    let sum = seed & 8 == 0;
    if sum {
        group.all_sum(data.as_mut_slice().into())?
    } else {
        group.all_max(data.as_mut_slice().into())?
    };
    for (index, got) in data.iter().enumerate() {
        let numbers = (0..group.size()).map(|rank| number(seed, rank, index));
        let wanted = T::small(if sum { numbers.sum() } else { numbers.max().unwrap_or(0) });
        if *got != wanted {
            return Err(Trouble::Wrong(format!("{got:?} instead of {wanted:?} at {index} of {length}")));
        }
    }
    Ok(())
}

fn bytes_of(seed: u64, rank: usize, length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(move |index| (number(seed, rank, index) * 31 + index as u64) as u8)
}

fn check(got: &[u8], wanted: impl Iterator<Item = u8>) -> Result<(), Trouble> {
    if got.iter().copied().eq(wanted) { Ok(()) } else { Err(Trouble::Wrong(format!("{} bytes", got.len()))) }
}

fn gather(group: &dyn Group, bytes: usize, seed: u64) -> Result<(), Trouble> {
    let length = bytes.div_ceil(group.size());
    let mine: Vec<u8> = bytes_of(seed, group.rank(), length).collect();
    let mut all = vec![0; length * group.size()];
    group.all_gather(&mine, &mut all)?;
    check(&all, (0..group.size()).flat_map(|rank| bytes_of(seed, rank, length)))
}

fn broadcast(group: &dyn Group, bytes: usize, seed: u64) -> Result<(), Trouble> {
    let root = (seed >> 8) as usize % group.size();
    let mut data: Vec<u8> = bytes_of(seed, group.rank(), bytes).collect();
    group.broadcast(root, &mut data)?;
    check(&data, bytes_of(seed, root, bytes))
}

/// Everyone sends to its right neighbour and receives from its left one; even ranks send first, so that nobody waits in
/// a circle when a message is longer than what is under way at a time.
fn to_the_right(group: &dyn Group, bytes: usize, seed: u64) -> Result<(), Trouble> {
    let (rank, size) = (group.rank(), group.size());
    if size == 1 {
        return Ok(());
    }
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let mine: Vec<u8> = bytes_of(seed, rank, bytes).collect();
    let mut theirs = vec![0; bytes];
    if rank.is_multiple_of(2) {
        group.send(right, &mine)?;
        group.recv(left, &mut theirs)?;
    } else {
        group.recv(left, &mut theirs)?;
        group.send(right, &mine)?;
    }
    check(&theirs, bytes_of(seed, left, bytes))
}
