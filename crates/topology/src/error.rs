//! What can go wrong between a question and its answer, said so that the user knows what to do.

use crate::parse::ParseError;
use std::{io, path::PathBuf, time::Duration};

/// Why a host could not be asked, or its answer not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// ssh itself failed.
    #[error(
        "{host}: ssh failed ({reason}); does `ssh -o BatchMode=yes {host} true` work without a password?"
    )]
    Unreachable {
        /// The host.
        host: String,
        /// The last line that ssh wrote.
        reason: String,
    },
    /// The host has no such command, or the recording no such file.
    #[error("{host}: there is no answer to `{command}`: not a command there, or not recorded")]
    Missing {
        /// The host.
        host: String,
        /// The command line.
        command: &'static str,
    },
    /// The command ended with an error and printed nothing.
    #[error("{host}: `{command}` failed ({reason})")]
    Failed {
        /// The host.
        host: String,
        /// The command line.
        command: &'static str,
        /// Its exit status and the last line that it wrote on standard error.
        reason: String,
    },
    /// The command did not end in time.
    #[error("{host}: `{command}` did not end within {after:?}")]
    TimedOut {
        /// The host.
        host: String,
        /// The command line.
        command: &'static str,
        /// How long it was given.
        after: Duration,
    },
    /// More output than any real machine gives.
    #[error("{host}: `{command}` gave more than {limit} bytes")]
    TooLong {
        /// The host.
        host: String,
        /// The command line.
        command: &'static str,
        /// The most that is read, in bytes.
        limit: u64,
    },
    /// The answer is not what the command is known to print.
    #[error("{host}: cannot read the answer to `{command}`: {problem}")]
    Unreadable {
        /// The host.
        host: String,
        /// The command line.
        command: &'static str,
        /// Which field, and what is wrong with it.
        problem: ParseError,
    },
    /// A program of this machine could not be started.
    #[error("cannot start {}: {error}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A recorded answer could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Why a list of hosts is refused before anything is asked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostsError {
    /// A name that could be read as an option, a path or a second word by ssh or the file system.
    #[error("'{0}' cannot be a host's name; write one that ssh knows, such as studio-1.local or me@10.0.0.2")]
    BadName(String),
    /// The same name twice.
    #[error("host {0} is listed twice")]
    Twice(String),
    /// Nobody to ask.
    #[error("no hosts are given; write --hosts a,b")]
    None,
    /// More hosts than the search for a ring is made for.
    #[error("{0} hosts are more than {most}; ask about fewer at a time", most = crate::MAX_HOSTS)]
    TooMany(usize),
}
