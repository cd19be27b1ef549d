//! A home for the tests' models, and the command.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// Workspace root.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A file or folder under tests/fixtures.
pub(crate) fn fixture(path: &str) -> PathBuf {
    root().join("tests/fixtures").join(path)
}

/// The command, with a home of the tests' own.
pub(crate) fn pomar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pomar"));
    command.args(arguments).env("POMAR_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/home"));
    command
}

/// Runs a command that must succeed; its standard output.
pub(crate) fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Runs a command that must fail; its standard error.
pub(crate) fn failure(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(!status.success(), "{command:?} succeeded:\n{}", String::from_utf8_lossy(&stdout));
    String::from_utf8_lossy(&stderr).into_owned()
}

/// SmolLM2's GGUF file, fetched by the command itself the first time.
pub(crate) fn smollm2() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let pulled = output(&mut pomar(&["pull", "smollm2", "--json"]));
        let pulled: serde_json::Value = serde_json::from_str(&pulled).unwrap();
        pulled["path"].as_str().unwrap().into()
    })
}
