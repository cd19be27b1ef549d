//! What the user asks for, and what this machine is like: all that a plan is made from.

use crate::{Backend, Host, env::Variable};
use serde::Serialize;
use std::str::FromStr;

/// First port that ranks listen on, as in `mlx.launch`.
pub const DEFAULT_PORT: u16 = 32323;
/// Port where NCCL's ranks meet, as in `mlx.launch`.
pub const DEFAULT_NCCL_PORT: u16 = 12345;

/// One program to start on every rank.
#[derive(Clone, Debug)]
pub struct Job {
    /// What the ranks speak.
    pub backend: Backend,
    /// Where each rank runs, in rank order.
    pub hosts: Vec<Host>,
    /// Environment for every rank; a later one wins.
    pub envs: Vec<Variable>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where the program starts.
    pub directory: Directory,
    /// First port, counted up over (rank, address, connection). None: [`DEFAULT_PORT`], or, for pomar's own groups
    /// on this machine alone, ports that are free.
    pub starting_port: Option<u16>,
    /// Connections between ring neighbours for each address.
    pub connections_per_ip: u16,
    /// Port where NCCL's ranks meet.
    pub nccl_port: u16,
    /// Which ranks get the launcher's standard input.
    pub stdin: StdinTo,
    /// Whether each line of output begins with its rank.
    pub prefix: bool,
    /// More words for mpirun.
    pub mpi_args: Vec<String>,
    /// The ssh program.
    pub ssh: String,
}

impl Job {
    /// A job with everything as it is without options, and no hosts yet.
    pub fn new<S: Into<String>>(
        backend: Backend,
        command: impl IntoIterator<Item = S>,
        directory: Directory,
    ) -> Self {
        Self {
            backend,
            hosts: Vec::new(),
            envs: Vec::new(),
            command: command.into_iter().map(Into::into).collect(),
            directory,
            starting_port: None,
            connections_per_ip: 1,
            nccl_port: DEFAULT_NCCL_PORT,
            stdin: StdinTo::All,
            prefix: true,
            mpi_args: Vec::new(),
            ssh: "ssh".into(),
        }
    }
}

/// The folder that ranks start in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Directory {
    /// This one where it exists, else the home folder.
    Try(String),
    /// This one, or the rank fails.
    Must(String),
}

impl Directory {
    /// The folder's path.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Try(path) | Self::Must(path) => path,
        }
    }
}

/// Which ranks get the launcher's standard input; the others' is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinTo {
    /// Each gets a copy.
    All,
    /// One does.
    Rank(usize),
    /// Nobody; it is not read.
    None,
}

impl StdinTo {
    pub(crate) fn includes(self, rank: usize) -> bool {
        match self {
            Self::All => true,
            Self::Rank(only) => only == rank,
            Self::None => false,
        }
    }
}

impl FromStr for StdinTo {
    type Err = String;

    /// # Errors
    /// A sentence with what may be written.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            rank => rank.parse().map(Self::Rank).map_err(|_| "write all, none or a rank".into()),
        }
    }
}

/// What a plan must know about this machine. [`Facts::gather`] finds it out; tests make it up.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Free ports on 127.0.0.1, one per rank, when the plan may need them.
    pub free_ports: Vec<u16>,
    /// The mpirun that was found.
    pub mpi: Option<Mpi>,
    /// The launcher runs as root.
    pub root: bool,
    /// Processors of this machine.
    pub processors: usize,
    /// Columns and lines of the terminal, if standard output is one.
    pub terminal: Option<(u16, u16)>,
}

/// An mpirun and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpi {
    /// The program.
    pub program: String,
    /// Whose options it takes.
    pub flavour: MpiFlavour,
    /// The file name of its library, for MLX, where it is known.
    pub library: Option<String>,
}

/// The two families of mpirun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpiFlavour {
    /// Open MPI.
    OpenMpi,
    /// MPICH and what is made from it: all use its Hydra launcher.
    Mpich,
}

impl MpiFlavour {
    /// Reads the answer to `mpirun --version`.
    #[must_use]
    pub fn from_version(text: &str) -> Option<Self> {
        if text.contains("Open MPI") || text.contains("OpenRTE") || text.contains("PRRTE") {
            Some(Self::OpenMpi)
        } else if text.contains("HYDRA") || text.contains("MPICH") || text.contains("Intel(R) MPI") {
            Some(Self::Mpich)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MpiFlavour;

    #[test]
    fn mpiruns_are_told_apart() {
        let cases = [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/", Some(MpiFlavour::OpenMpi)),
            ("HYDRA build details:\n    Version:      4.0.2\n", Some(MpiFlavour::Mpich)),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.9", Some(MpiFlavour::Mpich)),
            ("mpirun: something else", None),
        ];
        for (text, flavour) in cases {
            assert_eq!(MpiFlavour::from_version(text), flavour, "{text}");
        }
    }
}
