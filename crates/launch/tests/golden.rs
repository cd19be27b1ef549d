//! What `--dry-run` prints for every backend, as files to read. `POMAR_UPDATE_GOLDEN=1` writes them anew.

use pomar_launch::{
    Backend, Description, Directory, Facts, Hostfile, Job, Plan,
    job::{Mpi, MpiFlavour},
};
use std::{fs, path::Path};

/// Three machines, fully cabled; the second has two cables to the third.
const HOSTFILE: &str = r#"{
    "backend": "jaccl",
    "envs": ["MLX_METAL_FAST_SYNCH=1", "GREETING=it's me"],
    "hosts": [
        {"ssh": "one", "ips": ["10.0.0.1"], "rdma": [null, "rdma_en2", "rdma_en3"]},
        {"ssh": "me@two", "ips": ["10.0.0.2"], "rdma": ["rdma_en2", null, ["rdma_en3", "rdma_en4"]]},
        {"ssh": "three", "ips": ["10.0.0.3"], "rdma": ["rdma_en2", ["rdma_en3", "rdma_en4"], null]}
    ]
}"#;

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("POMAR_UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name} differs; POMAR_UPDATE_GOLDEN=1 writes it anew");
}

fn hostfile() -> Hostfile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), HOSTFILE).unwrap();
    Hostfile::read(file.path()).unwrap()
}

fn job(backend: Backend) -> Job {
    let Hostfile { hosts, envs, .. } = hostfile();
    let directory = Directory::Try("/work/my models".into());
    Job { hosts, envs, ..Job::new(backend, ["python3", "train.py", "--name", "a b"], directory) }
}

#[test]
fn every_backend_over_ssh() {
    let mpi = Mpi { program: "mpirun".into(), flavour: MpiFlavour::OpenMpi, library: None };
    let facts = Facts { mpi: Some(mpi), processors: 8, ..Facts::default() };
    for backend in [Backend::Ring, Backend::Jaccl, Backend::Nccl, Backend::Pomar, Backend::Mpi] {
        let plan = Plan::new(&job(backend), &facts).unwrap();
        compare(&format!("{backend}.txt"), &format!("{}\n", Description::new(&plan, "ssh")));
    }
}

#[test]
fn a_ring_of_cables() {
    let mut job = job(Backend::JacclRing);
    // A ring has equally many cables everywhere.
    job.hosts[1].rdma[2] = pomar_launch::Devices::One("rdma_en3".into());
    job.hosts[2].rdma[1] = pomar_launch::Devices::One("rdma_en3".into());
    let plan = Plan::new(&job, &Facts::default()).unwrap();
    compare("jaccl-ring.txt", &format!("{}\n", Description::new(&plan, "ssh")));
}

#[test]
fn on_this_machine() {
    let mut job = Job::new(Backend::Pomar, ["./prog"], Directory::Must("/work".into()));
    job.hosts = Hostfile::from_names("127.0.0.1", 2).unwrap().hosts;
    let facts = Facts { free_ports: vec![4001, 4002], terminal: Some((110, 40)), ..Facts::default() };
    let plan = Plan::new(&job, &facts).unwrap();
    compare("here.txt", &format!("{}\n", Description::new(&plan, "ssh")));
    let json = serde_json::to_string_pretty(&Description::new(&plan, "ssh")).unwrap();
    assert!(json.contains("POMAR_KEY='<random>'"), "{json}");
}
