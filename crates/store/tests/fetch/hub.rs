//! Whole repositories and single files from a hub that misbehaves in every way we could think of.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{COMMIT, Fault, Hub, files_below, noise, settings};
use pomar_store::{FileState, ModelRef, Options, Settings, Silent, Store, StoreError};
use tempfile::TempDir;

/// A hub with one GGUF file of this many bytes, a store for it, and the reference.
struct Rig {
    hub: Hub,
    home: TempDir,
    content: Vec<u8>,
    model: ModelRef,
}

impl Rig {
    fn new(size: usize) -> Rig {
        let content = noise(size, 7);
        let hub = Hub::start(&[("README.md", b"hello"), ("q4/m.gguf", &content)]);
        let model = "hf:o/r:q4/m.gguf".parse().expect("a reference");
        Rig { hub, home: tempfile::tempdir().expect("a folder"), content, model }
    }

    fn store(&self) -> Store {
        self.store_with(|_| {})
    }

    fn store_with(&self, change: impl FnOnce(&mut Settings)) -> Store {
        let mut settings = settings(&self.hub);
        change(&mut settings);
        Store::with_settings(self.home.path(), settings)
    }

    fn pull(&self) -> Result<PathBuf, StoreError> {
        Ok(self.store().resolve(&self.model, &Options::default())?.path)
    }

    /// Pulls, and demands that the file is whole, nothing else is left, and the store lists it as complete.
    #[track_caller]
    fn must_pull(&self) {
        let path = self.pull().unwrap_or_else(|e| panic!("{e}"));
        assert!(fs::read(&path).expect("the file") == self.content, "the content differs");
        let below = files_below(&self.home.path().join("models"));
        let folder = format!("hf/o/r/{COMMIT}+q4+m.gguf");
        assert_eq!(below, [format!("{folder}/manifest.json"), format!("{folder}/q4/m.gguf")]);
        let entries = self.store().list().expect("a list");
        assert!(entries.len() == 1 && entries[0].complete);
    }

    /// Where each request for the file started, `None` for the whole of it.
    fn starts(&self) -> Vec<Option<usize>> {
        self.hub.downloads().iter().map(crate::support::Request::range_start).collect()
    }

    /// Demands an error that leaves nothing under the final name.
    #[track_caller]
    fn must_fail(&self) -> StoreError {
        let error = self.pull().expect_err("this can't work");
        let below = files_below(&self.home.path().join("models"));
        assert!(!below.iter().any(|name| name.ends_with(".gguf")), "half a file: {below:?}");
        error
    }
}

#[test]
fn a_well_behaved_hub() {
    let rig = Rig::new(300_000);
    rig.must_pull();
    let before = rig.hub.requests().len();
    rig.must_pull();
    assert_eq!(rig.hub.requests().len(), before, "a second resolve must not ask the network");
}

#[test]
fn cut_connections_are_taken_up_where_they_ended() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Cut(1000), Fault::Cut(99_000), Fault::Cut(0)]);
    rig.must_pull();
    assert_eq!(rig.starts(), [None, Some(1000), Some(100_000), Some(100_000)]);
}

#[test]
fn failures_before_useful_progress_do_not_count() {
    let rig = Rig::new(9 << 20);
    rig.hub.faults((0..7).map(|_| Fault::Cut((1 << 20) + 1)));
    rig.must_pull();
}

#[test]
fn failures_without_progress_end_and_the_part_is_kept() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Cut(5000), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0)]);
    let error = rig.must_fail();
    assert!(matches!(error, StoreError::Network { attempts: 4, .. }), "{error}");
    let entries = rig.store().list().expect("a list");
    assert!(entries.len() == 1 && !entries[0].complete);
    rig.must_pull();
    assert_eq!(rig.starts().last(), Some(&Some(5000)));
}

#[test]
fn a_server_that_ignores_range_starts_over_with_that_answer() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Cut(1000), Fault::IgnoreRange]);
    rig.must_pull();
    assert_eq!(rig.starts(), [None, Some(1000)]);
}

#[test]
fn a_server_that_refuses_range_is_asked_for_the_whole() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Cut(1000), Fault::Refuse]);
    rig.must_pull();
    assert_eq!(rig.starts(), [None, Some(1000), None]);
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Refuse, Fault::Refuse]);
    assert!(matches!(rig.must_fail(), StoreError::Status { status: 416, .. }));
    assert_eq!(rig.starts().len(), 1);
}

#[test]
fn a_changed_tag_is_never_spliced() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Cut(1000), Fault::Tag("\"two\"")]);
    rig.must_pull();
    assert_eq!(rig.hub.downloads()[1].header("if-range"), Some("\"one\""));
}

#[test]
fn ranges_of_another_content_or_place_are_never_spliced() {
    for fault in [Fault::TagOfRange("\"two\""), Fault::EarlierRange(10)] {
        let rig = Rig::new(300_000);
        rig.hub.faults([Fault::Cut(1000), fault]);
        rig.must_pull();
        assert_eq!(rig.starts(), [None, Some(1000), None]);
    }
}

#[test]
fn a_part_of_another_content_is_thrown_away() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Cut(5000), Fault::Status(404, None)]);
    rig.must_fail();
    let part = rig.home.path().join(format!("models/hf/o/r/{COMMIT}+q4+m.gguf/q4/m.gguf.part"));
    let sidecar = part.with_extension("part.json");
    let text = fs::read_to_string(&sidecar).expect("a sidecar").replace("300000", "300001");
    fs::write(&sidecar, text).expect("written");
    rig.must_pull();
    assert_eq!(rig.starts().last(), Some(&None));
}

#[test]
fn a_damaged_part_starts_over_once() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Cut(5000), Fault::Status(404, None)]);
    rig.must_fail();
    let part = rig.home.path().join(format!("models/hf/o/r/{COMMIT}+q4+m.gguf/q4/m.gguf.part"));
    fs::write(&part, vec![0; 5000]).expect("written");
    rig.must_pull();
    assert_eq!(rig.starts(), [None, Some(5000), Some(5000), None]);
}

#[test]
fn a_part_that_was_finished_but_not_renamed_needs_no_download() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Cut(5000), Fault::Status(404, None)]);
    rig.must_fail();
    let part = rig.home.path().join(format!("models/hf/o/r/{COMMIT}+q4+m.gguf/q4/m.gguf.part"));
    fs::write(&part, &rig.content).expect("written");
    let before = rig.starts().len();
    rig.must_pull();
    assert_eq!(rig.starts().len(), before);
}

#[test]
fn lies_about_the_length() {
    for length in [1, 299_999, 300_001, u64::MAX] {
        let rig = Rig::new(300_000);
        rig.hub.faults([Fault::Length(length)]);
        let error = rig.must_fail();
        assert!(matches!(error, StoreError::WrongSize { expected: 300_000, .. }), "{length}: {error}");
    }
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::TooLong(1)]);
    assert!(matches!(rig.must_fail(), StoreError::WrongSize { .. }));
    rig.must_pull();
}

#[test]
fn wrong_bytes_are_set_aside() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::WrongByte]);
    let StoreError::WrongHash { set_aside, expected, got, .. } = rig.must_fail() else {
        panic!("another error");
    };
    assert!(set_aside.exists() && expected != got);
    assert_eq!(rig.starts().len(), 1, "a fresh download with a wrong hash is not repeated");
    rig.must_pull();
}

#[test]
fn stalls_and_drips_are_cut_and_taken_up() {
    let rig = Rig::new(300_000);
    let drip = Fault::Drip(10, Duration::from_millis(100));
    rig.hub.faults([Fault::Cut(1000), Fault::Stall(Duration::from_secs(20)), drip]);
    let start = Instant::now();
    rig.must_pull();
    assert!(start.elapsed() < Duration::from_secs(12), "took {:?}", start.elapsed());
    let starts = rig.starts();
    assert!(starts.len() == 4 && starts[3] > Some(1000), "{starts:?}");
}

#[test]
fn refusals_say_what_to_do() {
    for (status, hint) in [(401, "HF_TOKEN"), (403, "accept the model's terms"), (404, "no such repository")]
    {
        let rig = Rig::new(2000);
        rig.hub.faults([Fault::Status(status, None)]);
        let message = rig.must_fail().to_string();
        assert!(message.contains(hint), "{message}");
        assert_eq!(rig.starts().len(), 1, "{status} must not be repeated");
    }
}

#[test]
fn overloaded_servers_are_asked_again_with_a_bounded_wait() {
    let rig = Rig::new(2000);
    rig.hub.faults([
        Fault::Status(429, Some(1_000_000)),
        Fault::Status(500, None),
        Fault::Status(503, Some(1)),
    ]);
    let start = Instant::now();
    rig.must_pull();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(5), "took {took:?}");
    let rig = Rig::new(2000);
    rig.hub.faults((0..10).map(|_| Fault::Status(500, None)));
    assert!(matches!(rig.must_fail(), StoreError::Network { attempts: 4, .. }));
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let rig = Rig::new(2000);
    rig.hub.faults([Fault::Redirect("/cdn/q4/m.gguf?signature=1".into())]);
    rig.must_pull();
    let rig = Rig::new(2000);
    let itself = format!("/o/r/resolve/{COMMIT}/q4/m.gguf");
    rig.hub.faults((0..50).map(|_| Fault::Redirect(itself.clone())));
    assert!(matches!(rig.must_fail(), StoreError::Redirect { .. }));
    assert_eq!(rig.starts().len(), 4);
    let rig = Rig::new(2000);
    rig.hub.faults([Fault::Redirect("file:///etc/passwd".into())]);
    assert!(matches!(rig.must_fail(), StoreError::Redirect { .. }));
}

#[test]
fn the_token_goes_to_the_hub_and_nowhere_else() {
    let rig = Rig::new(2000);
    let elsewhere = Hub::start(&[("q4/m.gguf", &rig.content)]);
    rig.hub.faults([Fault::Redirect(format!("{}/cdn/q4/m.gguf", elsewhere.url))]);
    let store = rig.store_with(|settings| settings.token = Some("hf_secret".into()));
    store.resolve(&rig.model, &Options::default()).expect("pulled");
    let with_token = |r: &crate::support::Request| r.header("authorization") == Some("Bearer hf_secret");
    assert!(rig.hub.requests().iter().all(with_token));
    assert_eq!(elsewhere.requests().len(), 1);
    assert_eq!(elsewhere.requests()[0].header("authorization"), None);
}

#[test]
fn a_full_disk_is_found_out_before_the_first_byte() {
    let rig = Rig::new(2000);
    let store = rig.store_with(|settings| settings.free_space = |_| Ok(1000));
    let error = store.resolve(&rig.model, &Options::default()).expect_err("no room");
    assert!(matches!(error, StoreError::DiskFull { free: 1000, .. }));
    let message = error.to_string();
    assert!(message.contains("1.0 kB free") && message.contains("needed"), "{message}");
    assert!(rig.starts().is_empty());
}

#[test]
fn offline_opens_no_socket_and_says_how_to_get_it() {
    let rig = Rig::new(2000);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    silent.set_nonblocking(true).expect("set");
    let endpoint = format!("http://{}", silent.local_addr().expect("an address"));
    let store = rig.store_with(|settings| settings.endpoint = endpoint);
    let offline = Options { offline: true, refresh: true, ..Options::default() };
    let message = store.resolve(&rig.model, &offline).expect_err("not there").to_string();
    assert!(message.contains("pomar pull hf:o/r:q4/m.gguf"), "{message}");
    let kind = silent.accept().expect_err("nobody came").kind();
    assert_eq!(kind, std::io::ErrorKind::WouldBlock);
    assert!(files_below(rig.home.path()).is_empty());

    rig.must_pull();
    let resolved = store.resolve(&rig.model, &offline).expect("on disk now");
    assert_eq!(resolved.source.to_string(), format!("hf:o/r@{COMMIT}:q4/m.gguf"));
    let pinned = store.resolve(&resolved.source, &offline).expect("the pinned name finds it too");
    assert_eq!(pinned.path, resolved.path);
    assert!(silent.accept().is_err());
}

#[test]
fn a_checkpoint_comes_whole_and_only_what_is_needed() {
    let weights = noise(50_000, 3);
    let hub = Hub::start(&[
        ("README.md", b"hello"),
        ("config.json", b"{}"),
        ("tokenizer.json", b"{\"a\": 1}"),
        ("model.safetensors", &weights),
        ("pytorch_model.bin", b"no"),
        ("original/config.json", b"no"),
    ]);
    let home = tempfile::tempdir().expect("a folder");
    let store = Store::with_settings(home.path(), settings(&hub));
    let model: ModelRef = "hf:o/r@v1/x".parse().expect("a reference");
    hub.faults([Fault::Fine, Fault::Fine, Fault::Status(404, None)]);
    store.resolve(&model, &Options::default()).expect_err("the third file is refused");
    assert!(!store.list().expect("a list")[0].complete);
    let resolved = store.resolve(&model, &Options::default()).expect("pulled");
    assert_eq!(resolved.path, home.path().join(format!("models/hf/o/r/{COMMIT}")));
    let names = ["config.json", "manifest.json", "model.safetensors", "tokenizer.json"];
    assert_eq!(files_below(&resolved.path), names);
    assert_eq!(hub.downloads().len(), 4, "files that were there are not fetched again");
    assert!(hub.requests()[0].path.ends_with("/revision/v1%2Fx"));

    let main: ModelRef = "hf:o/r".parse().expect("a reference");
    let same = store.resolve(&main, &Options::default()).expect("the same commit");
    assert_eq!((same.path, hub.downloads().len()), (resolved.path.clone(), 4));
    let offline = Options { offline: true, ..Options::default() };
    store.resolve(&model, &offline).expect("both names are known");

    let entry = store.list().expect("a list").remove(0);
    assert_eq!(entry.size, 2 + 8 + 50_000);
    let good = store.verify(&entry, &Silent).expect("readable");
    assert!(good.iter().all(|check| check.state == FileState::Good));
    damage(&resolved.path);
    let states: Vec<_> =
        store.verify(&entry, &Silent).expect("readable").into_iter().map(|c| c.state).collect();
    assert!(matches!(states[..], [FileState::WrongHash(_), FileState::Missing, FileState::WrongSize(3)]));
    store.resolve(&main, &Options::default()).expect("mended");
    assert!(store.verify(&entry, &Silent).expect("readable").iter().all(|c| c.state == FileState::Good));

    assert_eq!(store.remove(&main).expect("removed").bytes, entry.size);
    assert!(matches!(store.remove(&main), Err(StoreError::NotStored { .. })));
    assert!(files_below(&home.path().join("models")).is_empty());
    assert!(matches!(store.remove(&ModelRef::Local(home.path().into())), Err(StoreError::NotOurs { .. })));
}

fn damage(folder: &Path) {
    fs::write(folder.join("config.json"), "[]").expect("written");
    fs::remove_file(folder.join("tokenizer.json")).expect("removed");
    fs::write(folder.join("model.safetensors"), "abc").expect("written");
}

#[test]
fn a_hub_that_lists_names_outside_the_folder_is_refused() {
    let hub = Hub::start(&[("config.json", b"{}"), ("../../evil.safetensors", b"x")]);
    let home = tempfile::tempdir().expect("a folder");
    let store = Store::with_settings(home.path(), settings(&hub));
    let error = store.resolve(&"hf:o/r".parse().expect("a reference"), &Options::default());
    assert!(matches!(error, Err(StoreError::BadAnswer { .. })));
}

#[test]
fn two_at_once_download_once() {
    let rig = Rig::new(300_000);
    rig.hub.faults([Fault::Drip(50_000, Duration::from_millis(50))]);
    std::thread::scope(|scope| {
        let both = [scope.spawn(|| rig.pull()), scope.spawn(|| rig.pull())];
        for one in both {
            one.join().expect("no panic").expect("pulled");
        }
    });
    assert_eq!(rig.starts().len(), 1);
    rig.must_pull();
}

#[test]
fn a_damaged_manifest_is_seen_and_mended() {
    let rig = Rig::new(2000);
    rig.must_pull();
    let manifest = rig.home.path().join(format!("models/hf/o/r/{COMMIT}+q4+m.gguf/manifest.json"));
    fs::write(manifest, "{\"files\":").expect("written");
    assert!(!rig.store().list().expect("a list")[0].complete);
    rig.must_pull();
    assert_eq!(rig.starts().len(), 1, "the file itself was fine");
}

#[test]
fn an_empty_file_is_a_file() {
    let hub = Hub::start(&[("config.json", b"{}"), ("merges.txt", b""), ("model.safetensors", b"x")]);
    let home = tempfile::tempdir().expect("a folder");
    let store = Store::with_settings(home.path(), settings(&hub));
    let model = "hf:o/r".parse().expect("a reference");
    let resolved = store.resolve(&model, &Options::default()).expect("pulled");
    assert_eq!(fs::metadata(resolved.path.join("merges.txt")).expect("there").len(), 0);
}

#[test]
fn a_branch_that_moves_is_followed_only_when_asked() {
    let rig = Rig::new(2000);
    rig.must_pull();
    let next = "f".repeat(40);
    rig.hub.move_main(&next);
    rig.must_pull();
    let refresh = Options { refresh: true, ..Options::default() };
    let moved = rig.store().resolve(&rig.model, &refresh).expect("pulled");
    assert_eq!(moved.source.to_string(), format!("hf:o/r@{next}:q4/m.gguf"));
    assert_eq!(rig.store().list().expect("a list").len(), 2);
    let offline = Options { offline: true, ..Options::default() };
    let old = format!("hf:o/r@{COMMIT}:q4/m.gguf").parse().expect("a reference");
    rig.store().resolve(&old, &offline).expect("the old commit is still there by its own name");
}

#[test]
fn a_configuration_comes_without_the_weights() {
    let hub = Hub::start(&[("config.json", b"{\"layers\": 2}"), ("model.safetensors", &noise(4096, 3))]);
    let home = tempfile::tempdir().expect("a folder");
    let store = Store::with_settings(home.path(), settings(&hub));
    let ModelRef::Hub(reference) = "hf:o/r".parse().expect("a reference") else { panic!("no hub") };
    assert_eq!(store.config(&reference).expect("a configuration"), b"{\"layers\": 2}");
    assert_eq!(hub.downloads().len(), 1);
    assert!(files_below(home.path()).is_empty());
    let ModelRef::Hub(missing) = "hf:o/other".parse().expect("a reference") else { panic!("no hub") };
    assert!(store.config(&missing).is_err());
}
