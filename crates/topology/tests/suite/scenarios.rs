//! What the recorded machines are found to be.

use crate::common::{check, expect, fixture, report, report_for, survey};
use pomar_topology::{Backend, Cabling, Form, Level, Recorded, Report, Request, Survey, dot};
use serde_json::{Value, json};

#[test]
fn new_machines_get_commands_for_bridge_and_addresses() {
    let report = report("pair");
    assert_eq!(report.backend, Some("jaccl"));
    assert!(!report.has_errors());
    let bridged = report.checks.iter().filter(|check| check.code == "in-bridge").count();
    assert_eq!((bridged, check(&report, "no-address").level), (2, Level::Warning));
    expect("pair.json", &(serde_json::to_string_pretty(&report).unwrap() + "\n"));
    for step in report.commands.iter().flat_map(|fix| fix.until_restart.iter().chain(&fix.lasting)) {
        // zsh takes a comment on a pasted line for arguments.
        assert!(
            step.run.starts_with("sudo ") && !step.run.contains('#') && step.run != step.undo,
            "{step:?}"
        );
    }
}

#[test]
fn two_cables_are_two_devices_in_the_same_order_at_both_ends() {
    let report = report("pair-two-cables");
    let hostfile = report.hostfile.as_ref().unwrap();
    expect("pair-two-cables.hosts.json", &hostfile.text(Form::Object));
    let [a, b]: [Value; 2] = serde_json::from_str(&hostfile.text(Form::List)).unwrap();
    assert_eq!(a["rdma"], json!([null, ["rdma_en2", "rdma_en3"]]));
    // en2 of the first host is cabled to en3 of the second.
    assert_eq!(b["rdma"], json!([["rdma_en3", "rdma_en2"], null]));
    assert!(check(&report, "several-cables").text.contains("2 cables"));
    assert!(check(&report, "stranger").text.starts_with("studio-2 port 4 (en5) leads to 'Mac Studio'"));
    assert!(report.commands.is_empty(), "{:?}", report.commands);

    let ring = report_for("pair-two-cables", Backend::Ring).hostfile.unwrap();
    let rows = serde_json::to_value(&ring.hosts).unwrap();
    assert_eq!(rows[0]["ips"], json!(["10.73.0.1", "10.73.0.5"]));
    assert_eq!(rows[1]["ips"], json!(["10.73.0.2", "10.73.0.6"]));
}

#[test]
fn a_mesh_runs_jaccl_and_its_hostfile_reads_back() {
    let report = report("mesh");
    assert!(report.mesh && report.missing.is_empty());
    assert_eq!(report.cables.len(), 6);
    assert!(report.checks.iter().all(|check| check.level == Level::Ok), "{:?}", report.checks);
    let text = report.hostfile.unwrap().text(Form::Object);
    expect("mesh.hosts.json", &text);
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["backend"], "jaccl");
    let hosts = read["hosts"].as_array().unwrap();
    for (rank, host) in hosts.iter().enumerate() {
        let row = host["rdma"].as_array().unwrap();
        assert_eq!(row.len(), hosts.len());
        for (other, devices) in row.iter().enumerate() {
            let name = devices.as_str().unwrap_or_default();
            assert_eq!(name.starts_with("rdma_en"), rank != other, "{rank} {other} {devices}");
        }
    }
    let drawing = survey("mesh");
    expect("mesh.dot", &dot(&drawing.hosts, &Cabling::of(&drawing.hosts)));
}

#[test]
fn a_ring_goes_in_the_order_of_its_cables() {
    let report = report("ring");
    assert_eq!(report.ring.as_deref().unwrap(), ["a", "c", "b", "d"]);
    assert_eq!(report.backend, Some("jaccl-ring"));
    let mesh = check(&report, "mesh");
    assert_eq!(mesh.level, Level::Note);
    assert_eq!(mesh.text, "no full mesh: there is no cable a - b, c - d");
    expect("ring.hosts.json", &report.hostfile.unwrap().text(Form::Object));
    // A TCP ring: each host is reached on its cable from the one before.
    let tcp = report_for("ring", Backend::Ring).hostfile.unwrap();
    let rows: Vec<_> = tcp.hosts.iter().map(|host| (host.ssh.as_str(), host.ips[0].to_string())).collect();
    let expected = [("a", "10.73.0.14"), ("c", "10.73.0.2"), ("b", "10.73.0.6"), ("d", "10.73.0.10")];
    assert_eq!(rows, expected.map(|(name, ip)| (name, ip.to_owned())));
}

#[test]
fn a_self_assigned_address_is_completed_from_the_other_end() {
    let report = report("ring");
    assert!(check(&report, "self-assigned").text.starts_with("c port 2 (en3)"));
    let [fix] = report.commands.as_slice() else { panic!("{:?}", report.commands) };
    assert_eq!(fix.host, "c");
    assert_eq!(fix.until_restart[0].run, "sudo ifconfig en3 inet 10.73.0.5 netmask 255.255.255.252 up");
    assert_eq!(fix.until_restart[0].undo, "sudo ifconfig en3 inet 169.254.17.4 netmask 255.255.0.0");
}

#[test]
fn a_missing_cable_is_named_with_ports_to_plug_it_into() {
    let report = report("missing-cable");
    assert!(report.ring.is_none() && report.hostfile.is_none() && report.has_errors());
    let ring = check(&report, "ring");
    assert_eq!(ring.text, "no ring: a, c, b, d would be one, but there is no cable a - d");
    assert_eq!(ring.hint.as_deref(), Some("plug a port 2 (en3) - d port 2 (en3)"));
    let backend = check(&report, "backend");
    assert_eq!(backend.level, Level::Error);
    assert!(
        backend.text.ends_with("ring needs a cable round a ring of all hosts; a - d has none"),
        "{backend:?}"
    );
    let mesh = report_for("missing-cable", Backend::Jaccl);
    assert!(check(&mesh, "backend").text.contains("a - b has none, a - d has none, c - d has none"));
}

#[test]
fn thunderbolt_4_is_found_in_a_host_and_in_a_cable() {
    let report = report("thunderbolt-4");
    assert!(check(&report, "thunderbolt-4").text.starts_with("b: its ports are of Thunderbolt 4"));
    let slow: Vec<_> = report.checks.iter().filter(|check| check.code == "slow-cable").collect();
    let hints: Vec<_> = slow.iter().map(|check| check.hint.as_deref().unwrap()).collect();
    assert!(slow[1].text.starts_with("a port 2 (en3) - c port 2 (en3): the link runs at 40 Gb/s"));
    assert!(hints[1].contains("a Thunderbolt 5 cable"), "{hints:?}");
    assert_eq!((hints[0], hints[2]), ("the ports of b cannot do more", "the ports of b cannot do more"));
    // TCP works round the ring, over the faster one of two cables: a is reached from c on port 3.
    assert_eq!(report.backend, Some("ring"));
    assert_eq!(report.hostfile.unwrap().hosts[0].ips[0].to_string(), "10.73.0.13");
    let jaccl = report_for("thunderbolt-4", Backend::Jaccl);
    assert!(check(&jaccl, "backend").text.contains("a - b has one, but b cannot do RDMA"));
    let drawing = survey("thunderbolt-4");
    expect("thunderbolt-4.dot", &dot(&drawing.hosts, &Cabling::of(&drawing.hosts)));
}

#[test]
fn a_renamed_interface_breaks_nothing_and_is_shown() {
    let (before, now) = (survey("mesh"), survey("renamed"));
    let report = Report::new(&now, Request::default(), Some(&before));
    let changes = report.changes.unwrap();
    assert_eq!(changes, ["b port 3: en4 became en9; hostfiles from before name the wrong device"]);
    let hostfile = serde_json::to_value(report.hostfile.unwrap()).unwrap();
    assert_eq!(hostfile["hosts"][1]["rdma"], json!(["rdma_en2", null, "rdma_en3", "rdma_en9"]));
    assert_eq!(report.backend, Some("jaccl"));
}

#[test]
fn cables_that_come_and_go_are_shown() {
    let changes = |before, now| Report::new(&survey(now), Request::default(), Some(&survey(before))).changes;
    assert_eq!(changes("ring", "missing-cable").unwrap(), ["cable gone: a port 2 (en3) - d port 2 (en3)"]);
    assert_eq!(changes("missing-cable", "ring").unwrap(), ["new cable: a port 2 (en3) - d port 2 (en3)"]);
    assert!(changes("ring", "ring").unwrap().is_empty());
}

#[test]
fn rdma_off_an_old_system_and_a_dock_are_each_named() {
    let report = report("rdma-off");
    let off = check(&report, "rdma-off");
    assert_eq!((off.hosts.as_slice(), off.level), (&["b".to_owned()][..], Level::Warning));
    assert!(off.hint.as_deref().unwrap().contains("rdma_ctl enable"));
    assert_eq!(check(&report, "old-system").hosts, ["c"]);
    assert!(check(&report, "dock").text.contains("'Desk Dock'"));
    // 10.0.0.9/8 at b covers the first pool of addresses.
    assert!(report.commands[0].until_restart[0].run.contains("172.29.0.1"));
    expect("rdma-off.commands.json", &(serde_json::to_string_pretty(&report.commands).unwrap() + "\n"));
    // Whoever asks for TCP does not mind.
    let tcp = report_for("rdma-off", Backend::Ring);
    assert_eq!(check(&tcp, "rdma-off").level, Level::Note);
}

#[test]
fn versions_matter_on_both_sides_of_26_3() {
    let mut survey = survey("mesh");
    let mut with = |host: usize, version: &str| {
        survey.hosts[host].system = pomar_topology::System::MacOs(version.parse().unwrap());
        Report::new(&survey, Request::default(), None)
    };
    let report = with(1, "26.4.1");
    assert_eq!(check(&report, "mixed-versions").level, Level::Note);
    let report = with(2, "26.2.1");
    assert_eq!(check(&report, "mixed-frames").level, Level::Warning);
    assert_eq!(check(&report, "small-frames").hosts, ["c"]);
}

#[test]
fn a_linux_machine_is_a_host_with_devices_and_unknown_cables() {
    let report = report("pair-and-linux");
    let linux = check(&report, "no-mac");
    assert!(linux.text.starts_with("box: ") && linux.text.ends_with("mlx5_0, mlx5_1"), "{linux:?}");
    assert!(check(&report, "mesh").text.contains("the 2 Macs"));
    assert!(check(&report, "backend").text.contains("box"));
    let lan = Report::new(&survey("pair-and-linux"), Request { backend: None, over_lan: true }, None);
    let ips: Vec<_> = lan.hostfile.unwrap().hosts.iter().map(|host| host.ips[0].to_string()).collect();
    assert_eq!(ips, ["192.168.1.20", "192.168.1.10", "192.168.1.11"]);
}

#[test]
fn a_damaged_answer_names_host_command_and_field() {
    let report = report("damaged");
    let unread = check(&report, "unread");
    for part in ["b: ", "`system_profiler SPThunderboltDataType -json`", "JSON: EOF"] {
        assert!(unread.text.contains(part), "{unread:?}");
    }
    assert!(report.has_errors() && report.hostfile.is_none());
    assert_eq!(check(&report, "unjudged").level, Level::Note);
}

#[test]
fn one_machine_under_two_names_is_noticed() {
    let recorded = Recorded::new(fixture("pair"));
    let mut survey = Survey::take(&recorded, &["mini-1".into(), "mini-2".into()]);
    let mut again = survey.hosts[0].clone();
    again.name = "mini-1.local".into();
    survey.hosts.push(again);
    let report = Report::new(&survey, Request::default(), None);
    assert_eq!(check(&report, "same-machine").hosts, ["mini-1", "mini-1.local"]);
    assert!(report.hostfile.is_none() && report.has_errors());
}

#[test]
fn a_cable_that_one_end_does_not_see_is_reported() {
    let mut survey = survey("pair");
    survey.hosts[1].ports.iter_mut().for_each(|port| port.peers.clear());
    let report = Report::new(&survey, Request::default(), None);
    assert!(check(&report, "one-sided").text.starts_with("mini-1 port 3 (en4) - mini-2 port 3 (en4)"));
}

#[test]
fn without_a_network_address_nobody_finds_the_first_rank() {
    let mut survey = survey("mesh");
    survey.hosts[0].lan = None;
    let report = Report::new(&survey, Request::default(), None);
    assert!(check(&report, "hostfile").text.starts_with("a has no address on an ordinary network"));
    assert!(report.hostfile.is_none() && report.has_errors());
}
