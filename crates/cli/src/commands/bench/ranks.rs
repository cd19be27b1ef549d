//! The rank processes of one measurement: what each transport needs in its environment, and an end for all of them.

use anyhow::Context;
use clap::ValueEnum;
use pomar_comm::{Segment, TcpListenerHandle};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
};
use tempfile::NamedTempFile;

/// The transports that can be measured on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Way {
    /// Shared memory
    Shm,
    /// A mesh of loopback connections
    Tcp,
    /// MLX's ring, over loopback
    Ring,
    /// RDMA verbs; POMAR_RDMA_DEVICES names a device matrix where there are several devices
    Rdma,
    /// MPI, started by mpirun
    Mpi,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Ring => "ring",
            Self::Rdma => "rdma",
            Self::Mpi => "mpi",
        }
    }
}

/// Starts `count` ranks over `way`, waits for all, and returns what rank 0 printed.
pub(super) fn run(way: Way, count: usize) -> anyhow::Result<String> {
    let mut ranks = Ranks(Vec::new());
    match way {
        Way::Mpi => ranks.start("mpirun", &mut mpirun(count)?)?,
        Way::Shm => {
            let segment = Segment::create(count)?;
            for rank in 0..count {
                let mut command = command(way, rank, count)?;
                let descriptor = segment.inherit(&mut command);
                ranks.start(
                    &format!("rank {rank}"),
                    command.env("POMAR_SEGMENT_FD", descriptor.to_string()),
                )?;
            }
        }
        Way::Tcp | Way::Rdma => {
            let addresses = serde_json::to_string(&free_addresses(count)?)?;
            let key = random_key()?;
            for rank in 0..count {
                let mut command = command(way, rank, count)?;
                command.env("POMAR_ADDRESSES", &addresses).env("POMAR_KEY", &key);
                ranks.start(&format!("rank {rank}"), &mut command)?;
            }
        }
        Way::Ring => {
            let mut hostfile = NamedTempFile::new().context("writing the ring's host file")?;
            hostfile.write_all(serde_json::to_string(&free_addresses(count)?)?.as_bytes())?;
            for rank in 0..count {
                let mut command = command(way, rank, count)?;
                command.env("MLX_HOSTFILE", hostfile.path()).env("MLX_RANK", rank.to_string());
                ranks.start(&format!("rank {rank}"), &mut command)?;
            }
            // The file is read while the ranks start, so it stays until they end.
            return ranks.finish();
        }
    }
    ranks.finish()
}

fn this_program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["bench", "collectives-rank"]);
    Ok(command)
}

fn command(way: Way, rank: usize, count: usize) -> anyhow::Result<Command> {
    let mut command = this_program()?;
    command.env("POMAR_RANK", rank.to_string()).env("POMAR_SIZE", count.to_string());
    command.env("POMAR_TRANSPORT", way.name());
    // Only rank 0 prints figures; what others say on standard output would get into them.
    command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
    Ok(command)
}

/// Both MPIs know `-n`; Open MPI wants to be told that more ranks than cores, or the user root, are meant.
fn mpirun(count: usize) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new("mpirun");
    command.args(["-n", &count.to_string()]).arg(program).args(["bench", "collectives-rank"]);
    command.env("POMAR_TRANSPORT", "mpi").env_remove("POMAR_RANK").env_remove("POMAR_SIZE");
    for allowed in
        ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"]
    {
        command.env(allowed, "1");
    }
    command.stdout(Stdio::piped());
    Ok(command)
}

/// One address per rank: ports that are free, found by taking them for a moment.
fn free_addresses(count: usize) -> anyhow::Result<Vec<[String; 1]>> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let ears = (0..count).map(|_| TcpListenerHandle::bind(&[any])).collect::<Result<Vec<_>, _>>()?;
    Ok(ears.iter().map(|ear| [ear.addresses()[0].to_string()]).collect())
}

fn random_key() -> anyhow::Result<String> {
    let mut key = [0_u8; 32];
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Processes that don't outlive this.
struct Ranks(Vec<Child>);

impl Ranks {
    fn start(&mut self, what: &str, command: &mut Command) -> anyhow::Result<()> {
        command.stdin(Stdio::null());
        self.0.push(command.spawn().with_context(|| format!("starting {what}"))?);
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<String> {
        let mut output = String::new();
        if let Some(first) = self.0.first_mut().and_then(|child| child.stdout.take()) {
            first.take(1 << 20).read_to_string(&mut output)?;
        }
        for (number, child) in self.0.iter_mut().enumerate() {
            let status = child.wait()?;
            anyhow::ensure!(
                status.success(),
                "process {number} of the measurement ended with {status}; see its message above"
            );
        }
        Ok(output)
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
