//! What the examples have in common: words of the command line, and how a program becomes its own ranks.
//!
//! A program that some launcher started (`pomar launch`, `mpirun`) finds its group in the environment. Started by hand
//! it starts itself once per rank, with the same words and the variables that [`from_env`] reads.

use pomar_comm::{Group, GroupOptions, Segment, from_env};
use std::{
    env,
    error::Error,
    net::TcpListener,
    process::{Child, Command, ExitCode},
    str::FromStr,
    thread,
    time::Duration,
};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A key for ranks on this machine; an instance draws its own at random.
const KEY: &str = "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b";

/// `--name value` pairs, with the values of those that were not given.
pub(crate) struct Arguments {
    pairs: Vec<(&'static str, String)>,
}

impl Arguments {
    /// Reads the command line; `defaults` are all the names there are, beside `transport`.
    pub(crate) fn read(defaults: &[(&'static str, &str)]) -> Outcome<Self> {
        let mut pairs: Vec<_> = defaults.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        pairs.push(("transport", "shm".to_owned()));
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").unwrap_or_default();
            let Some(pair) = pairs.iter_mut().find(|pair| pair.0 == name) else {
                let known: Vec<String> =
                    pairs.iter().map(|(name, value)| format!("[--{name} {value}]")).collect();
                return Err(format!("no option {word:?}; there are {}", known.join(" ")).into());
            };
            pair.1 = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        }
        Ok(Self { pairs })
    }

    /// One value.
    pub(crate) fn get<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Outcome<T> {
        let value = self.pairs.iter().find(|pair| pair.0 == name).map_or("", |pair| &pair.1);
        value.parse().map_err(|error| format!("--{name} {value:?}: {error}").into())
    }
}

/// The end of `main`: says what went wrong.
pub(crate) fn end(outcome: Outcome<()>) -> ExitCode {
    outcome.map_or_else(
        |error| {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The group, in a process that is one of several ranks; `None` in one that was started by hand.
pub(crate) fn group_of_launcher() -> Outcome<Option<Box<dyn Group>>> {
    let group = from_env(GroupOptions::default())?;
    Ok((group.size() > 1 || env::var_os("POMAR_RANK").is_some()).then_some(group))
}

/// Starts this program again as `size` ranks on this machine, over `shm` or `tcp`, and waits for them. The first that
/// fails stops the others.
pub(crate) fn run_ranks(size: usize, transport: &str) -> Outcome<()> {
    let segment = Segment::create(size)?;
    let addresses = serde_json::to_string(&free_addresses(size)?)?;
    let mut ranks = Ranks(Vec::new());
    for rank in 0..size {
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args_os().skip(1));
        command.env("POMAR_RANK", rank.to_string()).env("POMAR_SIZE", size.to_string());
        command.env("POMAR_TRANSPORT", transport);
        let descriptor = segment.inherit(&mut command);
        command.env("POMAR_SEGMENT_FD", descriptor.to_string());
        command.env("POMAR_ADDRESSES", &addresses).env("POMAR_KEY", KEY);
        ranks.0.push(command.spawn()?);
    }
    ranks.wait()
}

/// One address per rank, in the form of POMAR_ADDRESSES: ports that are free, found by taking them for a moment.
fn free_addresses(size: usize) -> Outcome<Vec<[String; 1]>> {
    let taken = (0..size).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<Vec<_>, _>>()?;
    taken.iter().map(|listener| Ok([listener.local_addr()?.to_string()])).collect()
}

/// Rank processes; none outlives this.
struct Ranks(Vec<Child>);

impl Ranks {
    fn wait(&mut self) -> Outcome<()> {
        let mut running = true;
        while running {
            thread::sleep(Duration::from_millis(5));
            running = false;
            for (rank, process) in self.0.iter_mut().enumerate() {
                match process.try_wait()? {
                    None => running = true,
                    Some(status) if !status.success() => return Err(format!("rank {rank}: {status}").into()),
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // Those that have ended are past both.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
