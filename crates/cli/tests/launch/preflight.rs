//! What is found out before anything is started.

use crate::common::{Place, assert_contains, failure, free_ports, lines};
use std::net::TcpListener;

#[test]
fn a_missing_program_and_a_missing_folder_are_named() {
    let place = Place::new();
    let error = failure(&mut place.launch(&["-n", "1", "--", "no-such-program"]), 1);
    assert_contains(&error, &["host 127.0.0.1 has no program 'no-such-program' in /", "--no-preflight"]);
    let error = failure(&mut place.launch(&["-n", "1", "--cwd", "/no/such", "--", "ls"]), 1);
    assert_contains(&error, &["host 127.0.0.1 has no folder /no/such", "--cwd"]);
    // Without asking, the rank's shell says it.
    let error = failure(&mut place.launch(&["-n", "1", "--no-preflight", "--", "no-such-program"]), 127);
    assert_contains(&error, &["rank 0 on host 127.0.0.1 ended with status 127", "not found"]);
    place.assert_clean();
}

#[test]
fn a_port_in_use_is_named() {
    let place = Place::new();
    let port = free_ports(3);
    let _taken = TcpListener::bind(("127.0.0.1", port + 1)).unwrap();
    let error =
        failure(&mut place.launch(&["-n", "3", "-p", &port.to_string(), "--", "touch", "started"]), 1);
    let at = format!("rank 1 on host 127.0.0.1: 127.0.0.1:{} is in use", port + 1);
    assert_contains(&error, &[&at, "--starting-port"]);
    assert!(!place.path("started").exists());
}

#[test]
fn a_hop_that_fails_is_named_with_its_port() {
    let place = Place::new();
    // Host b has a bash that finds no way.
    place.script("bin/b/bash", "echo \"bash: connect: No route to host\" >&2; exit 1");
    let mut launch = place.over_ssh(&["127.0.0.1"; 3], &[], "touch $PLACE/started");
    let error = failure(&mut launch, 1);
    let hop = "rank 1 on host b -> rank 2 on host c: 127.0.0.1:";
    assert_contains(&error, &[hop, " cannot be reached (No route to host); check the address"]);
    assert_eq!(error.matches(" -> ").count(), 1, "{error}");
    assert!(!place.path("started").exists());
    place.assert_clean();
}

#[test]
fn a_port_in_use_there_is_named_by_who_would_connect() {
    let place = Place::new();
    let port = free_ports(2);
    let _taken = TcpListener::bind(("127.0.0.1", port + 1)).unwrap();
    let mut launch = place.over_ssh(
        &["127.0.0.1"; 2],
        &["--nccl-port", &(port + 1).to_string(), "--backend", "nccl"],
        "true",
    );
    let error = failure(&mut launch, 1);
    let hop = format!("rank 1 on host b -> rank 0 on host a: 127.0.0.1:{} is in use already", port + 1);
    assert_contains(&error, &[&hop, "--nccl-port"]);
}

#[test]
fn an_address_of_another_machine_is_named() {
    let place = Place::new();
    for host in ["a", "b"] {
        place.script(&format!("bin/{host}/ip"), "echo '1: eth0    inet 192.0.2.1/24 scope global eth0'");
        place.script(&format!("bin/{host}/bash"), "echo 'bash: connect: Connection refused' >&2; exit 1");
    }
    let error = failure(&mut place.over_ssh(&["192.0.2.1", "192.0.2.2"], &[], "true"), 1);
    assert_contains(
        &error,
        &["rank 1 on host b: that machine has no address 192.0.2.2; correct the hostfile"],
    );
    assert!(!error.contains("rank 0"), "{error}");
    // With the right addresses, and with no bash to try the way: what is not known does not hinder.
    place.script("bin/a/bash", "exit 127");
    place.script("bin/b/ip", "echo '1: eth0    inet 192.0.2.2/24 scope global eth0'");
    let lines = lines(&mut place.over_ssh(&["192.0.2.1", "192.0.2.2"], &[], "echo up"));
    assert_eq!(lines, ["[0] up", "[1] up"]);
}

#[test]
fn a_wrong_hostfile_is_told_by_entry_and_field() {
    let place = Place::new();
    let path = place.write("hosts.json", r#"[{"ssh": "a"}, {"ssh": "b", "ips": ["10.0.0.300"]}]"#);
    let error = failure(&mut place.launch(&["--hostfile", path.to_str().unwrap(), "ls"]), 1);
    assert_contains(&error, &["hosts.json: hosts[1].ips[0] is '10.0.0.300', which is neither"]);
    let error = failure(&mut place.launch(&["--hostfile", "/no/hosts.json", "ls"]), 1);
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
    let error = failure(&mut place.launch(&["--hosts", "10.0.0.1,no-such-host.invalid", "ls"]), 1);
    assert_contains(&error, &["needs an address of no-such-host.invalid (rank 1)"]);
    let error = failure(&mut place.launch(&["--backend", "tcp", "ls"]), 2);
    assert_contains(&error, &["'tcp' is no backend; there are ring, jaccl, jaccl-ring, mpi, nccl, pomar"]);
}
