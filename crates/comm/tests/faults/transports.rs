//! The transports, how the ranks of each are started, and what each promises.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU16, Ordering::Relaxed},
    time::Duration,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Shm,
    Tcp,
    Ring,
    /// Reliable queue pairs, over one cable.
    RdmaRc,
    /// Unreliable queue pairs, over two cables.
    RdmaUc,
    /// TCP or RDMA, whichever is quicker for a pair.
    Auto,
    Mpi,
}

pub(crate) const ALL: [Transport; 7] = {
    use Transport::*;
    [Shm, Tcp, Ring, RdmaRc, RdmaUc, Auto, Mpi]
};

/// Who is told that a rank is dead, and by whose name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Every rank names the dead one.
    All,
    /// Its neighbours name it. The others name the neighbour of their own that ended for its sake.
    Neighbours,
    /// The launcher ends the job. A rank that can still say something names the dead one.
    Launcher,
}

/// When a stopped rank is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// By its heartbeats, within two seconds.
    Soon,
    /// At the deadline of the call that waits for it.
    AtTheDeadline,
}

/// What a transport promises when things go wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    pub(crate) killed: Told,
    pub(crate) stopped: Missed,
    /// An abort's reason reaches all ranks.
    pub(crate) reason: bool,
    /// A rank that makes another call is named, with both calls. Else nobody waits beyond the deadline.
    pub(crate) differing: bool,
    /// How long a process may go on after its rank's last words.
    pub(crate) lingers: Duration,
}

impl Transport {
    /// The table that the README shows.
    pub(crate) fn promises(self) -> Promises {
        use {Missed::*, Told::*};
        match self {
            Self::Ring => Promises {
                killed: Neighbours,
                stopped: AtTheDeadline,
                reason: false,
                differing: false,
                lingers: Duration::ZERO,
            },
            Self::Mpi => Promises {
                killed: Launcher,
                stopped: Soon,
                reason: true,
                differing: true,
                // MPI may wait for the others at its end, which the transport allows it for two seconds; and the launcher takes
                // its time to end the ranks of a job.
                lingers: Duration::from_secs(3),
            },
            _ => Promises {
                killed: All,
                stopped: Soon,
                reason: true,
                differing: true,
                lingers: Duration::ZERO,
            },
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Ring => "ring",
            Self::RdmaRc => "rdma-rc",
            Self::RdmaUc => "rdma-uc",
            Self::Auto => "auto",
            Self::Mpi => "mpi",
        }
    }

    pub(crate) fn has_verbs(self) -> bool {
        matches!(self, Self::RdmaRc | Self::RdmaUc | Self::Auto)
    }

    /// Most files that one rank leaves in the fake verbs' folder when it is killed: a socket per queue pair.
    pub(crate) fn sockets(self, ranks: usize) -> usize {
        match self {
            Self::RdmaUc => 2 * (ranks - 1),
            Self::RdmaRc | Self::Auto => ranks - 1,
            _ => 0,
        }
    }

    /// The environment that describes a group to all of its ranks. What needs a file has it in `folder`.
    pub(crate) fn environment(self, ranks: usize, folder: &Path) -> Vec<(&'static str, OsString)> {
        let mut all: Vec<(&str, OsString)> = vec![("POMAR_SIZE", ranks.to_string().into())];
        let transport = match self {
            Self::RdmaRc | Self::RdmaUc => "rdma",
            other => other.name(),
        };
        all.push(("POMAR_TRANSPORT", transport.into()));
        match self {
            Self::Shm | Self::Mpi => {}
            Self::Ring => {
                let file = folder.join("hosts.json");
                fs::write(&file, json(&addresses(ranks))).unwrap();
                all.push(("MLX_HOSTFILE", file.into()));
            }
            Self::Tcp | Self::RdmaRc | Self::RdmaUc | Self::Auto => {
                all.push(("POMAR_ADDRESSES", json(&addresses(ranks)).into()));
                all.push(("POMAR_KEY", "5a".repeat(32).into()));
            }
        }
        if self.has_verbs() {
            all.extend(fake_verbs(folder));
        }
        if self == Self::RdmaUc {
            let file = folder.join("devices.json");
            fs::write(&file, json(&vec![vec![["fake0", "fake1"]; ranks]; ranks])).unwrap();
            all.push(("POMAR_RDMA_DEVICES", file.into()));
            all.push(("POMAR_RDMA_QUEUE_PAIRS", "uc".into()));
        } else if self.has_verbs() {
            all.push(("POMAR_FAKE_VERBS", r#"{"devices": [{"name": "fake0"}]}"#.into()));
        }
        all
    }

    /// The command that starts all ranks, where a launcher does: `program` with `words`, whose output goes to a file per
    /// rank in `outputs`.
    pub(crate) fn launcher(self, ranks: usize, outputs: &Path) -> Option<Command> {
        if self != Self::Mpi {
            return None;
        }
        let mut command = Command::new("mpirun.openmpi");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("POMAR_FAULT_OUTPUTS", outputs);
        command.args(["--oversubscribe", "-n", &ranks.to_string(), "sh", "-c"]);
        command.arg(r#"exec "$0" "$@" >>"$POMAR_FAULT_OUTPUTS/$OMPI_COMM_WORLD_RANK" 2>&1"#);
        Some(command)
    }
}

/// The fake verbs library and a folder for it.
pub(crate) fn fake_verbs(folder: &Path) -> Vec<(&'static str, OsString)> {
    let sockets = sockets_folder(folder);
    fs::create_dir_all(&sockets).unwrap();
    let library = pomar_fake_verbs::library_path().unwrap_or_else(|error| panic!("{error}"));
    vec![("POMAR_VERBS_LIBRARY", library.into()), ("POMAR_FAKE_VERBS_DIR", sockets.into())]
}

pub(crate) fn sockets_folder(folder: &Path) -> PathBuf {
    folder.join("v")
}

/// An address per rank that no other program uses: every process has a loopback address of its own.
pub(crate) fn addresses(ranks: usize) -> Vec<Vec<SocketAddr>> {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
    let id = process::id();
    // Test programs of one process number don't run at the same time.
    let host = Ipv4Addr::new(127, 128 | (id >> 16 & 63) as u8, (id >> 8) as u8, id as u8);
    // Below the ports that the system gives to connections.
    let port = || 12_000 + NEXT_PORT.fetch_add(1, Relaxed) % 20_000;
    (0..ranks).map(|_| vec![SocketAddr::new(IpAddr::V4(host), port())]).collect()
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}
