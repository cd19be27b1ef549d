//! `pomar bench machine`, `pomar bench model`, and plans from what they measure.

use crate::common::{failure, fixture, output, pomar};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

/// The command with a home that holds nothing yet.
fn pomar_in(home: &Path, arguments: &[&str]) -> Command {
    let mut command = pomar(arguments);
    command.env("POMAR_HOME", home);
    command
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&output(command)).unwrap()
}

fn tiny_llama() -> String {
    fixture("models/llama").display().to_string()
}

fn bench_llama(home: &Path, more: &[&str]) -> Value {
    let llama = tiny_llama();
    let common = ["bench", "model", &llama, "--prompt", "32", "--generate", "8", "--rounds", "1", "--json"];
    json(&mut pomar_in(home, &[&common[..], more].concat()))
}

#[test]
fn a_machine_is_measured_for_each_number_of_threads() {
    let home = tempfile::tempdir().unwrap();
    let quick = ["bench", "machine", "--seconds", "0.02", "--json"];
    let kept_nothing = json(&mut pomar_in(home.path(), &[&quick[..], &["--no-store"]].concat()));
    assert!(!home.path().join("machine.json").exists());
    assert!(kept_nothing["host"]["memory"].as_f64().unwrap() > 1e8, "{kept_nothing}");
    let measured = json(&mut pomar_in(home.path(), &quick));
    let stored: Value = serde_json::from_slice(&fs::read(home.path().join("machine.json")).unwrap()).unwrap();
    assert_eq!(stored, measured);
    for at in measured["threads"].as_array().unwrap() {
        let figures = ["read", "int8", "f32", "start"].map(|figure| at[figure].as_f64().unwrap());
        assert!(figures.iter().all(|figure| *figure > 0.0), "{at}");
    }
    assert!(
        failure(&mut pomar_in(home.path(), &["bench", "machine", "--seconds", "0"])).contains("0.01 to 60")
    );
}

#[test]
fn a_model_is_measured_beside_its_prediction() {
    let home = tempfile::tempdir().unwrap();
    output(&mut pomar_in(home.path(), &["bench", "machine", "--seconds", "0.02"]));
    let report = bench_llama(home.path(), &["--split", "1,tp2,pp2"]);
    let splits = report["splits"].as_array().unwrap();
    assert_eq!(
        splits.iter().map(|split| split["split"].as_str().unwrap()).collect::<Vec<_>>(),
        ["1", "tp2", "pp2"]
    );
    for split in splits {
        for which in ["measured", "predicted", "calibrated"] {
            for what in ["prefill", "decode"] {
                assert!(split[which][what].as_f64().unwrap() > 0.0, "{split}");
            }
        }
    }
    // What was measured is known the next time, and one run's figures take the place of its older ones.
    let again = bench_llama(home.path(), &["--split", "1"]);
    assert!(again["splits"][0]["predicted"]["decode"].as_f64() != splits[0]["predicted"]["decode"].as_f64());
    let stored: Value = serde_json::from_slice(&fs::read(home.path().join("speeds.json")).unwrap()).unwrap();
    assert_eq!(stored["speeds"].as_array().unwrap().len(), 3);
}

#[test]
fn what_is_not_to_be_stored_is_not() {
    let home = tempfile::tempdir().unwrap();
    let report = bench_llama(home.path(), &["--no-store"]);
    assert!(report["splits"][0]["measured"]["decode"].as_f64().unwrap() > 0.0);
    assert!(report["splits"][0]["predicted"].is_null(), "nothing was measured before: {report}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn plans_for_this_machine_come_from_what_was_measured() {
    let home = tempfile::tempdir().unwrap();
    let plan = ["plan", "llama-3.2-1b", "--context", "2k", "--json"];
    let measured_first = pomar_in(home.path(), &plan).output().unwrap();
    assert!(String::from_utf8_lossy(&measured_first.stderr).contains("measuring this machine once"));
    let speed = |command: &mut Command| json(command)["plans"][0]["decode"]["likely"].as_f64().unwrap();
    let before = speed(&mut pomar_in(home.path(), &plan));
    // Twice the bandwidth in the file: measured facts are what counts.
    let path = home.path().join("machine.json");
    let mut facts: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for at in facts["threads"].as_array_mut().unwrap() {
        at["read"] = (2.0 * at["read"].as_f64().unwrap()).into();
    }
    fs::write(&path, facts.to_string()).unwrap();
    let after = speed(&mut pomar_in(home.path(), &plan));
    assert!(after > 1.2 * before, "{before} {after}");
    // A file of another machine, or a damaged one, is measured anew.
    facts["host"]["cores"] = 4096.into();
    for text in [facts.to_string(), "{".to_owned()] {
        fs::write(&path, text).unwrap();
        let output = pomar_in(home.path(), &plan).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("measuring this machine once"));
    }
    // A model on this machine, in its own format.
    let own =
        json(&mut pomar_in(home.path(), &["plan", &fixture("models/llama").display().to_string(), "--json"]));
    assert!(own["plans"][0]["decode"]["likely"].as_f64().unwrap() > 0.0, "{own}");
    let refused = failure(&mut pomar_in(home.path(), &["plan", "llama-3.2-1b", "--link", "tb5-rdma"]));
    assert!(refused.contains("--on"), "{refused}");
}

#[test]
fn a_home_that_cannot_be_written_costs_no_measurement() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let measured = pomar_in(&file, &["bench", "machine", "--seconds", "0.02", "--json"]).output().unwrap();
    assert!(measured.status.success() && measured.stdout.starts_with(b"{"), "{measured:?}");
    assert!(String::from_utf8_lossy(&measured.stderr).contains("not kept for later"), "{measured:?}");
    fs::create_dir(home.path().join("machine.json")).unwrap();
    let said = failure(&mut pomar_in(home.path(), &["plan", "qwen3-4b"]));
    assert!(said.contains("is no file; remove it"), "{said}");
    assert!(failure(&mut pomar_in(home.path(), &["plan", "smollm2"])).contains("pomar pull smollm2"));
}
