//! Which of MLX's backends the cables allow, and in which order the ranks go.

use crate::{
    Cabling, Host,
    check::listed,
    graph::{Graph, MAX_WIRES},
    rdma::{self, HostObstacle},
};
use std::{fmt, str::FromStr};

/// The most ranks of a JACCL mesh.
pub const MAX_MESH_RANKS: usize = 8;

/// A way for MLX's ranks to talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// RDMA, each host joined to each.
    Jaccl,
    /// RDMA round a ring.
    JacclRing,
    /// TCP round a ring.
    Ring,
}

impl Backend {
    /// The name that `mlx.launch` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jaccl => "jaccl",
            Self::JacclRing => "jaccl-ring",
            Self::Ring => "ring",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no backend; write jaccl, jaccl-ring or ring")]
pub struct UnknownBackend(String);

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let all = [Self::Jaccl, Self::JacclRing, Self::Ring];
        all.into_iter().find(|backend| backend.name() == name).ok_or_else(|| UnknownBackend(name.into()))
    }
}

/// A backend that works with the cables as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The backend.
    pub backend: Backend,
    /// Hosts by rank.
    pub order: Vec<usize>,
    /// Cables that each two neighbours of a ring use; of a mesh, the fewest between two hosts.
    pub wires: usize,
}

/// All cables, and those that carry RDMA, as graphs over the hosts.
#[derive(Clone, Debug)]
pub struct Reach {
    /// All cables.
    pub any: Graph,
    /// Those that carry RDMA.
    pub rdma: Graph,
}

impl Reach {
    /// The graphs of a cabling.
    pub fn of(hosts: &[Host], cabling: &Cabling) -> Self {
        Self {
            any: Graph::new(hosts.len(), cabling.cables.iter().map(|cable| cable.hosts())),
            rdma: Graph::new(hosts.len(), rdma::rdma_pairs(hosts, cabling)),
        }
    }

    /// The wanted backend, or else the fastest that works.
    ///
    /// # Errors
    ///
    /// Why the wanted one does not work, or that none does, naming the pairs that lack a cable.
    pub fn choose(&self, hosts: &[Host], wanted: Option<Backend>) -> Result<Choice, String> {
        match wanted {
            Some(backend) => self.works(backend).ok_or_else(|| self.why_not(hosts, backend)),
            None => [Backend::Jaccl, Backend::JacclRing, Backend::Ring]
                .into_iter()
                .find_map(|backend| self.works(backend))
                .ok_or_else(|| format!("no backend works: {}", self.why_not(hosts, Backend::Ring))),
        }
    }

    /// Pairs of Macs without a cable, in order; what leads to other machines is not known.
    pub fn missing(&self, hosts: &[Host]) -> Vec<(usize, usize)> {
        let mut missing = self.any.missing();
        missing.retain(|&(a, b)| hosts[a].is_mac() && hosts[b].is_mac());
        missing
    }

    fn works(&self, backend: Backend) -> Option<Choice> {
        let hosts = self.any.size();
        if backend == Backend::Jaccl {
            let pairs = (0..hosts).flat_map(|a| (a + 1..hosts).map(move |b| (a, b)));
            let wires = pairs.map(|(a, b)| self.rdma.wires(a, b)).min().unwrap_or(0).min(MAX_WIRES);
            let fits = self.rdma.is_mesh() && hosts <= MAX_MESH_RANKS;
            return fits.then(|| Choice { backend, order: (0..hosts).collect(), wires });
        }
        let graph = if backend == Backend::Ring { &self.any } else { &self.rdma };
        graph.ring().map(|ring| Choice { backend, order: ring.order, wires: ring.wires })
    }

    fn why_not(&self, hosts: &[Host], backend: Backend) -> String {
        if let Some(host) = hosts.iter().find(|host| !host.is_mac()) {
            return format!("{backend} needs cables, and which ones lead to {} is not known", host.name);
        }
        let graph = if backend == Backend::Ring { &self.any } else { &self.rdma };
        let (shape, missing) = match backend {
            Backend::Jaccl => ("between every two hosts", graph.missing()),
            Backend::JacclRing | Backend::Ring => ("round a ring of all hosts", graph.nearest_ring().1),
        };
        if missing.is_empty() {
            return match hosts.len() {
                0 | 1 => format!("{backend} needs at least two hosts"),
                _ => format!("{backend} takes at most {MAX_MESH_RANKS} hosts"),
            };
        }
        let pairs: Vec<_> = missing.iter().map(|&pair| self.why_pair(hosts, pair)).collect();
        format!("{backend} needs a cable {shape}; {}", listed(&pairs))
    }

    fn why_pair(&self, hosts: &[Host], (a, b): (usize, usize)) -> String {
        let pair = format!("{} - {}", hosts[a].name, hosts[b].name);
        if self.any.wires(a, b) == 0 {
            return format!("{pair} has none");
        }
        match [a, b].into_iter().find(|&host| HostObstacle::of(&hosts[host]).is_some()) {
            Some(host) => format!("{pair} has one, but {} cannot do RDMA", hosts[host].name),
            None => format!("{pair} has one that carries no RDMA"),
        }
    }
}
