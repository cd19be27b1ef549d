//! Plans of every backend, and jobs that have none.

use super::{Hop, Plan, Value};
use crate::{
    Backend, Devices, Directory, Facts, Host, Hostfile, Job, StdinTo,
    job::{Mpi, MpiFlavour},
};

fn job(backend: Backend, names: &str) -> Job {
    let hosts = Hostfile::from_names(names, 1).unwrap().hosts;
    Job { hosts, ..Job::new(backend, ["prog", "arg"], Directory::Try("/work".into())) }
}

fn plan(job: &Job) -> Plan {
    Plan::new(job, &facts()).unwrap()
}

fn refused(job: &Job, parts: &[&str]) {
    let error = Plan::new(job, &facts()).unwrap_err().to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{error}\n{parts:?}");
}

fn facts() -> Facts {
    let mpi = Mpi { program: "mpirun".into(), flavour: MpiFlavour::OpenMpi, library: None };
    Facts { free_ports: vec![4001, 4002, 4003], mpi: Some(mpi), processors: 2, ..Facts::default() }
}

/// Three hosts with a cable between every two.
fn cabled(backend: Backend) -> Job {
    let mut job = job(backend, "10.0.0.1,10.0.0.2,10.0.0.3");
    for (rank, host) in job.hosts.iter_mut().enumerate() {
        let device = |to| if to == rank { Devices::None } else { Devices::One(format!("rdma_en{to}")) };
        host.rdma = (0..3).map(device).collect();
    }
    job
}

fn ends(hops: &[Hop]) -> Vec<(usize, usize)> {
    hops.iter().map(|hop| (hop.from, hop.to)).collect()
}

#[test]
fn ports_are_counted_over_ranks_addresses_and_connections() {
    let mut job = job(Backend::Ring, "10.0.0.1,10.0.0.2,10.0.0.3");
    for (rank, host) in job.hosts.iter_mut().enumerate() {
        host.ips.push(format!("10.1.0.{rank}").parse().unwrap());
    }
    job.connections_per_ip = 2;
    let plan = plan(&job);
    let first =
        r#"[["10.0.0.1:32323","10.0.0.1:32324","10.1.0.0:32325","10.1.0.0:32326"],["10.0.0.2:32327","#;
    assert!(plan.hosts[2].files["hosts.json"].starts_with(first), "{:?}", plan.hosts[2]);
    assert_eq!((plan.listens.len(), plan.listens[11].at.to_string()), (12, "10.1.0.2:32334".into()));
    assert_eq!(ends(&plan.hops), [(0, 1), (1, 2), (2, 0)]);
    assert_eq!((plan.hops[0].at.len(), plan.hops[0].any), (4, false));
}

#[test]
fn ranks_of_one_host_share_it_and_need_no_hop() {
    let plan = plan(&job(Backend::Ring, "10.0.0.1,10.0.0.1,10.0.0.2"));
    assert_eq!(plan.hosts.len(), 2);
    assert_eq!(plan.processes.iter().map(|process| process.host).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(ends(&plan.hops), [(1, 2), (2, 0)]);
}

#[test]
fn one_rank_needs_no_ring() {
    let plan = plan(&job(Backend::Ring, "127.0.0.1"));
    assert_eq!(plan.processes[0].env.len(), 1);
    assert!(plan.hosts[0].files.is_empty() && plan.listens.is_empty());
    assert!(plan.processes[0].unset.contains(&"MLX_HOSTFILE"));
}

#[test]
fn own_groups_take_ipv6_and_free_ports_at_home() {
    let there = plan(&job(Backend::Pomar, "fd00::1,10.0.0.2"));
    let addresses = Value::Text(r#"[["[fd00::1]:32323"],["10.0.0.2:32324"]]"#.into());
    assert_eq!(there.processes[0].env["POMAR_ADDRESSES"], addresses);
    assert!(there.hops[0].any);
    let here = plan(&job(Backend::Pomar, "127.0.0.1,127.0.0.1,127.0.0.1"));
    assert_eq!(here.listens[2].at.port, 4003);
    let mut counted = job(Backend::Pomar, "127.0.0.1,127.0.0.1,127.0.0.1");
    counted.starting_port = Some(700);
    assert_eq!(plan(&counted).listens[2].at.port, 702);
    let cabled = plan(&cabled(Backend::Pomar));
    assert_eq!(cabled.processes[1].env["POMAR_RDMA_DEVICES"], Value::File("rdma.json"));
    assert_eq!(cabled.hops.len(), 6);
}

#[test]
fn users_variables_are_set_but_not_over_the_groups() {
    let mut job = job(Backend::Nccl, "10.0.0.1,10.0.0.1");
    job.envs = ["A=1", "A=2"].map(|env| env.parse().unwrap()).into();
    let made = plan(&job);
    assert_eq!(made.processes[0].env["A"], Value::Text("2".into()));
    assert_eq!(made.processes[1].env["CUDA_VISIBLE_DEVICES"], Value::Text("1".into()));
    job.envs = vec!["CUDA_VISIBLE_DEVICES=5".parse().unwrap()];
    assert_eq!(plan(&job).processes[1].env["CUDA_VISIBLE_DEVICES"], Value::Text("5".into()));
    job.envs = vec!["MLX_RANK=5".parse().unwrap()];
    refused(&job, &["MLX_RANK cannot be set", "nccl"]);
}

#[test]
fn what_cannot_work_is_refused() {
    refused(&Job { command: Vec::new(), ..job(Backend::Ring, "a") }, &["no program"]);
    refused(&Job { hosts: Vec::new(), ..job(Backend::Ring, "a") }, &["no hosts"]);
    refused(&Job { stdin: StdinTo::Rank(1), ..job(Backend::Ring, "10.0.0.1") }, &["--stdin 1", "0 to 0"]);
    refused(&job(Backend::Ring, "10.0.0.1,b"), &["needs an address of b (rank 1)", "hostfile"]);
    refused(&job(Backend::Ring, "10.0.0.1,fd00::2"), &["rank 1 on fd00::2", "IPv4 only", "--backend pomar"]);
    refused(&job(Backend::Ring, "127.0.0.1,10.0.0.2"), &["rank 0 on 127.0.0.1", "cannot reach"]);
    refused(&job(Backend::Nccl, "127.0.0.1,10.0.0.2"), &["rank 0 on 127.0.0.1", "cannot reach"]);
    let late = Job { starting_port: Some(65534), ..job(Backend::Ring, "10.0.0.1,10.0.0.2,10.0.0.3") };
    refused(&late, &["3 ports from 65534"]);
    assert!(Plan::new(&Job { starting_port: Some(65533), ..late }, &facts()).is_ok());
    let mut uneven = job(Backend::Ring, "10.0.0.1,10.0.0.2");
    uneven.hosts[1].ips.push("10.1.0.2".parse().unwrap());
    refused(&uneven, &["rank 1 on 10.0.0.2 has 2 addresses and rank 0 has 1"]);
}

#[test]
fn a_matrix_of_cables_must_be_whole() {
    let with = |backend, change: fn(&mut [Host])| {
        let mut job = cabled(backend);
        change(&mut job.hosts);
        job
    };
    let short = with(Backend::Jaccl, |hosts| hosts[1].rdma.truncate(2));
    refused(&short, &["hosts[1].rdma (10.0.0.2) has 2 entries and must have 3"]);
    let own = with(Backend::Pomar, |hosts| hosts[2].rdma[2] = Devices::One("x".into()));
    refused(&own, &["hosts[2].rdma[2] (10.0.0.3) must be null"]);
    let missing = with(Backend::Jaccl, |hosts| hosts[0].rdma[2] = Devices::None);
    refused(&missing, &["from 10.0.0.1 (rank 0) to 10.0.0.3 (rank 2)", "between all pairs"]);
    let none = with(Backend::JacclRing, |hosts| {
        hosts.iter_mut().for_each(|host| host.rdma = vec![Devices::None; 3])
    });
    refused(&none, &["and 3 more", "between neighbours"]);
    let two =
        with(Backend::JacclRing, |hosts| hosts[1].rdma[2] = Devices::Many(vec!["x".into(), "y".into()]));
    refused(&two, &["rank 1 on 10.0.0.2 has 2 RDMA devices to a neighbour where others have 1"]);
    // pomar finds its own way round a cable that is missing.
    plan(&with(Backend::Pomar, |hosts| hosts[0].rdma[2] = Devices::None));
    let nine = "1,2,3,4,5,6,7,8,9".split(',').map(|i| format!("10.0.0.{i}")).collect::<Vec<_>>().join(",");
    let mut nine = job(Backend::Jaccl, &nine);
    nine.hosts.iter_mut().for_each(|host| host.rdma = vec![Devices::None; 9]);
    refused(&nine, &["at most 8", "there are 9"]);
}

#[test]
fn mpirun_is_one_process_with_options_where_needed() {
    let facts = |flavour, root| {
        let mpi = Mpi { program: "mpirun".into(), flavour, library: Some("libmpi.so.40".into()) };
        Facts { mpi: Some(mpi), root, processors: 2, ..Facts::default() }
    };
    let command = |job: &Job, facts: &Facts| Plan::new(job, facts).unwrap().processes[0].command.join(" ");
    let mut job = job(Backend::Mpi, "127.0.0.1,127.0.0.1,127.0.0.1");
    job.envs = vec!["A=secret".parse().unwrap()];
    let words = command(&job, &facts(MpiFlavour::OpenMpi, true));
    assert_eq!(
        words,
        "mpirun --allow-run-as-root --oversubscribe --tag-output --stdin 0 -x A -x MLX_MPI_LIBNAME \
         --host localhost:3 -n 3 prog arg"
    );
    job.hosts = Hostfile::from_names("a,me@b", 2).unwrap().hosts;
    job.prefix = false;
    job.stdin = StdinTo::None;
    job.ssh = "/bin/my-ssh".into();
    job.mpi_args = vec!["--bind-to".into(), "none".into()];
    job.directory = Directory::Must("/data".into());
    let words = command(&job, &facts(MpiFlavour::OpenMpi, false));
    assert_eq!(
        words,
        "mpirun --mca plm_rsh_agent /bin/my-ssh --stdin none -x A -x MLX_MPI_LIBNAME --host a:2,me@b:2 -n 4 \
         -wdir /data --bind-to none prog arg"
    );
    let words = command(&job, &facts(MpiFlavour::Mpich, true));
    assert_eq!(
        words,
        "mpirun -launcher ssh -launcher-exec /bin/my-ssh -hosts a:2,me@b:2 -n 4 -wdir /data --bind-to none prog arg"
    );
    job.stdin = StdinTo::Rank(1);
    let error = Plan::new(&job, &facts(MpiFlavour::Mpich, true)).unwrap_err().to_string();
    assert!(error.contains("rank 0 only"), "{error}");
    job.hosts = Hostfile::from_names("fd00::1", 1).unwrap().hosts;
    job.stdin = StdinTo::All;
    let error = Plan::new(&job, &facts(MpiFlavour::OpenMpi, true)).unwrap_err().to_string();
    assert!(error.contains("IPv6 address fd00::1"), "{error}");
}
