//! Reading stored files again to see whether they still are what was fetched.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::StoreError;
use crate::hash::sha256_of_file;
use crate::manifest::FileRecord;
use crate::progress::{Job, Progress};

/// One file, looked at again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCheck {
    /// Path inside the model's folder.
    pub name: String,
    /// How it was found.
    pub state: FileState,
}

/// How a file was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// Size and hash are those recorded.
    Good,
    /// It isn't there.
    Missing,
    /// It has this many bytes instead of those recorded.
    WrongSize(u64),
    /// It has this SHA-256 (hex) instead of the one recorded.
    WrongHash(String),
    /// It has its size; no hash was recorded.
    SizeOnly,
}

/// Checks files of `folder` against their records, in order.
pub(crate) fn check_files(
    folder: &Path,
    label: &str,
    files: &[FileRecord],
    progress: &dyn Progress,
) -> Result<Vec<FileCheck>, StoreError> {
    let total = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
    let job = Job::start(progress, &format!("checking {label}"), Some(total));
    let mut done = 0u64;
    let mut checks = Vec::with_capacity(files.len());
    for file in files {
        let state = check_file(&folder.join(&file.name), file, |bytes| {
            done = done.saturating_add(bytes);
            job.at(done);
        })?;
        checks.push(FileCheck { name: file.name.clone(), state });
    }
    Ok(checks)
}

fn check_file(path: &Path, file: &FileRecord, each: impl FnMut(u64)) -> Result<FileState, StoreError> {
    let size = match fs::metadata(path) {
        Ok(meta) => meta.len(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(FileState::Missing),
        Err(e) => return Err(StoreError::io("read", path)(e)),
    };
    if size != file.size {
        return Ok(FileState::WrongSize(size));
    }
    let Some(recorded) = &file.sha256 else {
        return Ok(FileState::SizeOnly);
    };
    let found = sha256_of_file(path, each).map_err(StoreError::io("read", path))?;
    Ok(if *recorded == found { FileState::Good } else { FileState::WrongHash(found) })
}
