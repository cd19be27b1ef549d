//! `pomar launch`: start any distributed program, here and over ssh.

use crate::output::{colours_on_stderr, colours_on_stdout, print_json, print_line};
use anyhow::{Context, anyhow};
use clap::Args;
use pomar_launch::{
    Backend, Description, Directory, Facts, Hostfile, Job, Outcome, Plan, RunOptions, StdinTo, Variable, job,
    resolve, run,
};
use std::{path::PathBuf, process::ExitCode};

#[derive(Args)]
#[command(after_help = "\
Each rank finds in its environment what its backend needs:
  ring          MLX_RANK, MLX_HOSTFILE
  jaccl         MLX_RANK, MLX_IBV_DEVICES, MLX_JACCL_COORDINATOR
  jaccl-ring    the same and MLX_JACCL_RING
  nccl          MLX_RANK, MLX_WORLD_SIZE, NCCL_HOST_IP, NCCL_PORT, CUDA_VISIBLE_DEVICES
  mpi           what mpirun gives it
  pomar         POMAR_RANK, POMAR_SIZE, POMAR_TRANSPORT, POMAR_ADDRESSES, POMAR_KEY, POMAR_RDMA_DEVICES

The first rank that fails stops the others, and its exit status is that of the launch.")]
pub(crate) struct Launch {
    /// Ranks on this machine, or on each of --hosts
    #[arg(short = 'n', long, alias = "repeat-hosts", value_name = "N", conflicts_with = "hostfile")]
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    ranks: u16,
    /// Names for ssh, separated by commas, one rank each; 127.0.0.1 is this machine without ssh
    #[arg(long, value_name = "A,B,...", conflicts_with = "hostfile", default_value = "127.0.0.1")]
    hosts: String,
    /// MLX's hostfile, JSON: one entry per rank with "ssh", "ips" and "rdma"
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// ring, jaccl, jaccl-ring, mpi, nccl or pomar; without it, what the hostfile says, else ring
    #[arg(long)]
    backend: Option<Backend>,
    /// Set a variable for every rank; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<Variable>,
    /// Start in this folder on every host; without it, the current one where it exists, else the home folder
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<String>,
    /// Run the command with this Python
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
    /// First port to listen on, counted up over ranks, addresses and connections
    ///
    /// 32323 unless given; backend pomar on this machine alone takes free ports instead.
    #[arg(short = 'p', long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    starting_port: Option<u16>,
    /// Connections between ring neighbours for each address
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections_per_ip: u16,
    /// Port where NCCL's ranks meet
    #[arg(long, value_name = "PORT", default_value_t = job::DEFAULT_NCCL_PORT)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    nccl_port: u16,
    /// More words for mpirun, separated by spaces; may be repeated
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    mpi_arg: Vec<String>,
    /// The mpirun to start
    #[arg(long, value_name = "PROGRAM", default_value = "mpirun")]
    mpirun: String,
    /// The ssh to log in with
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    ssh: String,
    /// Who gets this command's standard input: all, none, or a rank; mpirun takes all for rank 0
    #[arg(long, value_name = "WHO", default_value = "all")]
    stdin: StdinTo,
    /// Print what ranks print as it is, without the rank before each line
    #[arg(long)]
    no_prefix: bool,
    /// Start without asking whether the hosts, programs and ports are there
    #[arg(long)]
    no_preflight: bool,
    /// Print every command, variable and file, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: print it as JSON
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

impl Launch {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let job = self.job()?;
        let plan = Plan::new(&job, &Facts::gather(&job, &self.mpirun)?)?;
        if self.dry_run {
            let description = Description::new(&plan, &self.ssh);
            if self.json { print_json(&description) } else { print_line(description) }?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = RunOptions {
            ssh: self.ssh,
            preflight: !self.no_preflight,
            colour_stdout: colours_on_stdout(),
            colour_stderr: colours_on_stderr(),
        };
        match run(&plan, &options)? {
            Outcome::Done => Ok(ExitCode::SUCCESS),
            Outcome::Failed(failure) => {
                eprintln!("error: {failure}");
                Ok(failure.exit_code().into())
            }
            Outcome::Interrupted { signal } => Ok(ExitCode::from(128 | u8::try_from(signal).unwrap_or(0))),
            Outcome::OutputClosed(error) => Err(error.into()),
        }
    }

    fn job(&self) -> anyhow::Result<Job> {
        let mut hostfile = match &self.hostfile {
            Some(path) => Hostfile::read(path)?,
            None => Hostfile::from_names(&self.hosts, self.ranks.into()).map_err(|why| anyhow!(why))?,
        };
        let backend = self.backend.or(hostfile.backend).unwrap_or(Backend::Ring);
        if backend != Backend::Mpi {
            resolve(&mut hostfile.hosts);
        }
        Ok(Job {
            hosts: hostfile.hosts,
            envs: hostfile.envs.into_iter().chain(self.env.iter().cloned()).collect(),
            starting_port: self.starting_port,
            connections_per_ip: self.connections_per_ip,
            nccl_port: self.nccl_port,
            stdin: self.stdin,
            prefix: !self.no_prefix,
            mpi_args: self
                .mpi_arg
                .iter()
                .flat_map(|words| words.split_whitespace())
                .map(str::to_owned)
                .collect(),
            ssh: self.ssh.clone(),
            ..Job::new(backend, self.python.iter().chain(&self.command), self.directory()?)
        })
    }

    fn directory(&self) -> anyhow::Result<Directory> {
        if let Some(folder) = &self.cwd {
            return Ok(Directory::Must(folder.clone()));
        }
        let here = std::env::current_dir().context("the current folder")?;
        let here = here.to_str().ok_or_else(|| anyhow!("{} is not UTF-8; give --cwd", here.display()))?;
        Ok(Directory::Try(here.into()))
    }
}
