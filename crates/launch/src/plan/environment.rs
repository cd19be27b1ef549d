//! What each backend needs to find its ranks: variables, files, ports, and who connects to whom.
//!
//! The facts are MLX's (`mlx.launch` and the ring, JACCL and NCCL backends of releases 0.23 to 0.32): which variables
//! a rank reads, what its files hold, which rank listens where.

use super::{Endpoint, Hop, Listen, PlanError, Value};
use crate::{
    Backend, Devices, Host,
    job::{DEFAULT_PORT, Facts, Job},
};
use serde_json::json;
use std::collections::BTreeMap;

/// Most ranks in JACCL's mesh.
const MAX_MESH: usize = 8;
/// Most cables that JACCL's ring uses between neighbours.
const MAX_WIRES: usize = 4;
/// Largest group of pomar's own in which every pair is checked before the start.
const MAX_ALL_PAIRS: usize = 8;
const HOSTS_FILE: &str = "hosts.json";
const DEVICES_FILE: &str = "rdma.json";

/// A group of ranks, from outside.
#[derive(Default)]
pub(super) struct Group {
    rank_variable: &'static str,
    shared: Vec<(&'static str, Value)>,
    pub(super) files: BTreeMap<&'static str, String>,
    pub(super) listens: Vec<Listen>,
    pub(super) hops: Vec<Hop>,
}

impl Group {
    pub(super) fn new(job: &Job, facts: &Facts) -> Result<Self, PlanError> {
        match job.backend {
            Backend::Ring => Self::ring(job),
            Backend::Jaccl | Backend::JacclRing => Self::jaccl(job),
            Backend::Nccl => Self::nccl(job),
            Backend::Pomar => Self::pomar(job, facts),
            // mpirun tells its ranks itself.
            Backend::Mpi => Ok(Self::default()),
        }
    }

    /// The variables of one rank: defaults, over them the user's, over those the group's.
    pub(super) fn env_of(
        &self,
        rank: usize,
        job: &Job,
        facts: &Facts,
    ) -> Result<BTreeMap<String, Value>, PlanError> {
        let mut env = user_env(job, facts);
        if job.backend == Backend::Nccl {
            // One GPU for each rank of a machine, as mlx.launch deals them out.
            let before = job.hosts[..rank].iter().filter(|host| host.ssh == job.hosts[rank].ssh).count();
            env.entry("CUDA_VISIBLE_DEVICES".into()).or_insert(Value::Text(before.to_string()));
        }
        let number = (self.rank_variable, Value::Text(rank.to_string()));
        for (name, value) in self.shared.iter().cloned().chain([number]) {
            if env.insert(name.into(), value).is_some() {
                return Err(PlanError::OwnVariable { name: name.into(), backend: job.backend });
            }
        }
        Ok(env)
    }

    /// A rank accepts on its own endpoints and connects to those of the next rank, one by one.
    fn ring(job: &Job) -> Result<Self, PlanError> {
        let mut group = Self { rank_variable: "MLX_RANK", ..Self::default() };
        let ranks = job.hosts.len();
        if ranks == 1 {
            return Ok(group);
        }
        let endpoints = count_up(job, job.connections_per_ip)?;
        for (rank, host) in job.hosts.iter().enumerate() {
            refuse_ipv6(job.backend, rank, host)?;
            let (got, expected) = (host.ips.len(), job.hosts[0].ips.len());
            if got != expected {
                return Err(PlanError::UnevenAddresses { rank, host: host.ssh.clone(), got, expected });
            }
        }
        let next = |from| Hop {
            from,
            to: (from + 1) % ranks,
            at: endpoints[(from + 1) % ranks].clone(),
            any: false,
        };
        group.hops = (0..ranks).map(next).collect();
        group.files.insert(HOSTS_FILE, json!(endpoints).to_string());
        group.shared.push(("MLX_HOSTFILE", Value::File(HOSTS_FILE)));
        group.listen(endpoints);
        Ok(group)
    }

    /// All ranks exchange their queue pairs through rank 0; the data then takes the cables.
    fn jaccl(job: &Job) -> Result<Self, PlanError> {
        check_rdma(job)?;
        let mut group = Self { rank_variable: "MLX_RANK", ..Self::default() };
        let coordinator = first_endpoint(job, job.starting_port.unwrap_or(DEFAULT_PORT))?;
        group.shared.push(("MLX_JACCL_COORDINATOR", Value::Text(coordinator.to_string())));
        group.shared.push(("MLX_IBV_DEVICES", Value::File(DEVICES_FILE)));
        if job.backend == Backend::JacclRing {
            group.shared.push(("MLX_JACCL_RING", Value::Text("1".into())));
        }
        group.files.insert(DEVICES_FILE, matrix(job));
        group.meet_at(coordinator, job.hosts.len());
        Ok(group)
    }

    fn nccl(job: &Job) -> Result<Self, PlanError> {
        let mut group = Self { rank_variable: "MLX_RANK", ..Self::default() };
        let first = first_endpoint(job, job.nccl_port)?;
        group.shared.push(("MLX_WORLD_SIZE", Value::Text(job.hosts.len().to_string())));
        group.shared.push(("NCCL_HOST_IP", Value::Text(first.address.to_string())));
        group.shared.push(("NCCL_PORT", Value::Text(first.port.to_string())));
        group.meet_at(first, job.hosts.len());
        Ok(group)
    }

    /// Every rank knows all addresses of all ranks, and which pairs have cables.
    fn pomar(job: &Job, facts: &Facts) -> Result<Self, PlanError> {
        let mut group = Self { rank_variable: "POMAR_RANK", ..Self::default() };
        let here = job.hosts.iter().all(Host::is_this_machine);
        let mut endpoints = count_up(job, 1)?;
        if here && job.starting_port.is_none() && facts.free_ports.len() == endpoints.len() {
            endpoints.iter_mut().zip(&facts.free_ports).for_each(|(at, port)| at[0].port = *port);
        }
        group.shared.push(("POMAR_SIZE", Value::Text(job.hosts.len().to_string())));
        group.shared.push(("POMAR_TRANSPORT", Value::Text("auto".into())));
        group.shared.push(("POMAR_ADDRESSES", Value::Text(json!(endpoints).to_string())));
        group.shared.push(("POMAR_KEY", Value::Key));
        if job.hosts.iter().any(|host| !host.rdma.is_empty()) {
            check_rdma_shape(job)?;
            group.files.insert(DEVICES_FILE, matrix(job));
            group.shared.push(("POMAR_RDMA_DEVICES", Value::File(DEVICES_FILE)));
        }
        let hop = |(from, to): (usize, usize)| Hop { from, to, at: endpoints[to].clone(), any: true };
        group.hops = pairs_to_check(job.hosts.len()).map(hop).collect();
        group.listen(endpoints);
        Ok(group)
    }

    fn listen(&mut self, endpoints: Vec<Vec<Endpoint>>) {
        let of_rank = |(rank, at): (usize, Vec<Endpoint>)| at.into_iter().map(move |at| Listen { rank, at });
        self.listens = endpoints.into_iter().enumerate().flat_map(of_rank).collect();
    }

    /// All ranks connect to rank 0.
    fn meet_at(&mut self, at: Endpoint, ranks: usize) {
        self.hops = (1..ranks).map(|from| Hop { from, to: 0, at: vec![at.clone()], any: false }).collect();
        self.listens.push(Listen { rank: 0, at });
    }
}

/// All pairs in a group that people cable by hand; in a bigger one each rank and the next, to keep the questions few.
fn pairs_to_check(ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    let reach = if ranks <= MAX_ALL_PAIRS { 1..ranks } else { 1..2 };
    (0..ranks).flat_map(move |from| reach.clone().map(move |step| (from, (from + step) % ranks)))
}

/// The user's variables, and the size of the terminal for programs that print tables.
pub(super) fn user_env(job: &Job, facts: &Facts) -> BTreeMap<String, Value> {
    let terminal = facts.terminal.into_iter().flat_map(|(columns, lines)| {
        [
            ("COLUMNS".into(), Value::Text(columns.to_string())),
            ("LINES".into(), Value::Text(lines.to_string())),
        ]
    });
    let user = job.envs.iter().map(|env| (env.name().to_owned(), Value::Text(env.value().into())));
    terminal.chain(user).collect()
}

/// Ports for all ranks: counted up over rank, address and connection.
fn count_up(job: &Job, connections: u16) -> Result<Vec<Vec<Endpoint>>, PlanError> {
    check_addresses(job)?;
    let first = job.starting_port.unwrap_or(DEFAULT_PORT);
    let needed = job.hosts.iter().map(|host| host.ips.len()).sum::<usize>() * usize::from(connections);
    if usize::from(first) + needed > usize::from(u16::MAX) + 1 {
        return Err(PlanError::Ports { needed, first });
    }
    let mut ports = first..=u16::MAX;
    let of_host = |host: &Host| {
        let repeated = host.ips.iter().flat_map(|ip| std::iter::repeat_n(ip, connections.into()));
        repeated.zip(ports.by_ref()).map(|(ip, port)| Endpoint { address: ip.clone(), port }).collect()
    };
    Ok(job.hosts.iter().map(of_host).collect())
}

/// Every rank has an address, and either all of them or none are on loopback.
fn check_addresses(job: &Job) -> Result<(), PlanError> {
    for (rank, host) in job.hosts.iter().enumerate() {
        need_address(job, rank, host)?;
    }
    let loopback = |host: &Host| host.ips.iter().find(|ip| ip.is_loopback()).cloned();
    let outside = job.hosts.iter().any(|host| loopback(host).is_none());
    let inside = job.hosts.iter().enumerate().find_map(|(rank, host)| Some((rank, host, loopback(host)?)));
    match inside {
        Some((rank, host, address)) if outside => {
            Err(PlanError::Loopback { rank, host: host.ssh.clone(), address })
        }
        _ => Ok(()),
    }
}

fn need_address(job: &Job, rank: usize, host: &Host) -> Result<(), PlanError> {
    if host.ips.is_empty() {
        return Err(PlanError::NoAddress { backend: job.backend, host: host.ssh.clone(), rank });
    }
    Ok(())
}

/// Where all ranks meet rank 0.
fn first_endpoint(job: &Job, port: u16) -> Result<Endpoint, PlanError> {
    let host = &job.hosts[0];
    need_address(job, 0, host)?;
    refuse_ipv6(job.backend, 0, host)?;
    let address = host.ips[0].clone();
    if address.is_loopback() && job.hosts.iter().any(|other| other.ips.iter().any(|ip| !ip.is_loopback())) {
        return Err(PlanError::Loopback { rank: 0, host: host.ssh.clone(), address });
    }
    Ok(Endpoint { address, port })
}

/// MLX splits `address:port` at the first colon.
fn refuse_ipv6(backend: Backend, rank: usize, host: &Host) -> Result<(), PlanError> {
    match host.ips.iter().find(|ip| ip.is_ipv6()) {
        None => Ok(()),
        Some(address) => {
            let (host, address) = (host.ssh.clone(), address.clone());
            Err(PlanError::Ipv6 { backend, rank, host, address })
        }
    }
}

/// The devices of all ranks in JACCL's form: row i, column j leads from rank i to rank j.
fn matrix(job: &Job) -> String {
    json!(job.hosts.iter().map(|host| &host.rdma).collect::<Vec<_>>()).to_string()
}

/// A square matrix with nothing on its diagonal.
fn check_rdma_shape(job: &Job) -> Result<(), PlanError> {
    let expected = job.hosts.len();
    for (rank, host) in job.hosts.iter().enumerate() {
        let name = || host.ssh.clone();
        let got = host.rdma.len();
        if got != expected {
            return Err(PlanError::RdmaCount { rank, host: name(), got, expected });
        }
        if host.rdma[rank] != Devices::None {
            return Err(PlanError::RdmaSelf { rank, host: name() });
        }
    }
    Ok(())
}

/// Every pair that the backend uses has a cable; a ring has equally many between all neighbours.
fn check_rdma(job: &Job) -> Result<(), PlanError> {
    check_rdma_shape(job)?;
    let ranks = job.hosts.len();
    let ring = job.backend == Backend::JacclRing;
    if !ring && ranks > MAX_MESH {
        return Err(PlanError::MeshSize { ranks });
    }
    let neighbours = |a: usize, b: usize| (a + 1) % ranks == b || (b + 1) % ranks == a;
    let all = (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b)));
    let used: Vec<_> = all.filter(|&(a, b)| a != b && (!ring || neighbours(a, b))).collect();
    let wires = |&(a, b): &(usize, usize)| job.hosts[a].rdma[b].wires();
    let missing: Vec<_> = used.iter().filter(|pair| wires(pair) == 0).collect();
    if !missing.is_empty() {
        let needs =
            if ring { "one between neighbours, both ways" } else { "one between all pairs, both ways" };
        return Err(PlanError::RdmaMissing { pairs: name_pairs(job, &missing), backend: job.backend, needs });
    }
    let expected = used.first().map_or(1, wires);
    let odd = used.iter().find(|pair| wires(pair) != expected || wires(pair) > MAX_WIRES);
    match odd.filter(|_| ring) {
        None => Ok(()),
        Some(pair) => {
            let (rank, host) = (pair.0, job.hosts[pair.0].ssh.clone());
            Err(PlanError::RdmaWires { rank, host, got: wires(pair), expected })
        }
    }
}

/// The first three of them by name, and how many more.
fn name_pairs(job: &Job, pairs: &[&(usize, usize)]) -> String {
    let name = |rank: usize| format!("{} (rank {rank})", job.hosts[rank].ssh);
    let named: Vec<_> = pairs.iter().take(3).map(|(a, b)| format!("{} to {}", name(*a), name(*b))).collect();
    let more = pairs.len() - named.len();
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
