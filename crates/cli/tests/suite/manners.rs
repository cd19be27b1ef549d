//! Errors that say what to do, and facts as tables and JSON.

use crate::common::{failure, fixture, output, pomar, smollm2};
use safetensors::SafeTensors;
use serde_json::Value;

fn llama() -> String {
    fixture("models/llama").to_str().unwrap().into()
}

#[test]
fn errors_say_what_to_do() {
    let llama = llama();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["run", "smollm2", "hi", "--temperature", "-1"], &["temperature is -1", "from 0 to 100"]),
        (&["serve", "smollm2", "--listen", "0.0.0.0:0"], &["0.0.0.0:0", "127.0.0.1"]),
        (&["run", "no-such-model", "hi"], &["no-such-model", "smollm2"]),
        (&["run", "/no/such/folder", "hi"], &["/no/such/folder"]),
        (&["logits", &llama, "--ids", "5", "--split", "tp9", "--out", "x"], &["at most tp4"]),
        (&["logits", &llama, "--ids", "5", "--split", "pp9", "--out", "x"], &["at most pp3"]),
        (&["logits", &llama, "--ids", "512", "--out", "x"], &["token id 512", "vocabulary size 512"]),
        (
            &["logits", &llama, "--ids", "5", "--split", "two", "--out", "x"],
            &["write 1, tp2, pp3 or tp2xpp2"],
        ),
        (&["logits", &llama, "--ids", "5", "--context", "9999", "--out", "x"], &["9999", "512"]),
    ];
    for (arguments, parts) in cases {
        let error = failure(&mut pomar(arguments));
        for part in parts {
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
        assert!(!error.contains("panicked"), "{error}");
    }
    let error = failure(pomar(&["models"]).env("POMAR_SIMD", "mmx"));
    assert!(error.contains("mmx") && error.contains("avx2"), "{error}");
}

#[test]
fn a_damaged_file_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("damaged.gguf");
    let mut bytes = std::fs::read(smollm2()).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&damaged, bytes).unwrap();
    for split in ["1", "tp2"] {
        let error = failure(&mut pomar(&["run", damaged.to_str().unwrap(), "hi", "--split", split]));
        assert!(error.contains("damaged.gguf") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn offline_without_the_model_says_how_to_get_it() {
    let empty = tempfile::tempdir().unwrap();
    let error = failure(pomar(&["run", "smollm2", "hi", "--offline"]).env("POMAR_HOME", empty.path()));
    assert!(error.contains("pomar pull smollm2"), "{error}");
}

#[test]
fn facts_come_as_table_and_as_json() {
    smollm2();
    let table = output(&mut pomar(&["models"]));
    assert!(table.starts_with("MODEL") && table.contains("smollm2") && table.contains("98.4 MB"), "{table}");
    let json: Value = serde_json::from_str(&output(&mut pomar(&["models", "--json"]))).unwrap();
    assert_eq!(json["models"][0]["bytes"], 98_362_432);

    let table = output(&mut pomar(&["inspect", "smollm2"]));
    assert!(table.contains("9 query, 3 key/value, 64 wide") && table.contains("tp2 pp2 tp3"), "{table}");
    let json: Value = serde_json::from_str(&output(&mut pomar(&["inspect", "smollm2", "--json"]))).unwrap();
    assert_eq!(
        (&json["layers"], &json["vocab_size"], &json["context"]),
        (&30.into(), &49152.into(), &8192.into())
    );
    assert_eq!(json["chat_template"], true);
    assert_eq!(json["kv_bytes_per_token"], 46080);
}

#[test]
fn logits_are_written_for_every_position() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for split in ["1", "tp2xpp2"] {
        let out = folder.path().join(format!("{split}.safetensors"));
        let arguments =
            ["logits", &llama(), "--ids", "5,6,7", "--split", split, "--out", out.to_str().unwrap()];
        output(&mut pomar(&arguments));
        files.push(std::fs::read(out).unwrap());
    }
    assert_eq!(files[0], files[1]);
    let tensors = SafeTensors::deserialize(&files[0]).unwrap();
    assert_eq!(tensors.tensor("logits").unwrap().shape(), [3, 512]);
}

#[test]
fn bench_measures_collectives_too() {
    let arguments = ["bench", "collectives", "--transports", "shm", "--json"];
    let json: Value = serde_json::from_str(&output(&mut pomar(&arguments))).unwrap();
    let figures = json["transports"][0]["figures"].as_array().unwrap();
    assert!(figures.iter().all(|figure| figure["median_us"].as_f64().unwrap() > 0.0), "{json}");
    for call in ["all_sum", "all_gather", "send_recv"] {
        assert!(figures.iter().any(|figure| figure["call"] == call && figure["bytes"] == 8192), "{json}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::Stdio;
    let llama = llama();
    for arguments in [&["models"][..], &["inspect", &llama], &["inspect", &llama, "--json"]] {
        let mut child = pomar(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
