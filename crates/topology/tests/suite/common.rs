//! The recordings, and files with what is expected.

use pomar_topology::{Backend, Check, Recorded, Report, Request, Survey};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A folder of recorded hosts.
pub(crate) fn fixture(scenario: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(scenario)
}

/// The recorded hosts of a scenario, in alphabetical order.
pub(crate) fn survey(scenario: &str) -> Survey {
    let recorded = Recorded::new(fixture(scenario));
    let survey = Survey::take(&recorded, &recorded.hosts().unwrap());
    assert!(!survey.hosts.is_empty());
    survey
}

pub(crate) fn report(scenario: &str) -> Report {
    Report::new(&survey(scenario), Request::default(), None)
}

pub(crate) fn report_for(scenario: &str, backend: Backend) -> Report {
    Report::new(&survey(scenario), Request { backend: Some(backend), over_lan: false }, None)
}

/// The only finding with this code.
pub(crate) fn check<'a>(report: &'a Report, code: &str) -> &'a Check {
    let found: Vec<_> = report.checks.iter().filter(|check| check.code == code).collect();
    assert_eq!(found.len(), 1, "{code}: {:#?}", report.checks);
    found[0]
}

/// Compares with a file in tests/expected; BLESS=1 writes the file instead.
pub(crate) fn expect(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(file);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(expected == found, "{file} differs; BLESS=1 writes it anew. Found:\n{found}");
}
