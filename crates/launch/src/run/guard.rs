//! The launcher's end of the guards: one per host, started before anything else.

use super::{Event, LaunchError};
use crate::{Plan, plan::HostPlan, quote::quote, shell};
use std::{
    collections::VecDeque,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    time::timeout,
};

/// Connecting, logging in and answering; ssh itself gives up connecting after 10 s.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// A reply to a call that needs no network of its own.
const REPLY_WITHIN: Duration = Duration::from_secs(10);
/// Calls, and replies, on their way. A connection so slow that it needs more is as good as lost.
const QUEUE: usize = 4096;
/// Longest line of a guard, or of a login shell before it, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// Lines of a guard's standard error that are kept, and how many bytes of each.
const KEPT_LINES: usize = 5;
const KEPT_BYTES: usize = 300;

/// All guards of a launch, in the order of [`Plan::hosts`].
pub(super) struct Guards {
    guards: Vec<Guard>,
    /// Host and process group of each process.
    groups: Vec<(usize, u32)>,
}

struct Guard {
    child: Child,
    remote: bool,
    calls: Option<mpsc::Sender<String>>,
    replies: mpsc::Receiver<String>,
    folder: String,
}

impl Guards {
    /// Starts them all at once. A host where that fails is named, with what ssh said.
    pub(super) async fn start(
        plan: &Plan,
        ssh: &str,
        events: &mpsc::Sender<Event>,
    ) -> Result<Self, LaunchError> {
        let start = |(index, host): (usize, &HostPlan)| {
            let (host, command, events) = (host.clone(), shell::guard(host, ssh), events.clone());
            tokio::spawn(async move { Guard::start(&host, index, &command, events).await })
        };
        let starting: Vec<_> = plan.hosts.iter().enumerate().map(start).collect();
        let (mut guards, mut problems) = (Vec::new(), Vec::new());
        for task in starting {
            match task.await {
                Ok(Ok(guard)) => guards.push(guard),
                Ok(Err(problem)) => problems.push(problem),
                Err(error) => problems.push(error.to_string()),
            }
        }
        if problems.is_empty() {
            Ok(Self { guards, groups: Vec::new() })
        } else {
            Err(LaunchError::Hosts(problems))
        }
    }

    /// The folder of the launch's files on a host.
    pub(super) fn folder(&self, host: usize) -> &str {
        &self.guards[host].folder
    }

    pub(super) fn write_files(&self, plan: &Plan) {
        for (guard, host) in self.guards.iter().zip(&plan.hosts) {
            for (name, content) in &host.files {
                guard.call(format!("file {name} {}", quote(content)));
            }
        }
    }

    /// Tells a guard of a process group, and waits until it knows: from then on the group cannot be left behind.
    pub(super) async fn add(&mut self, host: usize, group: u32) -> Result<(), String> {
        let guard = &mut self.guards[host];
        guard.call(format!("add {group}"));
        let added = format!("added {group}");
        let heard = timeout(REPLY_WITHIN, async {
            while let Some(reply) = guard.replies.recv().await {
                if reply == added {
                    return true;
                }
            }
            false
        });
        if !heard.await.unwrap_or(false) {
            return Err("the guard on that host does not answer".into());
        }
        self.groups.push((host, group));
        Ok(())
    }

    /// A process has ended: what is left of its group is killed.
    pub(super) fn forget(&self, process: usize) {
        if let Some((host, group)) = self.groups.get(process) {
            self.guards[*host].call(format!("forget {group}"));
        }
    }

    /// Signals every group on every host.
    pub(super) fn signal(&self, name: &str) {
        self.guards.iter().for_each(|guard| guard.call(format!("signal {name}")));
    }

    /// Lets the guards of other machines know that the launcher lives.
    pub(super) fn beat(&self) {
        self.guards.iter().filter(|guard| guard.remote).for_each(|guard| guard.call("beat".into()));
    }

    pub(super) fn ask(&self, host: usize, call: String) {
        self.guards[host].call(call);
    }

    /// The next reply of a host; none when it is out of reach.
    pub(super) async fn reply(&mut self, host: usize) -> Option<String> {
        self.guards[host].replies.recv().await
    }

    /// Ends the guards, which remove their folders. One that takes too long is left to its silence limit.
    pub(super) async fn finish(mut self, within: Duration) {
        self.guards.iter_mut().for_each(|guard| guard.calls = None);
        let ended = async {
            for guard in &mut self.guards {
                // An error means that it is gone, which is all that is wanted.
                let _ = guard.child.wait().await;
            }
        };
        let _ = timeout(within, ended).await;
    }
}

impl Guard {
    async fn start(
        host: &HostPlan,
        index: usize,
        command: &[String],
        events: mpsc::Sender<Event>,
    ) -> Result<Self, String> {
        let name = &host.name;
        let mut child = piped(command)
            .spawn()
            .map_err(|error| format!("host {name}: cannot run {}: {error}", command[0]))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(format!("host {name}: no pipes"));
        };
        let (calls, queue) = mpsc::channel(QUEUE);
        let (sender, mut replies) = mpsc::channel(QUEUE);
        let complaints = Complaints::default();
        tokio::spawn(send(stdin, queue));
        tokio::spawn(listen(BufReader::new(stdout), sender, events, index));
        let listening = tokio::spawn(complaints.clone().collect(stderr));
        let ready = async {
            while let Some(reply) = replies.recv().await {
                if let Some(folder) = reply.strip_prefix("ready ") {
                    return Some(folder.to_owned());
                }
            }
            None
        };
        match timeout(READY_WITHIN, ready).await {
            Ok(Some(folder)) => {
                Ok(Self { child, remote: !host.this_machine, calls: Some(calls), replies, folder })
            }
            Ok(None) => {
                let status = timeout(REPLY_WITHIN, child.wait()).await;
                let _ = timeout(REPLY_WITHIN, listening).await;
                let status = status.ok().and_then(Result::ok).map(|status| status.to_string());
                let status = status.unwrap_or_else(|| "no status".into());
                Err(format!(
                    "host {name}: {} ended with {status}{complaints}; does `{} {name} true` work?",
                    command[0], command[0]
                ))
            }
            Err(_) => Err(format!(
                "host {name}: no answer within {} s{complaints}; does `{} {name} true` work?",
                READY_WITHIN.as_secs(),
                command[0]
            )),
        }
    }

    /// Queues a call. When the queue is full the connection is lost, and that will be noticed elsewhere.
    fn call(&self, call: String) {
        if let Some(calls) = &self.calls {
            let _ = calls.try_send(call);
        }
    }
}

/// A command with pipes, in a process group of its own: a Ctrl-C in the terminal is the launcher's to handle.
pub(super) fn piped(command: &[String]) -> Command {
    let mut piped = Command::new(&command[0]);
    piped.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.process_group(0);
    piped
}

/// What follows `pomar ` on the next line that begins so; a login shell may greet before. None at the end.
pub(super) async fn next_reply(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    loop {
        let mut line = Vec::new();
        // Bounded: an endless line is cut into lines that mean nothing.
        let read = (&mut *reader).take(MAX_LINE).read_until(b'\n', &mut line).await.ok()?;
        if read == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(reply) = line.trim_end().strip_prefix("pomar ") {
            return Some(reply.into());
        }
    }
}

async fn send(mut stdin: ChildStdin, mut calls: mpsc::Receiver<String>) {
    while let Some(call) = calls.recv().await {
        if stdin.write_all(format!("{call}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn listen(
    mut stdout: impl AsyncBufRead + Unpin,
    replies: mpsc::Sender<String>,
    events: mpsc::Sender<Event>,
    host: usize,
) {
    while let Some(reply) = next_reply(&mut stdout).await {
        // Nobody waits for more than a few replies at a time; a flood of them is not from our script.
        let _ = replies.try_send(reply);
    }
    drop(replies);
    let _ = events.send(Event::GuardLost { host }).await;
}

/// The last lines of a guard's standard error.
#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<VecDeque<String>>>);

impl Complaints {
    async fn collect(self, stderr: impl AsyncRead + Unpin) {
        let mut stderr = BufReader::new(stderr);
        loop {
            let mut line = Vec::new();
            match (&mut stderr).take(MAX_LINE).read_until(b'\n', &mut line).await {
                Ok(1..) => self.keep(&line),
                _ => return,
            }
        }
    }

    fn keep(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(&line[..line.len().min(KEPT_BYTES)]).trim().to_owned();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() {
            kept.push_back(text);
        }
        if kept.len() > KEPT_LINES {
            kept.pop_front();
        }
    }
}

impl std::fmt::Display for Complaints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().enumerate().try_for_each(|(index, line)| {
            write!(f, "{}{line}", if index == 0 { ", saying: " } else { " / " })
        })
    }
}
