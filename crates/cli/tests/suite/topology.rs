//! `pomar topology` as a person uses it: recorded machines, and an ssh that answers from a recording.

use crate::common::{failure, output, pomar, root};
use serde_json::Value;
use std::{fs, os::unix::fs::symlink, path::Path};

/// A scenario of the topology crate's recordings.
fn recording(scenario: &str) -> String {
    root().join("crates/topology/tests/fixtures").join(scenario).to_str().unwrap().into()
}

/// Compares what was printed with a file in tests/expected/topology; BLESS=1 writes the file instead.
fn expect(file: &str, printed: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected/topology").join(file);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, printed).unwrap();
    }
    let expected = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let printed = String::from_utf8_lossy(printed);
    assert!(expected == printed.as_bytes(), "{file} differs; BLESS=1 writes it anew. Printed:\n{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 110), "{printed}");
}

#[test]
fn every_recording_prints_as_expected() {
    let scenarios =
        ["pair", "pair-two-cables", "pair-and-linux", "mesh", "ring", "missing-cable", "thunderbolt-4"];
    for scenario in scenarios.into_iter().chain(["rdma-off", "damaged"]) {
        let printed = pomar(&["topology", "--from", &recording(scenario)]).output().unwrap();
        assert!(printed.stderr.is_empty(), "{}", String::from_utf8_lossy(&printed.stderr));
        let works = !["pair-and-linux", "missing-cable", "damaged"].contains(&scenario);
        assert_eq!(printed.status.success(), works, "{scenario}");
        expect(&format!("{scenario}.txt"), &printed.stdout);
    }
    let arguments = ["topology", "--from", &recording("renamed"), "--since", &recording("mesh")];
    expect("renamed-since-mesh.txt", &pomar(&arguments).output().unwrap().stdout);
}

#[test]
fn json_dot_and_hostfiles_are_for_programs() {
    let (mesh, folder) = (recording("mesh"), tempfile::tempdir().unwrap());
    let json: Value =
        serde_json::from_str(&output(&mut pomar(&["topology", "--from", &mesh, "--json"]))).unwrap();
    assert_eq!((&json["mesh"], json["cables"].as_array().unwrap().len()), (&true.into(), 6));
    assert_eq!(json["hosts"][1]["ports"][0]["interface"], "en2");
    let drawing = output(&mut pomar(&["topology", "--from", &mesh, "--dot"]));
    assert!(drawing.starts_with("graph ") && drawing.matches(" -- ").count() == 6, "{drawing}");

    let file = folder.path().join("hosts.json");
    let read = |form: &str, hosts: &str, backend: &str| -> Value {
        let path = file.to_str().unwrap();
        let arguments = ["topology", "--from", &mesh, "--hosts", hosts, "--hostfile", path];
        output(pomar(&arguments).args(["--hostfile-form", form, "--backend", backend]));
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap()
    };
    let object = read("object", "d,a", "jaccl");
    assert_eq!(object["backend"], "jaccl");
    assert_eq!(object["hosts"][0]["ssh"], "d");
    assert_eq!(object["hosts"][1]["rdma"], serde_json::json!(["rdma_en4", null]));
    let list = read("list", "a,b,c,d", "ring");
    assert_eq!(list[0]["ips"][0], "10.73.0.9");
}

#[test]
fn pomar_launch_reads_the_hostfiles() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.json");
    let file = file.to_str().unwrap();
    let scenarios = [
        ("pair-two-cables", "jaccl", r#"[[null,["rdma_en2","rdma_en3"]],[["rdma_en3","rdma_en2"],null]]"#),
        ("ring", "jaccl-ring", r#"[[null,"rdma_en2",null,"rdma_en3"],["rdma_en2",null,"rdma_en3",null],"#),
        ("thunderbolt-4", "ring", r#"[["10.73.0.13:32323"],["10.73.0.2:32324"],["10.73.0.6:32325"]]"#),
    ];
    for (scenario, backend, matrix) in scenarios {
        for form in ["object", "list"] {
            let from = recording(scenario);
            let arguments = ["topology", "--from", &from, "--hostfile", file, "--hostfile-form", form];
            output(&mut pomar(&arguments));
            // The list form has no place for the backend.
            let backend = if form == "list" { &["--backend", backend][..] } else { &[] };
            let mut launch = pomar(&["launch", "--hostfile", file, "--dry-run"]);
            let plan = output(launch.args(backend).args(["--", "prog"]));
            assert!(plan.contains(matrix), "{scenario} {form}: {plan}");
        }
    }
}

#[test]
fn errors_name_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.json");
    let chain = recording("missing-cable");
    let error = failure(&mut pomar(&["topology", "--from", &chain, "--hostfile", file.to_str().unwrap()]));
    assert!(error.contains("a - d has none") && !file.exists(), "{error}");
    let cases: [(&[&str], &str); 4] = [
        (&["topology"], "--hosts"),
        (&["topology", "--hosts=-oProxyCommand=x"], "cannot be a host's name"),
        (&["topology", "--from", "/no/such/folder"], "/no/such/folder"),
        (&["topology", "--from", &chain, "--backend", "nccl"], "write jaccl, jaccl-ring or ring"),
    ];
    for (arguments, part) in cases {
        let error = failure(&mut pomar(arguments));
        assert!(error.contains(part) && !error.contains("panicked"), "{arguments:?}: {error}");
    }
}

#[test]
fn hosts_are_asked_over_ssh_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    // Each command's answer is the file of the recording that belongs to it.
    let script = format!(
        r#"case $line in
            *' sw_vers') file=sw_vers.txt ;;
            *' system_profiler SPThunderboltDataType -json') file=thunderbolt.json ;;
            *' networksetup -listallhardwareports') file=hardware_ports.txt ;;
            *' networksetup -listnetworkserviceorder') file=services.txt ;;
            *' rdma_ctl status') file=rdma_ctl.txt ;;
            *' ibv_devices') file=ibv_devices.txt ;;
            *' ifconfig -a') file=ifconfig.txt ;;
        esac
        cat "{}/$host/$file" 2>/dev/null || exit 127"#,
        recording("pair")
    );
    fs::write(folder.path().join("script"), script).unwrap();
    symlink(root().join("crates/topology/tests/fake-ssh"), folder.path().join("ssh")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let kept = folder.path().join("kept");
    let kept = kept.to_str().unwrap();
    let asked = output(pomar(&["topology", "--hosts", "mini-1,mini-2", "--record", kept]).env("PATH", path));
    let read = output(&mut pomar(&["topology", "--from", kept]));
    assert_eq!(asked, read);
    expect("pair.txt", asked.as_bytes());
}
