//! What a user gets on a machine without RDMA. The tests with devices are those of `pomar-fake-verbs`.

use pomar_verbs::{Library, VerbsError};
use std::path::Path;

#[test]
fn a_missing_library_names_the_file_and_what_to_do() {
    let error = Library::open(Path::new("/nowhere/libibverbs.so.1")).expect_err("there is none");
    assert!(matches!(error, VerbsError::NoLibrary { .. }));
    let text = error.to_string();
    assert!(text.starts_with("no RDMA verbs library: /nowhere/libibverbs.so.1 ("), "{text}");
    assert!(text.contains("install") || text.contains("rdma_ctl"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn another_library_names_the_function_it_lacks() {
    let error = Library::open(Path::new("libc.so.6")).expect_err("the C library");
    let text = error.to_string();
    assert!(text.starts_with("libc.so.6 has no function ibv_get_device_list"), "{text}");
}
