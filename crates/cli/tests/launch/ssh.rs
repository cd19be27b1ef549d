//! Ranks on other machines, by a stand-in for ssh that runs what it is given here, in a session of its own, as sshd
//! does.

use crate::common::{Place, Running, assert_contains, failure, gone, kill_all, lines, runs};
use std::{collections::BTreeSet, path::PathBuf, process::Command, time::Duration};

/// The last argument is the command, the one before it the host. Host "gone" is not there. A host may have programs
/// of its own in `bin/HOST`. Its shell greets.
const STAND_IN: &str = r#"
for word; do host=$command; command=$word; done
echo "$host" >>"$PLACE/hosts"
if [ "$host" = gone ]; then
  echo "ssh: connect to host gone port 22: No route to host" >&2
  exit 255
fi
PATH=$PLACE/bin/$host:$PATH
cat | setsid --wait sh -c "echo Welcome to $host; $command"
"#;

impl Place {
    pub(crate) fn stand_in(&self) -> PathBuf {
        crate::common::need("setsid", "apt-get install util-linux");
        self.script("stand-in", STAND_IN)
    }

    /// A hostfile of hosts with these addresses, named a, b, c, ...
    pub(crate) fn hostfile(&self, ips: &[&str]) -> String {
        let entry = |(index, ip): (usize, &&str)| {
            let name = char::from(b'a' + index as u8);
            serde_json::json!({"ssh": name.to_string(), "ips": [ip]})
        };
        let entries: Vec<_> = ips.iter().enumerate().map(entry).collect();
        let path = self.write("hosts.json", &serde_json::json!(entries).to_string());
        path.to_str().unwrap().into()
    }

    /// A launch over the stand-in.
    pub(crate) fn over_ssh(&self, ips: &[&str], options: &[&str], script: &str) -> Command {
        let (ssh, hostfile) = (self.stand_in(), self.hostfile(ips));
        let port = crate::common::free_ports(ips.len() as u16).to_string();
        let start = ["--ssh", ssh.to_str().unwrap(), "--hostfile", &hostfile, "-p", &port];
        self.launch(&[&start[..], options, &["--", "sh", "-c", script]].concat())
    }
}

const HERE: &str = "127.0.0.1";
const THREE: [&str; 3] = [HERE; 3];

/// Process groups, with a minus, of the stand-ins that were given this part of a command.
fn stand_ins(place: &Place, part: &str) -> Vec<i64> {
    let listed = Command::new("ps").args(["ax", "-o", "pgid=,args="]).output().unwrap().stdout;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let script = place.path("stand-in").to_str().unwrap().to_owned();
    let ours = listed.lines().filter(|line| line.contains(&script) && line.contains(part));
    let groups = ours.filter_map(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    groups.map(|group| -group).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn ranks_start_over_ssh_and_files_go_there() {
    let place = Place::new();
    let script = "read word; echo $MLX_RANK got $word; cat $MLX_HOSTFILE | wc -l";
    let mut launch = place.over_ssh(&THREE, &[], script);
    launch.stdin(std::process::Stdio::piped());
    let mut child = launch.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 0 got hello", "[0] 1", "[1] 1", "[1] 1 got hello", "[2] 1", "[2] 2 got hello"]);
    // One guard and one rank on each.
    let hosts = std::fs::read_to_string(place.path("hosts")).unwrap();
    assert_eq!(hosts.lines().filter(|host| *host == "b").count(), 2, "{hosts}");
    place.assert_clean();
}

#[test]
fn addresses_may_be_ipv6() {
    let place = Place::new();
    let mut launch = place.over_ssh(&["::1", "::1"], &["--backend", "pomar"], "echo $POMAR_ADDRESSES");
    let lines = lines(&mut launch);
    assert!(lines[1].starts_with("[1] [[\"[::1]:") && lines[1].ends_with("\"]]"), "{lines:?}");
}

#[test]
fn a_failure_names_the_host() {
    let place = Place::new();
    let error = failure(&mut place.over_ssh(&THREE, &[], "[ $MLX_RANK = 1 ] && exit 3; sleep 300"), 3);
    assert_contains(&error, &["rank 1 on host b ended with status 3"]);
    place.assert_clean();
}

#[test]
fn a_host_that_is_not_there_is_named_with_what_ssh_said() {
    let place = Place::new();
    let hosts = serde_json::json!([{"ssh": "a", "ips": [HERE]}, {"ssh": "gone", "ips": [HERE]}]);
    let (ssh, hostfile) = (place.stand_in(), place.write("h.json", &hosts.to_string()));
    let arguments =
        ["--ssh", ssh.to_str().unwrap(), "--hostfile", hostfile.to_str().unwrap(), "touch", "started"];
    let error = failure(&mut place.launch(&arguments), 1);
    assert_contains(&error, &["nothing was started", "host gone:", "No route to host", "gone true` work?"]);
    assert!(!place.path("started").exists());
    place.assert_clean();
}

#[test]
fn losing_one_connection_ends_the_launch_and_that_rank() {
    let place = Place::new();
    let script = "trap '' TERM; echo $$ >$PLACE/rank.$MLX_RANK; while :; do sleep 1; done";
    let launch = Running::start(&mut place.over_ssh(&THREE, &[], script));
    let pids = ["rank.0", "rank.1", "rank.2"].map(|file| place.pid(file));
    // The connection of rank 1, not its guard's.
    let groups = stand_ins(&place, " b exec sh -c 'if");
    assert_eq!(groups.len(), 1, "{groups:?}");
    kill_all(&groups);
    let said = launch.said();
    assert_contains(&said.err, &["rank 1 on host b was killed by signal 9"]);
    assert!(gone(&pids, Duration::from_secs(1)), "orphans among {pids:?}");
    place.assert_clean();
}

#[test]
fn losing_everything_at_once_leaves_no_orphan() {
    let place = Place::new();
    let script =
        "[ $MLX_RANK = 1 ] && trap '' TERM; echo $$ >$PLACE/rank.$MLX_RANK; while :; do sleep 1; done";
    let launch = Running::start(&mut place.over_ssh(&THREE, &[], script));
    let pids = ["rank.0", "rank.1", "rank.2"].map(|file| place.pid(file));
    assert!(pids.iter().all(|pid| runs(*pid)));
    let mut all = stand_ins(&place, "exec sh -c");
    assert_eq!(all.len(), 6, "one for each guard and each rank");
    all.push(launch.0.id().into());
    kill_all(&all);
    assert!(gone(&pids, Duration::from_secs(8)), "orphans among {pids:?}");
    place.assert_clean();
}
