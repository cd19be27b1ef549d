//! Ranks that make random calls and check every answer.
//!
//! Joins the group that the environment describes and makes `--rounds` calls that are drawn, with all sizes and element
//! types, from `--seed`: the same on all ranks, so that each knows what must come. It stops at the first error, prints it
//! after the word ENDED, and exits with status 1; after a wrong answer it says WRONG and exits with status 2.
//!
//!     POMAR_RANK=0 POMAR_SIZE=1 cargo run --release -p pomar-comm --example soak -- --rounds 1000 --seed 7
//!
//! | word | meaning |
//! | --- | --- |
//! | `--least BYTES`, `--most BYTES` | bounds of the sizes; 1 and 64 MiB |
//! | `--differ RANK` | in the last round, this rank makes another call than the others, or one with another size |
//! | `--abort RANK` | this rank aborts, from a second thread, in round `--at` (half way) |
//! | `--deadline-ms`, `--join-ms` | how long a call, and joining, may wait; 30 s |

use half::{bf16, f16};
use pomar_comm::{BufferMut, CommError, Group, GroupOptions, from_env};
use std::{
    fmt::Debug,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

struct Settings {
    rounds: u64,
    seed: u64,
    least: usize,
    most: usize,
    differ: Option<usize>,
    abort: Option<usize>,
    at: Option<u64>,
    group: GroupOptions,
}

impl Settings {
    fn read() -> Result<Self, String> {
        let mut settings = Self {
            rounds: 100,
            seed: 1,
            least: 1,
            most: 64 << 20,
            differ: None,
            abort: None,
            at: None,
            group: GroupOptions::default(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            let text = words.next().ok_or_else(|| format!("{name} needs a number"))?;
            let number: u64 = text.parse().map_err(|_| format!("{name} takes a number, not {text:?}"))?;
            match &name[..] {
                "--rounds" => settings.rounds = number,
                "--seed" => settings.seed = number,
                "--least" => settings.least = number as usize,
                "--most" => settings.most = (number as usize).max(1),
                "--differ" => settings.differ = Some(number as usize),
                "--abort" => settings.abort = Some(number as usize),
                "--at" => settings.at = Some(number),
                "--deadline-ms" => settings.group.deadline = Duration::from_millis(number),
                "--join-ms" => settings.group.join_deadline = Duration::from_millis(number),
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
    println!("STARTED process {}", std::process::id());
    let group = match from_env(settings.group.clone()) {
        Ok(group) => group,
        Err(error) => {
            println!("NOT JOINED {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("JOINED");
    let started = Instant::now();
    match soak(&*group, &settings) {
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

fn soak(group: &dyn Group, settings: &Settings) -> Result<(), Trouble> {
    let mut random = Random(settings.seed);
    // The scope waits for the aborting thread: the group is dropped by the one who made it.
    thread::scope(|scope| {
        for round in 0..settings.rounds {
            if settings.abort == Some(group.rank()) && round == settings.at.unwrap_or(settings.rounds / 2) {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(3));
                    println!("ABORTS");
                    group.abort("soak was told to");
                });
            }
            let last = round + 1 == settings.rounds;
            let differs = settings.differ.filter(|_| last).map(|rank| rank == group.rank());
            one_round(group, &mut random, settings, differs)?;
        }
        Ok(())
    })
}

/// One call; `differs` says in the last round whether this is the rank that makes another one.
fn one_round(
    group: &dyn Group,
    random: &mut Random,
    settings: &Settings,
    differs: Option<bool>,
) -> Result<(), Trouble> {
    let (call, seed) = (random.below(12), random.next());
    let size = random.size(settings.most).max(settings.least);
    match differs {
        None => {}
        // A collective, because only those meet all ranks;
        Some(false) => return reduce::<i32>(group, size, seed),
        // this rank makes another one, or the same with another size.
        Some(true) if seed & 1 == 0 => return broadcast(group, size, seed),
        Some(true) => return reduce::<i32>(group, 2 * size + 8, seed),
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

/// What a rank brings repeats after this many elements. A prime, so that it shows when bytes end up in a wrong place,
/// and short, so that checking costs little.
const PERIOD: usize = 4093;

/// The number that `rank` brings at `index`, 0 to 7.
fn number(seed: u64, rank: usize, index: usize) -> u64 {
    let mixed = seed
        ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
    (mixed ^ mixed >> 29) & 7
}

/// The elements of one period.
fn pattern<T>(element: impl Fn(usize) -> T) -> Vec<T> {
    (0..PERIOD).map(element).collect()
}

fn repeated<T: Copy>(pattern: &[T], length: usize) -> Vec<T> {
    let mut data = pattern.repeat(length.div_ceil(PERIOD));
    data.truncate(length);
    data
}

fn check<T: PartialEq + Debug>(got: &[T], pattern: &[T]) -> Result<(), Trouble> {
    let Some(period) = got.chunks(PERIOD).position(|chunk| *chunk != pattern[..chunk.len()]) else {
        return Ok(());
    };
    let (length, start) = (got.len(), period * PERIOD);
    let place = got[start..].iter().zip(pattern).position(|(got, wanted)| got != wanted).unwrap_or(0);
    let (got, wanted) = (&got[start + place], &pattern[place]);
    Err(Trouble::Wrong(format!("{got:?} instead of {wanted:?} at {} of {length}", start + place)))
}

fn reduce<T: Element>(group: &dyn Group, bytes: usize, seed: u64) -> Result<(), Trouble>
where
    for<'a> BufferMut<'a>: From<&'a mut [T]>,
{
    let length = (bytes / size_of::<T>()).max(1);
    let mut data = repeated(&pattern(|index| T::small(number(seed, group.rank(), index))), length);
    let sum = seed & 8 == 0;
    if sum {
        group.all_sum(data.as_mut_slice().into())?
    } else {
        group.all_max(data.as_mut_slice().into())?
    };
    let joined = |index| {
        let numbers = (0..group.size()).map(|rank| number(seed, rank, index));
        T::small(if sum { numbers.sum() } else { numbers.max().unwrap_or(0) })
    };
    check(&data, &pattern(joined))
}

fn bytes_of(seed: u64, rank: usize) -> Vec<u8> {
    pattern(|index| (number(seed, rank, index) * 31 + index as u64) as u8)
}

fn gather(group: &dyn Group, bytes: usize, seed: u64) -> Result<(), Trouble> {
    let length = bytes.div_ceil(group.size());
    let mine = repeated(&bytes_of(seed, group.rank()), length);
    let mut all = vec![0; length * group.size()];
    group.all_gather(&mine, &mut all)?;
    all.chunks(length).enumerate().try_for_each(|(rank, part)| check(part, &bytes_of(seed, rank)))
}

fn broadcast(group: &dyn Group, bytes: usize, seed: u64) -> Result<(), Trouble> {
    let root = (seed >> 8) as usize % group.size();
    let mut data = repeated(&bytes_of(seed, group.rank()), bytes);
    group.broadcast(root, &mut data)?;
    check(&data, &bytes_of(seed, root))
}

/// Everyone sends to its right neighbour and receives from its left one; even ranks send first, so that nobody waits in
/// a circle when a message is longer than what is under way at a time.
fn to_the_right(group: &dyn Group, bytes: usize, seed: u64) -> Result<(), Trouble> {
    let (rank, size) = (group.rank(), group.size());
    if size == 1 {
        return Ok(());
    }
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let mine = repeated(&bytes_of(seed, rank), bytes);
    let mut theirs = vec![0; bytes];
    if rank.is_multiple_of(2) {
        group.send(right, &mine)?;
        group.recv(left, &mut theirs)?;
    } else {
        group.recv(left, &mut theirs)?;
        group.send(right, &mine)?;
    }
    check(&theirs, &bytes_of(seed, left))
}
