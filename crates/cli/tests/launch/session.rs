//! Ranks on this machine: what they get and what is seen of them.

use crate::common::{Place, assert_contains, failure, lines, said};
use std::{
    collections::BTreeSet,
    io::Write,
    process::Stdio,
    time::{Duration, Instant},
};

#[test]
fn lines_carry_their_rank_and_errors_stay_errors() {
    let place = Place::new();
    let done = said(&mut place.here(2, &[], "echo from $POMAR_RANK of $POMAR_SIZE; echo oh >&2; printf end"));
    assert!(done.status.success(), "{}", done.err);
    let sorted = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let out = ["[0] end", "[0] from 0 of 2", "[1] end", "[1] from 1 of 2"].map(str::to_owned);
    assert_eq!(sorted(&done.out), out.into());
    assert_eq!(sorted(&done.err), ["[0] oh", "[1] oh"].map(str::to_owned).into());
    place.assert_clean();
    let plain = lines(&mut place.here(1, &["--no-prefix"], "printf 'a\\rb'"));
    assert_eq!(plain, ["a\rb"]);
}

#[test]
fn a_ring_finds_its_hostfile_and_nothing_of_other_launches() {
    let place = Place::new();
    let port = crate::common::free_ports(4).to_string();
    let script = "cat $MLX_HOSTFILE; echo $MLX_RANK $POMAR_KEY $MLX_IBV_DEVICES $KEPT";
    let mut launch =
        place.launch(&["-n", "2", "-p", &port, "--connections-per-ip", "2", "--", "sh", "-c", script]);
    launch.env("POMAR_KEY", "old").env("MLX_IBV_DEVICES", "old").env("KEPT", "kept").env("MLX_RANK", "7");
    let port: u16 = port.parse().unwrap();
    let at = |offset| format!("\"127.0.0.1:{}\"", port + offset);
    let hostfile = format!("[[{},{}],[{},{}]]", at(0), at(1), at(2), at(3));
    let expected = [
        "[0] 0 kept".to_owned(),
        format!("[0] {hostfile}"),
        "[1] 1 kept".to_owned(),
        format!("[1] {hostfile}"),
    ];
    assert_eq!(lines(&mut launch), expected);
    place.assert_clean();
}

#[test]
fn the_key_is_fresh_and_on_no_command_line() {
    let place = Place::new();
    let key = || {
        let script = "seen=$(ps ax -o args); echo key $POMAR_KEY
            printf '%s' \"$seen\" | grep -cF \"$POMAR_KEY\"; exit 0";
        let lines = lines(&mut place.here(2, &[], script));
        assert_eq!((lines[0].as_str(), lines[2].as_str()), ("[0] 0", "[1] 0"), "{lines:?}");
        let keys =
            ["[0] key ", "[1] key "].map(|start| lines.iter().find_map(|line| line.strip_prefix(start)));
        assert_eq!(keys[0], keys[1]);
        keys[0].unwrap().to_owned()
    };
    let (one, other) = (key(), key());
    assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    assert_ne!(one, other);
}

#[test]
fn variables_arguments_and_folders_arrive_whole() {
    let place = Place::new();
    std::fs::create_dir(place.path("it's here")).unwrap();
    let folder = place.path("it's here");
    let odd = "a 'b' \"c\" $HOME `id` \\ \n*";
    let variable = format!("ODD={odd}");
    let options = ["-n", "1", "--env", &variable, "--cwd", folder.to_str().unwrap(), "--no-prefix", "--"];
    let script = "printf '%s|%s|%s' \"$ODD\" \"$1\" \"$(pwd)\"";
    let done = said(&mut place.launch(&[&options[..], &["sh", "-c", script, "x", odd]].concat()));
    let pwd = folder.canonicalize().unwrap();
    assert_eq!(done.out, format!("{odd}|{odd}|{}", pwd.display()), "{}", done.err);
    // Without --, and with the program's own options.
    assert_eq!(lines(&mut place.launch(&["-n", "1", "echo", "-n", "x"])), ["[0] x"]);
    let python = place.script("python", "echo python \"$@\"");
    let with = ["-n", "1", "--python", python.to_str().unwrap(), "train.py", "--lr", "1"];
    assert_eq!(lines(&mut place.launch(&with)), ["[0] python train.py --lr 1"]);
}

#[test]
fn every_rank_gets_standard_input() {
    let place = Place::new();
    let feed = |options: &[&str], script: &str, text: &str| {
        let mut child = place.here(2, options, script).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let text = text.to_owned();
        let writer = std::thread::spawn(move || drop(stdin.write_all(text.as_bytes())));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut lines: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(feed(&[], "wc -c", "hello\n"), ["[0] 6", "[1] 6"]);
    assert_eq!(feed(&["--stdin", "1"], "wc -c", "hello\n"), ["[0] 0", "[1] 6"]);
    assert_eq!(feed(&["--stdin", "none"], "wc -c", "hello\n"), ["[0] 0", "[1] 0"]);
    // More than all queues hold, and a rank that ends without reading it.
    let long = "x".repeat(2 << 20);
    assert_eq!(feed(&[], "[ $POMAR_RANK = 0 ] || wc -c", &long), ["[1] 2097152"]);
}

#[test]
fn the_first_failure_stops_the_rest() {
    let place = Place::new();
    let script =
        "if [ $POMAR_RANK = 2 ]; then for i in 1 2 3; do echo line $i; done; echo sorry >&2; exit 3; fi
        echo $$ >$PLACE/pid.$POMAR_RANK; sleep 300";
    let began = Instant::now();
    let error = failure(&mut place.here(3, &[], script), 3);
    assert!(began.elapsed() < Duration::from_secs(20), "the others were not stopped");
    assert_contains(
        &error,
        &["error: rank 2 on host 127.0.0.1 ended with status 3 after ", " s; its last lines:\n"],
    );
    let told = error.split_once("its last lines:\n").unwrap().1;
    assert_contains(told, &["    line 1\n    line 2\n    line 3\n", "    sorry\n"]);
    place.assert_clean();
}

#[test]
fn a_rank_that_is_killed_is_told_from_one_that_fails() {
    let place = Place::new();
    let error = failure(&mut place.here(2, &[], "[ $POMAR_RANK = 0 ] && kill -9 $$; sleep 300"), 128 + 9);
    assert_contains(&error, &["rank 0 on host 127.0.0.1 was killed by signal 9", "it printed nothing"]);
}

#[test]
fn nobody_reading_the_output_ends_the_ranks() {
    let place = Place::new();
    let mut child = place.here(2, &[], "while :; do echo busy; sleep 0.05; done").spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut out, &mut [0; 1]).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    place.assert_clean();
}

#[test]
fn a_dry_run_starts_nothing_and_reads_as_json_too() {
    let place = Place::new();
    let text = lines(&mut place.here(2, &["--dry-run"], "touch $PLACE/started")).join("\n");
    assert_contains(
        &text,
        &["rank 1 on 127.0.0.1", "variable   POMAR_KEY=<random>", "backend pomar, 2 ranks"],
    );
    let done = said(&mut place.here(2, &["--dry-run", "--json"], "touch $PLACE/started"));
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(json["processes"][1]["env"]["POMAR_RANK"], "1");
    assert_eq!(json["starts"][0]["command"][0], "sh");
    assert_contains(json["guards"][0][2].as_str().unwrap(), &["trap finish EXIT"]);
    assert!(!place.path("started").exists());
    place.assert_clean();
}

#[test]
fn the_hostfile_that_topology_writes_is_understood() {
    let place = Place::new();
    let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../topology/tests/fixtures/ring");
    let hostfile = place.path("hosts.json");
    let hostfile = hostfile.to_str().unwrap();
    let mut topology = std::process::Command::new(env!("CARGO_BIN_EXE_pomar"));
    topology.args(["topology", "--from", machines, "--hostfile", hostfile]);
    let found = topology.output().unwrap();
    assert!(place.path("hosts.json").exists(), "{}", String::from_utf8_lossy(&found.stderr));
    let text = lines(&mut place.launch(&["--hostfile", hostfile, "--dry-run", "--", "./prog"])).join("\n");
    assert_contains(&text, &["backend jaccl-ring, 4 ranks on 4 hosts", "  variable   MLX_JACCL_RING=1"]);
}
