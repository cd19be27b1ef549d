//! `kill -9` in the middle of a download, again and again, loses nothing.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{COMMIT, Fault, Hub, noise, settings};
use pomar_store::{ModelRef, Options, Store};

const SIZE: usize = 400_000;

fn model() -> ModelRef {
    "hf:o/r:m.gguf".parse().expect("a reference")
}

/// What the killed process runs: this very test binary, told where the hub and the store are.
#[test]
fn child() {
    let (Ok(url), Ok(home)) = (env::var("STORE_TEST_HUB"), env::var("STORE_TEST_HOME")) else {
        return;
    };
    let mut settings = settings(&Hub::start(&[]));
    settings.endpoint = url;
    // The parent kills this process, or the download ends first; both are fine here.
    let _ = Store::with_settings(home, settings).resolve(&model(), &Options::default());
}

fn start_child(hub: &Hub, home: &Path) -> Child {
    Command::new(env::current_exe().expect("this binary"))
        .args(["--exact", "kill::child"])
        .env("STORE_TEST_HUB", &hub.url)
        .env("STORE_TEST_HOME", home)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child")
}

fn wait_for_bytes(part: &Path, bytes: u64) {
    let start = Instant::now();
    while fs::metadata(part).map_or(0, |meta| meta.len()) < bytes {
        assert!(start.elapsed() < Duration::from_secs(20), "the child downloads nothing");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn killed_again_and_again() {
    let content = noise(SIZE, 11);
    let hub = Hub::start(&[("m.gguf", &content)]);
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join(format!("models/hf/o/r/{COMMIT}+m.gguf"));
    let (part, whole) = (folder.join("m.gguf.part"), folder.join("m.gguf"));
    for round in 1..=5 {
        hub.faults([Fault::Drip(4000, Duration::from_millis(10))]);
        let mut child = start_child(&hub, home.path());
        wait_for_bytes(&part, round * 50_000);
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(!whole.exists(), "a half file under the final name");
    }
    let store = Store::with_settings(home.path(), settings(&hub));
    let resolved = store.resolve(&model(), &Options::default()).expect("taken up");
    assert!(fs::read(resolved.path).expect("the file") == content);
    let starts: Vec<_> = hub.downloads().iter().map(crate::support::Request::range_start).collect();
    assert_eq!((starts.len(), starts[0]), (6, None));
    assert!(starts.is_sorted() && starts[5] >= Some(250_000), "bytes were lost: {starts:?}");
}
