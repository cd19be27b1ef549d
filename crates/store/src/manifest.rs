//! `manifest.json`: what a folder of the store holds, and whether all of it is there.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::disk;
use crate::error::StoreError;
use crate::names::is_safe_relative;

/// Name of the manifest in its folder.
pub(crate) const FILE_NAME: &str = "manifest.json";

/// Largest manifest that is read, in bytes.
const MAX_SIZE: u64 = 4 << 20;

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Path inside the model's folder, with `/` between folders.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content in lower-case hex; `None` for a user's own files and before a download is done.
    pub sha256: Option<String>,
}

/// What a folder of the store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The references that this folder answers; the first is the one it was first fetched for.
    pub(crate) references: Vec<String>,
    /// Commit of the repository, or version of the package.
    pub(crate) revision: String,
    /// When the source last named this content, in seconds since 1970, UTC.
    pub(crate) fetched_at: u64,
    /// Whether every file was fetched and checked.
    pub(crate) complete: bool,
    /// The files.
    pub(crate) files: Vec<FileRecord>,
}

impl Manifest {
    /// Reads the manifest of a folder; `None` when there is none.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, StoreError> {
        let path = folder.join(FILE_NAME);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(StoreError::io("read", &path)(e)),
        };
        let mut text = Vec::new();
        file.take(MAX_SIZE).read_to_end(&mut text).map_err(StoreError::io("read", &path))?;
        let bad = |why: String| StoreError::BadManifest { path: path.clone(), why };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        match manifest.files.iter().find(|file| !is_safe_relative(&file.name)) {
            Some(file) => Err(bad(format!("file name {:?} leads out of the folder", file.name))),
            None => Ok(Some(manifest)),
        }
    }

    /// Writes the manifest in one step: a reader sees the old one or the new one.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(FILE_NAME);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| StoreError::BadManifest { path: path.clone(), why: e.to_string() })?;
        disk::write_atomically(&path, &text)
    }

    /// Whether everything was fetched, and every file still has its size.
    pub(crate) fn is_intact(&self, folder: &Path) -> bool {
        self.complete && self.files.iter().all(|file| has_size(&folder.join(&file.name), file.size))
    }

    /// Total size of the files in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// Adds a reference that this folder answers too.
    pub(crate) fn answer(&mut self, reference: String) {
        if !self.references.contains(&reference) {
            self.references.push(reference);
        }
    }

    /// What a loader is given: the file where it is a single GGUF, else the folder.
    pub(crate) fn model_path(&self, folder: &Path) -> PathBuf {
        match self.files.as_slice() {
            [only] if crate::reference::has_gguf_suffix(&only.name) => folder.join(&only.name),
            _ => folder.to_owned(),
        }
    }
}

/// Whether a regular file of that size is at `path`.
pub(crate) fn has_size(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == size)
}

/// Seconds since 1970, UTC; 0 on a machine whose clock is before that.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> Manifest {
        Manifest {
            references: vec!["hf:a/b".into()],
            revision: "c0ffee".into(),
            fetched_at: 1,
            complete: true,
            files: vec![FileRecord { name: name.into(), size: 3, sha256: None }],
        }
    }

    #[test]
    fn round_trip_and_intactness() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(Manifest::read(dir.path()).expect("none is no error").is_none());
        let manifest = sample("model.gguf");
        manifest.write(dir.path()).expect("written");
        assert_eq!(Manifest::read(dir.path()).expect("read"), Some(manifest.clone()));
        assert!(!manifest.is_intact(dir.path()));
        fs::write(dir.path().join("model.gguf"), "abc").expect("written");
        assert!(manifest.is_intact(dir.path()));
        assert_eq!(manifest.model_path(dir.path()), dir.path().join("model.gguf"));
    }

    #[test]
    fn a_manifest_cannot_point_outside() {
        let dir = tempfile::tempdir().expect("a folder");
        sample("../secret").write(dir.path()).expect("written");
        assert!(matches!(Manifest::read(dir.path()), Err(StoreError::BadManifest { .. })));
        fs::write(dir.path().join(FILE_NAME), "{").expect("written");
        assert!(matches!(Manifest::read(dir.path()), Err(StoreError::BadManifest { .. })));
    }
}
