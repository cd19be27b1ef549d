//! From a job to every command, variable and file of its launch. Pure: nothing is started, read or asked here.

mod environment;
mod mpi;
mod setup;

use crate::{
    Address, Backend,
    env::GROUP_VARIABLES,
    job::{Directory, Facts, Job},
};
use environment::Group;
use serde::{Serialize, Serializer};
use std::{collections::BTreeMap, fmt};

pub(crate) use setup::setup_line;

/// All that a launch starts and writes.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// What the ranks speak.
    pub backend: Backend,
    /// Number of ranks.
    pub ranks: usize,
    /// The machines, each once.
    pub hosts: Vec<HostPlan>,
    /// One process per rank, or one mpirun.
    pub processes: Vec<Process>,
    /// Where ranks will listen.
    pub listens: Vec<Listen>,
    /// Who must reach whom.
    pub hops: Vec<Hop>,
    /// Why something is there that the user did not ask for.
    pub notes: Vec<String>,
}

/// One machine.
#[derive(Clone, Debug, Serialize)]
pub struct HostPlan {
    /// Its name for ssh.
    pub name: String,
    /// No ssh is needed.
    pub this_machine: bool,
    /// Files to write there, by name, into a folder of the launch's own that is removed afterwards.
    pub files: BTreeMap<&'static str, String>,
}

/// One process to start.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Which rank it is.
    pub role: Role,
    /// Index of its host in [`Plan::hosts`].
    pub host: usize,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Where it starts.
    pub directory: Directory,
    /// Variables set for it.
    pub env: BTreeMap<String, Value>,
    /// Variables of other launches that it must not inherit.
    pub unset: Vec<&'static str>,
    /// How its lines tell their rank.
    #[serde(skip)]
    pub labels: Labels,
    /// Gets the launcher's standard input.
    pub stdin: bool,
}

/// What a process is to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A rank.
    Rank(usize),
    /// The mpirun that starts all ranks.
    Mpirun,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => write!(f, "rank {rank}"),
            Self::Mpirun => f.write_str("mpirun"),
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How it is known which rank wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// All lines of the process are its rank's.
    Rank(usize),
    /// Open MPI begins each line with `[job,rank]<stream>`.
    OpenMpi,
    /// Lines need no prefix, or have one.
    AsIs,
}

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// This text.
    Text(String),
    /// The path of one of the host's files.
    File(&'static str),
    /// The key of this launch: 64 random hexadecimal digits, known to its ranks only.
    Key,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => text.fmt(f),
            Self::File(name) => write!(f, "<folder>/{name}"),
            Self::Key => f.write_str("<random>"),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An address and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.with_port(self.port).fmt(f)
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A rank that will listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listen {
    /// The rank.
    pub rank: usize,
    /// Where.
    pub at: Endpoint,
}

/// A rank that will connect to another one on another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// Who connects.
    pub from: usize,
    /// Who listens.
    pub to: usize,
    /// Where.
    pub at: Vec<Endpoint>,
    /// One of the endpoints is enough; else all must be reachable.
    pub any: bool,
}

/// Why there is no plan for a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Nothing to start.
    #[error("no program is given; write it after --")]
    NoCommand,
    /// Nowhere to start it.
    #[error("there are no hosts")]
    NoHosts,
    /// A rank that is not there.
    #[error("--stdin {rank} names no rank: there are ranks 0 to {last}")]
    NoSuchRank {
        /// What was given.
        rank: usize,
        /// The last one.
        last: usize,
    },
    /// An address is needed.
    #[error(
        "backend {backend} needs an address of {host} (rank {rank}), and that name does not resolve here\n\
         hint: give \"ips\" for it in a hostfile"
    )]
    NoAddress {
        /// The backend.
        backend: Backend,
        /// The host.
        host: String,
        /// Its rank.
        rank: usize,
    },
    /// MLX's ring would take the address apart at its first colon.
    #[error(
        "rank {rank} on {host} has the address {address}, and MLX's {backend} backend speaks IPv4 only\n\
         hint: give it an IPv4 address, or use --backend pomar"
    )]
    Ipv6 {
        /// The backend.
        backend: Backend,
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// The address.
        address: Address,
    },
    /// Some ranks could not reach the others.
    #[error(
        "rank {rank} on {host} listens on {address}, which ranks on other machines cannot reach\n\
         hint: give the machine's address on the common network in a hostfile"
    )]
    Loopback {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// The address.
        address: Address,
    },
    /// MLX's ring pairs connections by number.
    #[error(
        "rank {rank} on {host} has {got} addresses and rank 0 has {expected}; \
         in a ring all ranks need equally many \"ips\""
    )]
    UnevenAddresses {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// How many it has.
        got: usize,
        /// How many rank 0 has.
        expected: usize,
    },
    /// The count goes past the last port.
    #[error("{needed} ports from {first} go past 65535; choose a smaller --starting-port")]
    Ports {
        /// How many are needed.
        needed: usize,
        /// The first.
        first: u16,
    },
    /// A row of the RDMA matrix has another length.
    #[error(
        "hosts[{rank}].rdma ({host}) has {got} entries and must have {expected}: one per rank, null for itself"
    )]
    RdmaCount {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Entries it has.
        got: usize,
        /// Ranks.
        expected: usize,
    },
    /// A rank has a device to itself.
    #[error("hosts[{rank}].rdma[{rank}] ({host}) must be null: no cable leads from a rank to itself")]
    RdmaSelf {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
    },
    /// A cable is missing.
    #[error(
        "no RDMA device is given from {pairs}\n\
         hint: {backend} needs {needs}"
    )]
    RdmaMissing {
        /// The pairs, as `a (rank 0) to b (rank 1), ...`.
        pairs: String,
        /// The backend.
        backend: Backend,
        /// Which pairs must have one.
        needs: &'static str,
    },
    /// JACCL's ring needs equally many cables everywhere.
    #[error(
        "rank {rank} on {host} has {got} RDMA devices to a neighbour where others have {expected}; \
         jaccl-ring needs the same number, 1 to 4, between all neighbours"
    )]
    RdmaWires {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Devices it has.
        got: usize,
        /// Devices from rank 0 to rank 1.
        expected: usize,
    },
    /// JACCL's mesh has a limit.
    #[error(
        "jaccl connects at most 8 ranks with each other, and there are {ranks}; use --backend jaccl-ring"
    )]
    MeshSize {
        /// Ranks.
        ranks: usize,
    },
    /// The user sets what the launch must set.
    #[error("{name} cannot be set: the launch sets it for backend {backend}")]
    OwnVariable {
        /// The variable.
        name: String,
        /// The backend.
        backend: Backend,
    },
    /// mpirun was not looked for.
    #[error("no mpirun is known")]
    NoMpirun,
    /// MPICH has no option for it.
    #[error("MPICH's mpirun gives standard input to rank 0 only; use --stdin 0 or none")]
    MpichStdin,
    /// mpirun's list of hosts has no room for colons.
    #[error("mpirun cannot be given the IPv6 address {host}; give a name that stands for it")]
    MpiHost {
        /// The host.
        host: String,
    },
}

impl Plan {
    /// Makes the plan of a job.
    ///
    /// # Errors
    /// [`PlanError`], naming the rank and host at fault.
    pub fn new(job: &Job, facts: &Facts) -> Result<Self, PlanError> {
        check(job)?;
        let (mut hosts, host_of) = distinct_hosts(job);
        if job.backend == Backend::Mpi {
            let (process, notes) = mpi::mpirun(job, facts, &mut hosts)?;
            return Ok(Self {
                backend: job.backend,
                ranks: job.hosts.len(),
                hosts,
                processes: vec![process],
                listens: Vec::new(),
                hops: Vec::new(),
                notes,
            });
        }
        let group = Group::new(job, facts)?;
        for host in &mut hosts {
            host.files.clone_from(&group.files);
        }
        let env = |rank: usize| group.env_of(rank, job, facts);
        let processes = (0..job.hosts.len()).map(|rank| {
            let env = env(rank)?;
            Ok(Process {
                role: Role::Rank(rank),
                host: host_of[rank],
                command: job.command.clone(),
                directory: job.directory.clone(),
                unset: unset_beside(&env),
                env,
                labels: if job.prefix { Labels::Rank(rank) } else { Labels::AsIs },
                stdin: job.stdin.includes(rank),
            })
        });
        Ok(Self {
            backend: job.backend,
            ranks: job.hosts.len(),
            processes: processes.collect::<Result<_, _>>()?,
            hosts,
            listens: group.listens,
            hops: group.hops.into_iter().filter(|hop| host_of[hop.from] != host_of[hop.to]).collect(),
            notes: Vec::new(),
        })
    }

    /// The host of a rank's process; for an MPI program, of mpirun.
    #[must_use]
    pub fn host_of(&self, process: &Process) -> &HostPlan {
        &self.hosts[process.host]
    }
}

fn check(job: &Job) -> Result<(), PlanError> {
    if job.command.is_empty() {
        return Err(PlanError::NoCommand);
    }
    let ranks = job.hosts.len();
    match job.stdin {
        _ if ranks == 0 => Err(PlanError::NoHosts),
        crate::StdinTo::Rank(rank) if rank >= ranks => Err(PlanError::NoSuchRank { rank, last: ranks - 1 }),
        _ => Ok(()),
    }
}

/// Each host once, and for each rank the index of its host.
fn distinct_hosts(job: &Job) -> (Vec<HostPlan>, Vec<usize>) {
    let mut hosts: Vec<HostPlan> = Vec::new();
    let index = |host: &crate::Host| {
        let this_machine = host.is_this_machine();
        let same = |known: &HostPlan| known.name == host.ssh || (known.this_machine && this_machine);
        hosts.iter().position(same).unwrap_or_else(|| {
            hosts.push(HostPlan { name: host.ssh.clone(), this_machine, files: BTreeMap::new() });
            hosts.len() - 1
        })
    };
    let host_of = job.hosts.iter().map(index).collect();
    (hosts, host_of)
}

fn unset_beside(env: &BTreeMap<String, Value>) -> Vec<&'static str> {
    GROUP_VARIABLES.into_iter().filter(|name| !env.contains_key(*name)).collect()
}

#[cfg(test)]
mod tests;
