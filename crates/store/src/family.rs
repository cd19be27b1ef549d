//! One repository or package in the store: which commits or versions of it are on disk, and which of them
//! answer a reference.

use std::fs;
use std::path::{Path, PathBuf};

use crate::alias;
use crate::disk;
use crate::error::StoreError;
use crate::manifest::Manifest;
use crate::reference::ModelRef;
use crate::store::{Entry, Resolved};

/// Start of the names of folders that hold unfinished work; they are never listed, and removed by the next
/// fetch for the same repository or package.
pub(crate) const UNFINISHED: &str = ".tmp-";

/// One repository or package: all its commits or versions in the store, and which of them is asked for.
pub(crate) struct Family {
    /// `models/hf/<owner>/<repository>` or `models/pypi/<package>`.
    pub(crate) folder: PathBuf,
    /// What is asked for; a hub or wheel reference.
    pub(crate) reference: ModelRef,
}

impl Family {
    /// Whether the reference can only ever mean one content.
    pub(crate) fn is_pinned(&self) -> bool {
        match &self.reference {
            ModelRef::Hub(hub) => hub.revision.as_deref().is_some_and(is_commit),
            ModelRef::Wheel(wheel) => wheel.version.is_some(),
            ModelRef::Local(_) | ModelRef::Alias(_) => false,
        }
    }

    /// All that is in the folder, whatever reference it was fetched for. A damaged manifest counts as an
    /// incomplete entry, so that it can be seen and removed.
    pub(crate) fn stored(&self) -> Result<Vec<Stored>, StoreError> {
        let mut all = Vec::new();
        for folder in subfolders(&self.folder)? {
            let manifest = match Manifest::read(&folder) {
                Ok(Some(manifest)) => manifest,
                Ok(None) | Err(StoreError::BadManifest { .. }) => self.unreadable(&folder),
                Err(other) => return Err(other),
            };
            all.push(Stored { folder, manifest });
        }
        Ok(all)
    }

    fn unreadable(&self, folder: &Path) -> Manifest {
        let revision = name_of(folder);
        let references = vec![self.reference.to_string()];
        Manifest { references, revision, fetched_at: 0, complete: false, files: Vec::new() }
    }

    /// The newest complete entry that answers the reference.
    pub(crate) fn newest_intact(&self) -> Result<Option<Stored>, StoreError> {
        let intact = |s: &Stored| s.answers(self) && s.manifest.is_intact(&s.folder);
        Ok(self.stored()?.into_iter().filter(intact).max_by_key(|stored| stored.manifest.fetched_at))
    }

    /// A name for a folder of unfinished work that no other process uses.
    pub(crate) fn unfinished_folder(&self) -> PathBuf {
        let unique = format!("{UNFINISHED}{}-{:?}", std::process::id(), std::thread::current().id());
        self.folder.join(unique.replace(['(', ')'], ""))
    }

    /// Removes what killed processes left; call it with the lock held.
    pub(crate) fn remove_unfinished(&self) -> Result<(), StoreError> {
        for folder in children(&self.folder)? {
            if name_of(&folder).starts_with(UNFINISHED) {
                disk::remove_all(&folder)?;
            }
        }
        Ok(())
    }
}

/// One commit or version on disk.
pub(crate) struct Stored {
    pub(crate) folder: PathBuf,
    pub(crate) manifest: Manifest,
}

impl Stored {
    pub(crate) fn answers(&self, family: &Family) -> bool {
        let any_version = matches!(&family.reference, ModelRef::Wheel(wheel) if wheel.version.is_none());
        any_version
            || self.manifest.references.contains(&family.reference.to_string())
            || self.source() == family.reference
    }

    /// The reference that can only mean this entry.
    fn source(&self) -> ModelRef {
        let parsed: Option<ModelRef> = self.manifest.references.iter().find_map(|text| text.parse().ok());
        parsed.map_or_else(|| ModelRef::Local(self.folder.clone()), |r| r.pinned_to(&self.manifest.revision))
    }

    pub(crate) fn into_resolved(self, reference: &ModelRef, display_name: String) -> Resolved {
        Resolved {
            path: self.manifest.model_path(&self.folder),
            reference: reference.clone(),
            source: self.source(),
            display_name,
            files: self.manifest.files,
        }
    }

    pub(crate) fn into_entry(self) -> Entry {
        let first = self.manifest.references.first().cloned().unwrap_or_else(|| name_of(&self.folder));
        let alias = self.manifest.references.iter().find_map(|reference| alias::of_reference(reference));
        Entry {
            name: alias.map_or(first, |alias| alias.name.to_owned()),
            source: self.source(),
            size: self.manifest.size(),
            path: self.manifest.model_path(&self.folder),
            complete: self.manifest.is_intact(&self.folder),
            fetched_at: self.manifest.fetched_at,
            revision: self.manifest.revision,
            files: self.manifest.files,
            folder: self.folder,
        }
    }
}

/// Whether a revision is a full commit hash, which can't move.
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The entries of a folder; none when it doesn't exist.
fn children(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let listed = match fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(StoreError::io("list", folder)(e)),
    };
    let paths: Result<Vec<_>, _> = listed.map(|entry| entry.map(|e| e.path())).collect();
    let mut paths = paths.map_err(StoreError::io("list", folder))?;
    paths.sort();
    Ok(paths)
}

/// The folders in a folder, hidden ones left out.
pub(crate) fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut paths = children(folder)?;
    paths.retain(|path| path.is_dir() && !name_of(path).starts_with('.'));
    Ok(paths)
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
