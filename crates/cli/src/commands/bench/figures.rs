//! What one rank does to measure collectives: the same calls as all others, timed.

use pomar_comm::{CommError, Group, GroupOptions, from_env};
use serde::{Deserialize, Serialize};
use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Bytes that each rank brings: from a flag to a prompt chunk's activations.
pub(super) const SIZES: [usize; 10] =
    [64, 1 << 10, 4 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20];

/// Each figure is measured for about this long.
const PER_FIGURE: Duration = Duration::from_millis(250);
const FEWEST_ROUNDS: u32 = 20;
const MOST_ROUNDS: u32 = 10_000;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    /// Of f32, every rank with so many bytes.
    AllSum,
    /// So many bytes from every rank.
    AllGather,
    /// So many bytes from rank 0 to rank 1 and back; half of that time is the figure.
    SendRecv,
}

impl Call {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AllSum => "all_sum",
            Self::AllGather => "all_gather",
            Self::SendRecv => "send/recv",
        }
    }
}

/// The times of one call at one size, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) call: Call,
    pub(super) bytes: usize,
    pub(super) rounds: usize,
    pub(super) min_us: f64,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    /// `bytes` over the median time, in 10^9 bytes a second.
    pub(super) gb_s: f64,
}

/// Joins the group that the environment describes and measures; rank 0 prints one line of JSON per figure.
pub(super) fn measure_as_rank() -> anyhow::Result<ExitCode> {
    let group = from_env(GroupOptions::default())?;
    anyhow::ensure!(group.size() > 1, "this is a rank of `pomar bench collectives`, which starts it");
    for call in [Call::AllSum, Call::AllGather, Call::SendRecv] {
        for bytes in SIZES {
            let figure = measure(&*group, call, bytes)?;
            if group.rank() == 0 {
                println!("{}", serde_json::to_string(&figure)?);
                std::io::stdout().flush()?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(group: &dyn Group, call: Call, bytes: usize) -> Result<Figure, CommError> {
    let mut numbers = vec![0.0_f32; bytes / 4];
    let mine = vec![1; bytes];
    let mut all = vec![0; bytes * group.size()];
    let mut once = || match call {
        Call::AllSum => group.all_sum(numbers.as_mut_slice().into()),
        Call::AllGather => group.all_gather(&mine, &mut all),
        Call::SendRecv => there_and_back(group, &mut all[..bytes]),
    };
    let mut times = Vec::new();
    for _ in 0..agree_on_rounds(group, &mut once)? {
        let started = Instant::now();
        once()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let parts = if call == Call::SendRecv { 2.0 } else { 1.0 };
    let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6 / parts;
    let gb_s = bytes as f64 / at(50) / 1e3;
    Ok(Figure { call, bytes, rounds: times.len(), min_us: at(0), median_us: at(50), p99_us: at(99), gb_s })
}

/// Warms up, and lets rank 0 decide how many rounds fit into the time.
fn agree_on_rounds(
    group: &dyn Group,
    once: &mut impl FnMut() -> Result<(), CommError>,
) -> Result<u32, CommError> {
    let started = Instant::now();
    (0..FEWEST_ROUNDS).try_for_each(|_| once())?;
    let each = (started.elapsed() / FEWEST_ROUNDS).max(Duration::from_nanos(1));
    let rounds = (PER_FIGURE.as_nanos() / each.as_nanos()).clamp(FEWEST_ROUNDS.into(), MOST_ROUNDS.into());
    let mut agreed = (rounds as u32).to_le_bytes();
    group.broadcast(0, &mut agreed)?;
    Ok(u32::from_le_bytes(agreed))
}

/// From rank 0 to rank 1 and back; the others have nothing to do.
fn there_and_back(group: &dyn Group, data: &mut [u8]) -> Result<(), CommError> {
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
