//! The line of shell that turns a waiting shell into a rank.

use super::{Process, Value};
use crate::{
    job::Directory,
    quote::{quote, quote_all},
};

/// Unsets and sets variables, changes the folder and replaces the shell by the program. It reaches the shell over
/// standard input, so nothing of it, the key least of all, is on a command line that other users can see.
pub(crate) fn setup_line(process: &Process, folder: &str, key: &str) -> String {
    let mut parts = Vec::new();
    if !process.unset.is_empty() {
        parts.push(format!("unset {}", process.unset.join(" ")));
    }
    for (name, value) in &process.env {
        let value = match value {
            Value::Text(text) => text.clone(),
            Value::File(file) => format!("{folder}/{file}"),
            Value::Key => key.into(),
        };
        parts.push(format!("export {name}={}", quote(&value)));
    }
    parts.push(match &process.directory {
        Directory::Try(path) => format!("cd {} 2>/dev/null || true", quote(path)),
        Directory::Must(path) => format!("cd {} || exit 126", quote(path)),
    });
    parts.push(format!("exec {}", quote_all(&process.command)));
    parts.join("; ")
}
