//! Ranks behind a real sshd on a loopback port.

use crate::common::{
    Place, Running, assert_contains, failure, free_ports, gone, kill_all, lines, need, wait_for,
};
use std::{
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

const INSTALL: &str = "apt-get install openssh-server openssh-client";

struct Sshd {
    place: Place,
    server: Child,
    ssh: String,
}

impl Sshd {
    fn start() -> Self {
        let (place, sshd, port) = (Place::new(), need("sshd", INSTALL), free_ports(1));
        for key in ["host-key", "user-key"] {
            let mut keygen = Command::new(need("ssh-keygen", INSTALL));
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(place.path(key));
            assert!(keygen.status().unwrap().success());
        }
        let file = |name: &str| place.path(name).to_str().unwrap().to_owned();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n",
            file("host-key"),
            file("user-key.pub")
        );
        place.write("sshd_config", &config);
        // The privilege separation of a system's sshd needs this folder, which its service makes; only root can.
        let _ = std::fs::create_dir_all("/run/sshd");
        let server = Command::new(sshd)
            .args(["-D", "-e", "-f", &file("sshd_config")])
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(place.path("sshd.log")).unwrap())
            .spawn()
            .unwrap();
        let client = format!(
            "Host *\n HostName 127.0.0.1\n Port {port}\n IdentityFile {}\n IdentitiesOnly yes\n\
             \n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n",
            file("user-key")
        );
        let client = place.write("ssh_config", &client);
        let ssh = place.script("ssh", &format!("exec ssh -F '{}' \"$@\"\n", client.display()));
        let ssh = ssh.to_str().unwrap().to_owned();
        let started = Self { place, server, ssh };
        wait_for("sshd", || TcpStream::connect(("127.0.0.1", port)).ok());
        started
    }

    /// Two ranks, on "a" and "b".
    fn launch(&self, script: &str) -> Command {
        let hostfile = self.place.hostfile(&["127.0.0.1"; 2]);
        let port = free_ports(2).to_string();
        let start = ["--ssh", &self.ssh, "--hostfile", &hostfile, "-p", &port, "--", "sh", "-c"];
        let script = format!("PLACE='{}'; {script}", self.place.path("").display());
        self.place.launch(&[&start[..], &[&script]].concat())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path("sshd.log")).unwrap()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn ranks_behind_a_real_sshd() {
    let sshd = Sshd::start();
    let script = "echo $MLX_RANK; wc -l <$MLX_HOSTFILE; echo ${MLX_HOSTFILE%/*} >$PLACE/folder.$MLX_RANK";
    assert_eq!(lines(&mut sshd.launch(script)), ["[0] 0", "[0] 1", "[1] 1", "[1] 1"], "{}", sshd.log());
    let error = failure(&mut sshd.launch("[ $MLX_RANK = 1 ] && echo no && exit 3; sleep 300"), 3);
    assert_contains(&error, &["rank 1 on host b ended with status 3", "    no"]);
    for rank in ["0", "1"] {
        let folder = std::fs::read_to_string(sshd.place.path(&format!("folder.{rank}"))).unwrap();
        assert!(
            folder.contains("pomar-launch.") && !std::path::Path::new(folder.trim()).exists(),
            "{folder}"
        );
    }
}

#[test]
fn a_killed_launcher_and_a_lost_connection_leave_no_orphan_there() {
    let sshd = Sshd::start();
    let script =
        "[ $MLX_RANK = 1 ] && trap '' TERM; echo $$ >$PLACE/rank.$MLX_RANK; while :; do sleep 1; done";
    let start = || {
        let launch = Running::start(&mut sshd.launch(script));
        let pids = ["rank.0", "rank.1"].map(|file| sshd.place.pid(file));
        (launch, pids)
    };
    let (launch, pids) = start();
    launch.signal("KILL");
    assert!(gone(&pids, Duration::from_secs(8)), "orphans among {pids:?}");
    for rank in ["rank.0", "rank.1"] {
        std::fs::remove_file(sshd.place.path(rank)).unwrap();
    }
    // All connections at once: neither side can tell the other anything.
    let (launch, pids) = start();
    let listed = Command::new("ps").args(["ax", "-o", "pid=,args="]).output().unwrap().stdout;
    let config = sshd.place.path("ssh_config").to_str().unwrap().to_owned();
    let clients = String::from_utf8_lossy(&listed).into_owned();
    let clients = clients.lines().filter(|line| line.contains(&config) && line.contains("ssh -F"));
    let clients: Vec<i64> = clients.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    assert_eq!(clients.len(), 4, "one for each guard and each rank");
    kill_all(&clients);
    let said = launch.said();
    assert!(!said.status.success());
    assert!(gone(&pids, Duration::from_secs(8)), "orphans among {pids:?}");
}
