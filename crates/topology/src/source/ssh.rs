//! Answers from running hosts.

use super::{MAX_ANSWER_BYTES, Source, child};
use crate::{Probe, ProbeError};
use std::{path::PathBuf, process::Command, time::Duration};

/// The exit status with which ssh reports its own failure, and not the command's.
const SSH_FAILED: i32 = 255;
/// A shell's exit status for a command that does not exist.
const NO_SUCH_COMMAND: i32 = 127;

/// Asks hosts over ssh, never for a password, and this machine (`localhost`) without it.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// The ssh program.
    pub program: PathBuf,
    /// The most time for one command, connecting included. `system_profiler` needs a few seconds on a cold
    /// start.
    pub time: Duration,
}

impl Default for Ssh {
    fn default() -> Self {
        Self { program: "ssh".into(), time: Duration::from_secs(30) }
    }
}

impl Ssh {
    fn command(&self, host: &str, probe: Probe) -> Command {
        // A login over ssh often lacks the folders in which ifconfig, system_profiler and ip are. Quoted like
        // this the line means the same to sh, bash, zsh and fish.
        let line = format!("env \"PATH=$PATH:/usr/sbin:/sbin\" LC_ALL=C {}", probe.command());
        if is_this_machine(host) {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &line]);
            return command;
        }
        let mut command = Command::new(&self.program);
        command.args(["-n", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]);
        command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2", "--", host, &line]);
        command
    }
}

impl Source for Ssh {
    fn run(&self, host: &str, probe: Probe) -> Result<String, ProbeError> {
        let command = self.command(host, probe);
        let program = command.get_program().into();
        let ended = child::run(command, self.time, MAX_ANSWER_BYTES)
            .map_err(|error| ProbeError::Start { program, error })?;
        let (host, command) = (host.to_owned(), probe.command());
        let (status, output, complaint) = match ended {
            child::Ended::With { status, output, complaint } => (status, output, complaint),
            child::Ended::TooLate => return Err(ProbeError::TimedOut { host, command, after: self.time }),
            child::Ended::TooLong => {
                return Err(ProbeError::TooLong { host, command, limit: MAX_ANSWER_BYTES });
            }
        };
        match status.code() {
            Some(0) => Ok(output),
            Some(SSH_FAILED) if !is_this_machine(&host) => {
                Err(ProbeError::Unreachable { host, reason: last_line(&complaint, "it gave no reason") })
            }
            Some(NO_SUCH_COMMAND) => Err(ProbeError::Missing { host, command }),
            // A program that prints its answer and then ends with a failure, as some status commands do, has
            // answered.
            _ if !output.trim().is_empty() => Ok(output),
            _ => {
                Err(ProbeError::Failed { host, command, reason: last_line(&complaint, &status.to_string()) })
            }
        }
    }
}

fn is_this_machine(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "::1")
}

fn last_line(complaint: &str, otherwise: &str) -> String {
    let line = complaint.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or(otherwise);
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}
