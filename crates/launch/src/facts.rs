//! What this machine is like, and what names resolve to.

use crate::{
    Address, Backend, Host, Job,
    job::{Facts, Mpi, MpiFlavour},
};
use std::{
    io,
    net::{IpAddr, TcpListener, ToSocketAddrs},
    path::Path,
    process::{Command, Output},
    thread,
};

/// The program cannot be used as an mpirun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FactsError {
    /// There is no such program.
    #[error(
        "cannot start '{program}' ({error})\n\
         hint: install one (Debian: apt install openmpi-bin; macOS: brew install open-mpi) or name it with --mpirun"
    )]
    NoMpirun {
        /// What was tried.
        program: String,
        /// The system's answer.
        error: io::Error,
    },
    /// It is nobody's whose options are known.
    #[error(
        "'{program} --version' names neither Open MPI nor MPICH but says: {answer}\n\
         hint: name another with --mpirun"
    )]
    UnknownMpirun {
        /// What was asked.
        program: String,
        /// The first line of the answer.
        answer: String,
    },
    /// The system has no port to give.
    #[error("no free port on 127.0.0.1: {0}")]
    Ports(io::Error),
}

impl Facts {
    /// Finds out what a plan for the job must know: processors, the terminal, free ports, `mpirun`'s make.
    ///
    /// # Errors
    /// [`FactsError`].
    pub fn gather(job: &Job, mpirun: &str) -> Result<Self, FactsError> {
        let wants_ports = job.backend == Backend::Pomar && job.starting_port.is_none();
        Ok(Self {
            free_ports: if wants_ports {
                free_ports(job.hosts.len()).map_err(FactsError::Ports)?
            } else {
                Vec::new()
            },
            mpi: (job.backend == Backend::Mpi).then(|| find_mpi(mpirun)).transpose()?,
            root: rustix::process::geteuid().is_root(),
            processors: thread::available_parallelism().map_or(1, usize::from),
            terminal: rustix::termios::tcgetwinsize(io::stdout())
                .ok()
                .filter(|size| size.ws_col > 0)
                .map(|size| (size.ws_col, size.ws_row)),
        })
    }
}

/// Looks up the hosts that have no address. A name that does not resolve here keeps none: it may be known to ssh only.
pub fn resolve(hosts: &mut [Host]) {
    for host in hosts.iter_mut().filter(|host| host.ips.is_empty()) {
        let name = host.ssh.rsplit_once('@').map_or(host.ssh.as_str(), |(_, name)| name);
        let here = host.is_this_machine();
        let found = (name, 0).to_socket_addrs().into_iter().flatten().map(|found| found.ip());
        // A machine's own name often means 127.0.1.1, which the others cannot reach.
        let mut usable: Vec<IpAddr> = found.filter(|ip| here || !ip.is_loopback()).collect();
        usable.sort_by_key(IpAddr::is_ipv6);
        host.ips = usable.first().map(|ip| Address::from(*ip)).into_iter().collect();
    }
}

/// Ports that were free a moment ago, all different.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<io::Result<_>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

fn find_mpi(program: &str) -> Result<Mpi, FactsError> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|error| FactsError::NoMpirun { program: program.into(), error })?;
    let text = text_of(&output);
    let flavour = MpiFlavour::from_version(&text).ok_or_else(|| FactsError::UnknownMpirun {
        program: program.into(),
        answer: text.lines().next().unwrap_or("nothing").chars().take(200).collect(),
    })?;
    let library = (flavour == MpiFlavour::OpenMpi).then(|| library_of(program)).flatten();
    Ok(Mpi { program: program.into(), flavour, library })
}

/// The library's file name as the system spells it: distributions have `libmpi.so.40` without the `libmpi.so` that MLX
/// looks for. Open MPI's own `ompi_info` is linked with it.
fn library_of(mpirun: &str) -> Option<String> {
    let beside = Path::new(mpirun).parent().filter(|folder| !folder.as_os_str().is_empty());
    let info = beside.map_or("ompi_info".into(), |folder| folder.join("ompi_info"));
    let found = Command::new("sh").args(["-c", "command -v \"$0\""]).arg(info).output().ok()?;
    let found = String::from_utf8(found.stdout).ok()?;
    let lister: &[&str] = if cfg!(target_os = "macos") { &["otool", "-L"] } else { &["ldd"] };
    let listed = Command::new(lister[0]).args(&lister[1..]).arg(found.trim_end()).output().ok()?;
    let listed = text_of(&listed);
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    let mut names = names.map(|path| path.rsplit('/').next().unwrap_or(path));
    names.find(|name| name.starts_with("libmpi.")).map(str::to_owned)
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
