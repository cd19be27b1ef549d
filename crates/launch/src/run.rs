//! Does what a plan says: guards, preflight, ranks, their input and output, and their end.

mod guard;
mod input;
mod output;
mod preflight;
mod ranks;
mod stop;

use crate::{Plan, plan::Role};
use guard::Guards;
use output::{Printer, Tails};
use ranks::Ranks;
use std::{
    fmt, io,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};
use stop::{Signals, Stop};
use tokio::{sync::mpsc, time};

/// How often guards of other machines hear that the launcher lives; they wait 15 s and more.
const BEAT: Duration = Duration::from_secs(5);
/// How long to wait for the last output of ranks that have ended, and for guards to clean up.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
const CLEAN_UP: Duration = Duration::from_secs(6);
/// Pieces of output on their way to the terminal, of 8 KiB at most.
const OUTPUT_QUEUE: usize = 64;

/// How to run a plan.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The ssh program.
    pub ssh: String,
    /// Ask whether it can work before anything is started.
    pub preflight: bool,
    /// Colour the prefixes on standard output.
    pub colour_stdout: bool,
    /// Colour the prefixes on standard error.
    pub colour_stderr: bool,
}

/// How a launch ended.
#[derive(Debug)]
pub enum Outcome {
    /// Every process ended with status 0.
    Done,
    /// One did not, and the others were stopped.
    Failed(Failure),
    /// The launcher got this signal and stopped the ranks.
    Interrupted {
        /// Number of the signal.
        signal: i32,
    },
    /// Nobody reads the output any more, and the ranks were stopped.
    OutputClosed(io::Error),
}

/// The first process that failed.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub role: Role,
    /// On which host.
    pub host: String,
    /// How it ended; none if only the connection to its host did.
    pub status: Option<ExitStatus>,
    /// How long it had run.
    pub after: Duration,
    /// It ran behind ssh, which has statuses of its own.
    pub remote: bool,
    /// The end of its output.
    pub last_lines: Vec<String>,
}

impl Failure {
    /// The exit status for the launcher: the process's, or 128 and the number of the signal that killed it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let status = self.status.map(|status| (status.code(), status.signal()));
        match status {
            Some((Some(code), _)) => u8::try_from(code).unwrap_or(1),
            Some((None, Some(signal))) => 128 | u8::try_from(signal).unwrap_or(0),
            _ => 255,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, host, after, .. } = self;
        write!(f, "{role} on host {host} ")?;
        match self.status {
            None => f.write_str("is out of reach: the connection to its guard there was lost")?,
            Some(status) => match (status.code(), status.signal()) {
                (Some(255), _) if self.remote => f.write_str(
                    "ended with status 255, as ssh does when the connection is lost or the program is killed",
                )?,
                (Some(code), _) => write!(f, "ended with status {code}")?,
                (None, signal) => write!(f, "was killed by signal {}", signal.unwrap_or_default())?,
            },
        }
        write!(f, " after {:.1} s", after.as_secs_f64())?;
        if self.last_lines.is_empty() {
            return f.write_str("; it printed nothing");
        }
        f.write_str("; its last lines:")?;
        self.last_lines.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Why a launch did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The system refused something.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        error: io::Error,
    },
    /// No randomness for the key.
    #[error("no random numbers for the launch's key: {0}")]
    Random(getrandom::Error),
    /// Hosts where no command can be run.
    #[error("nothing was started:{}", list(.0))]
    Hosts(Vec<String>),
    /// The preflight found reasons for it to fail.
    #[error("nothing was started:{}\nhint: --no-preflight starts without asking", list(.0))]
    Preflight(Vec<String>),
    /// A rank's shell did not come up.
    #[error("nothing was started: {role} on host {host}: {why}")]
    Start {
        /// The process.
        role: Role,
        /// Its host.
        host: String,
        /// What happened.
        why: String,
    },
}

fn list(problems: &[String]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

/// What the tasks of a launch report to its loop.
enum Event {
    /// A process ended.
    Ended { process: usize, status: io::Result<ExitStatus> },
    /// A guard's output ended.
    GuardLost { host: usize },
    /// Output could not be written.
    OutputClosed(io::Error),
}

/// Starts all processes of the plan and stays until they have ended. Interrupt, terminate and hang-up signals to this
/// process stop them. Standard input, output and error of this process are theirs meanwhile.
///
/// # Errors
/// [`LaunchError`]: no program was started. What happens later is an [`Outcome`].
pub fn run(plan: &Plan, options: &RunOptions) -> Result<Outcome, LaunchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LaunchError::Io { what: "cannot begin".into(), error })?;
    let outcome = runtime.block_on(launch(plan, options));
    // A thread may still be reading standard input; it ends with the process.
    runtime.shutdown_background();
    outcome
}

async fn launch(plan: &Plan, options: &RunOptions) -> Result<Outcome, LaunchError> {
    let (events, mut reports) = mpsc::channel(plan.processes.len() + plan.hosts.len() + 1);
    let mut signals = Signals::listen().map_err(|error| LaunchError::Io { what: "signals".into(), error })?;
    let mut guards = tokio::select! {
        guards = Guards::start(plan, &options.ssh, &events) => guards?,
        signal = signals.next() => return Ok(Outcome::Interrupted { signal }),
    };
    let started = tokio::select! {
        started = start(plan, options, &mut guards, &events) => started,
        signal = signals.next() => {
            guards.finish(CLEAN_UP).await;
            return Ok(Outcome::Interrupted { signal });
        }
    };
    let (mut ranks, printer) = match started {
        Ok(started) => started,
        Err(error) => {
            guards.finish(CLEAN_UP).await;
            return Err(error);
        }
    };
    let began = Instant::now();
    let mut watch = Watch { plan, began, running: plan.processes.len(), stop: None, cause: None };
    let mut beat = time::interval(BEAT);
    while watch.running > 0 && !watch.is_over() {
        tokio::select! {
            Some(event) = reports.recv() => watch.take(event, &guards),
            signal = signals.next() => watch.interrupt(signal),
            () = Stop::due(&watch.stop) => watch.escalate(&guards),
            _ = beat.tick() => guards.beat(),
        }
    }
    ranks.finish(LAST_OUTPUT).await;
    guards.finish(CLEAN_UP).await;
    let tails = printer.join().unwrap_or_default();
    Ok(watch.outcome(tails))
}

/// A thread that writes what ranks say.
type PrinterThread = thread::JoinHandle<Tails>;

/// Up to the moment when all ranks run. On an error everything is taken back: shells that wait end with their input.
async fn start(
    plan: &Plan,
    options: &RunOptions,
    guards: &mut Guards,
    events: &mpsc::Sender<Event>,
) -> Result<(Ranks, PrinterThread), LaunchError> {
    let key = random_key()?;
    if options.preflight {
        preflight::check(plan, guards).await?;
    }
    guards.write_files(plan);
    let (output, pieces) = mpsc::channel(OUTPUT_QUEUE);
    let mut ranks = Ranks::start(plan, &options.ssh).await?;
    for (process, group) in plan.processes.iter().zip(ranks.groups()) {
        guards.add(process.host, group).await.map_err(|why| LaunchError::Start {
            role: process.role,
            host: plan.host_of(process).name.clone(),
            why,
        })?;
    }
    let closed = events.clone();
    let printer = Printer::new(plan, options);
    let printer = thread::spawn(move || output::print(printer, pieces, &closed));
    ranks.release(plan, guards, &key, &output, events);
    Ok((ranks, printer))
}

/// 256 random bits in hexadecimal.
fn random_key() -> Result<String, LaunchError> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(LaunchError::Random)?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the loop of a launch knows.
struct Watch<'a> {
    plan: &'a Plan,
    began: Instant,
    running: usize,
    stop: Option<Stop>,
    cause: Option<Outcome>,
}

impl Watch<'_> {
    fn take(&mut self, event: Event, guards: &Guards) {
        match event {
            Event::Ended { process, status } => {
                self.running -= 1;
                guards.forget(process);
                let status = status.unwrap_or_else(|_| ExitStatus::from_raw(255 << 8));
                if !status.success() {
                    self.fail(process, Some(status));
                }
            }
            Event::GuardLost { host } => {
                if let Some(process) = self.plan.processes.iter().position(|process| process.host == host) {
                    self.fail(process, None);
                }
            }
            Event::OutputClosed(error) => self.end(Outcome::OutputClosed(error), Stop::after_failure()),
        }
    }

    fn fail(&mut self, process: usize, status: Option<ExitStatus>) {
        let process = &self.plan.processes[process];
        let host = self.plan.host_of(process);
        let failure = Failure {
            role: process.role,
            host: host.name.clone(),
            status,
            after: self.began.elapsed(),
            remote: !host.this_machine,
            last_lines: Vec::new(),
        };
        self.end(Outcome::Failed(failure), Stop::after_failure());
    }

    /// A second signal does not wait.
    fn interrupt(&mut self, signal: i32) {
        match &mut self.stop {
            Some(stop) => stop.hurry(),
            None => self.end(Outcome::Interrupted { signal }, Stop::after_signal(signal)),
        }
    }

    /// The first cause is the one that is told.
    fn end(&mut self, cause: Outcome, stop: Stop) {
        if self.cause.is_none() {
            self.cause = Some(cause);
            self.stop = Some(stop);
        }
    }

    fn escalate(&mut self, guards: &Guards) {
        if let Some(signal) = self.stop.as_mut().and_then(Stop::next_signal) {
            guards.signal(signal);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::is_over)
    }

    fn outcome(self, tails: Tails) -> Outcome {
        let mut cause = self.cause.unwrap_or(Outcome::Done);
        if let Outcome::Failed(failure) = &mut cause {
            let index = self.plan.processes.iter().position(|process| process.role == failure.role);
            failure.last_lines =
                index.and_then(|index| tails.into_iter().nth(index)).unwrap_or_default().into();
        }
        cause
    }
}
