//! The processes of a launch: shells that wait, then programs.

use super::{
    Event, LaunchError,
    guard::{Guards, next_reply, piped},
    input,
    output::{Piece, Stream},
};
use crate::{
    Plan,
    plan::{Process, setup_line},
    shell,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::timeout,
};

/// Connecting, logging in, and the first line.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Connections being made at once: a stock sshd begins to refuse at 10 (MaxStartups).
const CONNECTING: usize = 8;
/// Bytes read from a rank at a time.
const PIECE: usize = 8 << 10;

/// All processes, in the order of [`Plan::processes`].
pub(super) struct Ranks {
    waiting: Vec<Waiting>,
    pumps: Vec<JoinHandle<()>>,
    lives: Vec<JoinHandle<()>>,
}

/// A shell that has told its process group and waits for its line.
struct Waiting {
    child: Child,
    group: u32,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
}

impl Ranks {
    /// Starts the shells.
    pub(super) async fn start(plan: &Plan, ssh: &str) -> Result<Self, LaunchError> {
        let turns = Arc::new(Semaphore::new(CONNECTING));
        let start = |process: &Process| {
            let (turns, command) = (turns.clone(), shell::stub(plan.host_of(process), ssh));
            tokio::spawn(async move {
                let _turn = turns.acquire().await;
                Waiting::start(&command).await
            })
        };
        let starting: Vec<_> = plan.processes.iter().map(start).collect();
        let mut waiting = Vec::new();
        for (task, process) in starting.into_iter().zip(&plan.processes) {
            let started = task.await.unwrap_or_else(|error| Err(error.to_string()));
            let host = &plan.host_of(process).name;
            waiting.push(started.map_err(|why| LaunchError::Start {
                role: process.role,
                host: host.clone(),
                why,
            })?);
        }
        Ok(Self { waiting, pumps: Vec::new(), lives: Vec::new() })
    }

    pub(super) fn groups(&self) -> Vec<u32> {
        self.waiting.iter().map(|waiting| waiting.group).collect()
    }

    /// Lets every shell become its program, and begins to carry input and output.
    pub(super) fn release(
        &mut self,
        plan: &Plan,
        guards: &Guards,
        key: &str,
        output: &mpsc::Sender<Piece>,
        events: &mpsc::Sender<Event>,
    ) {
        let mut feeds = Vec::new();
        for (index, (waiting, process)) in self.waiting.drain(..).zip(&plan.processes).enumerate() {
            let Waiting { child, stdin, stdout, stderr, .. } = waiting;
            let line = setup_line(process, guards.folder(process.host), key) + "\n";
            let (feed, queue) = input::feed(process.role);
            tokio::spawn(release(stdin, line, queue));
            if process.stdin {
                feeds.push(feed);
            }
            let pump = |stream| (index, stream, output.clone());
            self.pumps.push(tokio::spawn(carry(stdout, pump(Stream::Out))));
            self.pumps.push(tokio::spawn(carry(stderr, pump(Stream::Err))));
            self.lives.push(tokio::spawn(live(child, index, events.clone())));
        }
        if !feeds.is_empty() {
            input::forward(feeds, output.clone());
        }
    }

    /// Waits for the last output; then whatever still runs here, such as an ssh to a host that is gone, is killed.
    pub(super) async fn finish(&mut self, within: Duration) {
        let carried = async {
            for pump in &mut self.pumps {
                let _ = pump.await;
            }
        };
        let _ = timeout(within, carried).await;
        self.pumps.iter().chain(&self.lives).for_each(JoinHandle::abort);
    }
}

impl Waiting {
    async fn start(command: &[String]) -> Result<Self, String> {
        // A guard must never be killed, since it has to clean up; what belongs to a rank may be.
        let spawned = piped(command).kill_on_drop(true).spawn();
        let mut child = spawned.map_err(|error| format!("cannot run {}: {error}", command[0]))?;
        let (Some(stdin), Some(stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("no pipes".into());
        };
        let mut stdout = BufReader::with_capacity(PIECE, stdout);
        let group = async {
            while let Some(reply) = next_reply(&mut stdout).await {
                if let Some(group) = reply.strip_prefix("group ") {
                    return group.parse().ok();
                }
            }
            None
        };
        match timeout(READY_WITHIN, group).await {
            // Group 1 would be everything that may be signalled.
            Ok(Some(group)) if group > 1 => Ok(Self { child, group, stdin, stdout, stderr }),
            Ok(_) => {
                let mut said = vec![0; 2048];
                let read = timeout(Duration::from_secs(1), stderr.read(&mut said)).await;
                let read = read.ok().and_then(Result::ok).unwrap_or(0);
                let said = String::from_utf8_lossy(&said[..read]).trim().replace('\n', " / ");
                Err(format!("its shell ended before the program could be started, saying: {said}"))
            }
            Err(_) => Err(format!("its shell did not answer within {} s", READY_WITHIN.as_secs())),
        }
    }
}

/// Gives a shell its line, and the program that it becomes its input. Without a sender the input ends at once.
async fn release(mut stdin: ChildStdin, line: String, queue: mpsc::Receiver<Arc<[u8]>>) {
    if stdin.write_all(line.as_bytes()).await.is_ok() {
        input::pour(queue, stdin).await;
    }
}

/// Brings output to the printer until it ends.
async fn carry(mut from: impl AsyncRead + Unpin, to: (usize, Stream, mpsc::Sender<Piece>)) {
    let (process, stream, output) = to;
    let mut buffer = vec![0; PIECE];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer[..read].to_vec();
        if output.send(Piece::Bytes { process, stream, bytes }).await.is_err() {
            return;
        }
    }
    let _ = output.send(Piece::End { process, stream }).await;
}

async fn live(mut child: Child, process: usize, events: mpsc::Sender<Event>) {
    let status = child.wait().await;
    let _ = events.send(Event::Ended { process, status }).await;
}
