//! The ranks of one run: processes of `examples/soak`, watched until the last one has ended.

use crate::transports::{Transport, sockets_folder};
use pomar_comm::Segment;
use std::{
    env, fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// What a dead rank may take to be named, and an abort to be heard.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// No run takes longer, but for one that hangs.
const HANGS_AFTER: Duration = Duration::from_secs(90);

/// Between two looks at the ranks.
const LOOK: Duration = Duration::from_millis(2);

/// What soak prints at last.
const LAST_WORDS: [&str; 4] = ["DONE", "ENDED", "NOT JOINED", "WRONG"];

/// The ranks of one run; killed when dropped.
pub(crate) struct Job {
    transport: Transport,
    folder: TempDir,
    /// Where ranks are started by one: its process, until it has ended.
    launcher: Option<Child>,
    pub(crate) ranks: Vec<Rank>,
}

/// One rank, and when the test saw what of it.
pub(crate) struct Rank {
    output: PathBuf,
    /// Where the test has started it itself.
    process: Option<Child>,
    pub(crate) joined: Option<Instant>,
    /// When it had said its last words.
    pub(crate) spoke: Option<Instant>,
    pub(crate) ended: Option<Instant>,
}

impl Job {
    /// Starts `ranks` ranks of a group, each with these `words` for soak.
    pub(crate) fn start(transport: Transport, ranks: usize, words: &str) -> Self {
        Self::start_with(transport, ranks, words, |_, _, _| {})
    }

    /// As [`Job::start`]; `adjust` changes the command of a rank, which may have files in the job's folder. Not for ranks
    /// that a launcher starts.
    pub(crate) fn start_with(
        transport: Transport,
        ranks: usize,
        words: &str,
        adjust: impl Fn(usize, &Path, &mut Command),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let environment = transport.environment(ranks, folder.path());
        let mut job = Self { transport, folder, launcher: None, ranks: Vec::new() };
        let at = job.folder.path().to_owned();
        if let Some(mut command) = transport.launcher(ranks, &at) {
            command.arg(soak()).args(words.split_whitespace()).envs(environment);
            job.launcher = Some(spawn(&mut command, &at.join("launcher")));
            job.ranks.extend((0..ranks).map(|rank| Rank::new(at.join(rank.to_string()), None)));
            return job;
        }
        let segment = Segment::create(ranks).unwrap();
        for rank in 0..ranks {
            let mut command = Command::new(soak());
            command.args(words.split_whitespace()).envs(environment.iter().cloned());
            command.env("POMAR_RANK", rank.to_string()).env("MLX_RANK", rank.to_string());
            if transport == Transport::Shm {
                let number = segment.inherit(&mut command);
                command.env("POMAR_SEGMENT_FD", number.to_string());
            }
            adjust(rank, &at, &mut command);
            let output = at.join(rank.to_string());
            let process = spawn(&mut command, &output);
            job.ranks.push(Rank::new(output, Some(process)));
        }
        job
    }

    /// Takes note of who has joined or ended.
    fn look(&mut self) {
        let now = Instant::now();
        let job_is_over =
            self.launcher.as_mut().is_some_and(|launcher| launcher.try_wait().unwrap().is_some());
        for rank in &mut self.ranks {
            rank.look(now, job_is_over);
        }
    }

    /// Watches until `done`.
    pub(crate) fn wait_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        loop {
            self.look();
            if done(self) {
                return;
            }
            assert!(started.elapsed() < HANGS_AFTER, "hangs before {what}:\n{}", self.outputs());
            thread::sleep(LOOK);
        }
    }

    /// Watches until all have ended but for `except`.
    pub(crate) fn wait_for_the_end(&mut self, except: Option<usize>) {
        self.wait_until("the end", |job| {
            job.ranks.iter().enumerate().all(|(rank, it)| it.ended.is_some() || Some(rank) == except)
        });
    }

    /// Sends a signal to one rank; false when it has ended before.
    pub(crate) fn signal(&mut self, rank: usize, signal: libc::c_int) -> bool {
        self.wait_until("a rank's start", |job| {
            job.ranks[rank].id().is_some() || job.ranks[rank].ended.is_some()
        });
        if self.ranks[rank].ended.is_some() {
            return false;
        }
        // A process that has not been waited for, by this test or by the launcher, keeps its number.
        self.ranks[rank].id().is_some_and(|id| send_signal(id, signal))
    }

    /// Watches until all have joined.
    pub(crate) fn wait_for_joining(&mut self) {
        (0..self.ranks.len()).for_each(|rank| self.wait_for_joining_of(rank));
    }

    /// Watches until one rank has joined.
    pub(crate) fn wait_for_joining_of(&mut self, rank: usize) {
        let it = |job: &Self| (job.ranks[rank].joined.is_some(), job.ranks[rank].ended.is_some());
        self.wait_until("joining", |job| it(job) != (false, false));
        assert!(it(self).0, "rank {rank} did not join:\n{}", self.outputs());
    }

    /// Sees that a rank said its last words within `limit` of `from` and ended; gives how long that took.
    pub(crate) fn assert_in_time(&self, rank: usize, from: Instant, limit: Duration) -> Duration {
        let since = |at: Instant| at.saturating_duration_since(from);
        let ended = since(self.ranks[rank].ended.unwrap());
        let spoke = self.ranks[rank].spoke.map(since);
        let in_time =
            spoke.is_none_or(|spoke| spoke < limit) && ended < limit + self.transport.promises().lingers;
        assert!(in_time, "rank {rank} spoke after {spoke:?}, ended after {ended:?}:\n{}", self.outputs());
        spoke.unwrap_or(ended)
    }

    /// What a rank said at last, or nothing.
    pub(crate) fn last_words(&self, rank: usize) -> String {
        last_words(&self.ranks[rank].text()).unwrap_or_default().to_owned()
    }

    /// True when a rank has ended or has printed a line that begins with `word`.
    pub(crate) fn has_said(&self, rank: usize, word: &str) -> bool {
        let rank = &self.ranks[rank];
        rank.ended.is_some() || rank.text().lines().any(|line| line.starts_with(word))
    }

    /// All that was printed, for messages.
    pub(crate) fn outputs(&self) -> String {
        let part = |name: String| {
            let text = fs::read_to_string(self.folder.path().join(&name)).unwrap_or_default();
            format!("--- {name}\n{text}")
        };
        let ranks = (0..self.ranks.len()).map(|rank| rank.to_string());
        ranks.chain(self.launcher.is_some().then(|| "launcher".into())).map(part).collect()
    }

    /// Sees that all processes are gone and no file is left but for the sockets that `killed` ranks could not remove.
    pub(crate) fn assert_nothing_left(&mut self, killed: usize) {
        self.wait_for_the_end(None);
        if let Some(launcher) = &mut self.launcher {
            launcher.wait().unwrap();
        }
        let shared = fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.file_name());
        let shared: Vec<_> = shared.filter(|name| name.to_string_lossy().contains("pomar")).collect();
        assert!(shared.is_empty(), "shared memory is left: {shared:?}");
        if !self.transport.has_verbs() {
            return;
        }
        let sockets = fs::read_dir(sockets_folder(self.folder.path())).unwrap();
        let sockets: Vec<PathBuf> = sockets.map(|entry| entry.unwrap().path()).collect();
        let most = killed * self.transport.sockets(self.ranks.len());
        assert!(sockets.len() <= most, "{} of {most} sockets are left:\n{}", sockets.len(), self.outputs());
        for socket in sockets {
            assert!(UnixStream::connect(&socket).is_err(), "somebody listens at {}", socket.display());
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            if let Some(process) = &mut rank.process {
                let _ = process.kill();
                let _ = process.wait();
            } else if let Some(id) = rank.id().filter(|id| is_running(*id)) {
                send_signal(id, libc::SIGKILL);
            }
        }
        if let Some(launcher) = &mut self.launcher {
            let _ = launcher.kill();
            let _ = launcher.wait();
        }
    }
}

impl Rank {
    fn new(output: PathBuf, process: Option<Child>) -> Self {
        Self { output, process, joined: None, spoke: None, ended: None }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// The number of its process, which it says first.
    fn id(&self) -> Option<u32> {
        let text = self.text();
        text.lines().find_map(|line| line.strip_prefix("STARTED process ")?.parse().ok())
    }

    fn look(&mut self, now: Instant, job_is_over: bool) {
        if self.ended.is_some() {
            return;
        }
        let has_ended = match &mut self.process {
            Some(process) => process.try_wait().unwrap().is_some(),
            None => self.id().map_or(job_is_over, |id| !is_running(id)),
        };
        self.ended = has_ended.then_some(now);
        let text = self.text();
        if self.joined.is_none() && text.lines().any(|line| line == "JOINED") {
            self.joined = Some(now);
        }
        if self.spoke.is_none() && last_words(&text).is_some() {
            self.spoke = Some(now);
        }
    }
}

/// The line with which soak ends.
fn last_words(text: &str) -> Option<&str> {
    text.lines().rfind(|line| LAST_WORDS.iter().any(|word| line.starts_with(word)))
}

/// A dead process that nobody has waited for yet does not count.
fn is_running(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn send_signal(id: u32, signal: libc::c_int) -> bool {
    // SAFETY: plain integers.
    unsafe { libc::kill(id as libc::pid_t, signal) == 0 }
}

fn spawn(command: &mut Command, output: &Path) -> Child {
    let file = fs::OpenOptions::new().create(true).append(true).open(output).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    command.spawn().unwrap_or_else(|error| {
        let program = command.get_program().display();
        panic!("{program}: {error}; for mpirun.openmpi: apt-get install openmpi-bin libopenmpi3")
    })
}

/// The example program, which cargo builds beside the folder of this test program.
fn soak() -> PathBuf {
    let program = env::current_exe().unwrap();
    let profile = program.parent().and_then(Path::parent).unwrap();
    let soak = profile.join("examples/soak");
    assert!(soak.is_file(), "{} is missing: cargo build -p pomar-comm --example soak", soak.display());
    soak
}
