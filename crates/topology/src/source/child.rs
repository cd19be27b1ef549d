//! One child process with a time limit and a limit on what it may print.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// The most bytes of standard error that are kept: enough for ssh's complaint.
const MAX_COMPLAINT_BYTES: u64 = 16 << 10;
/// How often the end of the child is looked for once its output is closed.
const POLL: Duration = Duration::from_millis(5);

/// How a child ended.
pub(super) enum Ended {
    /// By itself.
    With { status: ExitStatus, output: String, complaint: String },
    /// It was killed at the time limit.
    TooLate,
    /// It was killed because it printed too much.
    TooLong,
}

/// Runs `command` to its end, or ends it with everything it started.
pub(super) fn run(mut command: Command, time: Duration, most_bytes: u64) -> io::Result<Ended> {
    let deadline = Instant::now() + time;
    // In a process group of its own, so that ssh's helpers (a ProxyCommand) end with it and close the pipes.
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let output = read_aside(child.stdout.take(), most_bytes + 1);
    let complaint = read_aside(child.stderr.take(), MAX_COMPLAINT_BYTES);
    let ended = follow(&mut child, deadline, most_bytes, &output, &complaint);
    if !matches!(ended, Ok(Ended::With { .. })) {
        end(&mut child);
    }
    ended
}

fn follow(
    child: &mut Child,
    deadline: Instant,
    most_bytes: u64,
    output: &mpsc::Receiver<Vec<u8>>,
    complaint: &mpsc::Receiver<Vec<u8>>,
) -> io::Result<Ended> {
    let left = || deadline.saturating_duration_since(Instant::now());
    let Ok(output) = output.recv_timeout(left()) else { return Ok(Ended::TooLate) };
    if output.len() as u64 > most_bytes {
        return Ok(Ended::TooLong);
    }
    let Ok(complaint) = complaint.recv_timeout(left()) else { return Ok(Ended::TooLate) };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::With { status, output: text(&output), complaint: text(&complaint) });
        }
        if left().is_zero() {
            return Ok(Ended::TooLate);
        }
        thread::sleep(POLL);
    }
}

/// Reads at most `limit` bytes on a thread of its own. Dropping the pipe early makes a child that goes on
/// writing end by itself.
fn read_aside(pipe: Option<impl Read + Send + 'static>, limit: u64) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What came before an error is what there is; the exit status says the rest.
            _ = pipe.take(limit).read_to_end(&mut bytes);
        }
        // The receiver is gone after the deadline: then nobody wants the bytes.
        _ = sender.send(bytes);
    });
    receiver
}

/// Kills the child's process group and reaps the child.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Fails only when the whole group has ended already.
        _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    _ = child.wait();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
