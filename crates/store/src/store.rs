//! The store: what is on disk, and what must be fetched.

use std::fs;
use std::path::{Path, PathBuf};

use crate::alias::{self, Alias, KnownFile};
use crate::disk;
use crate::error::StoreError;
use crate::family::{Family, Stored, name_of, subfolders};
use crate::fetch::{self, Context};
use crate::hub;
use crate::local;
use crate::lock::Lock;
use crate::manifest::FileRecord;
use crate::progress::{Progress, Silent};
use crate::reference::{HubRef, ModelRef, WheelRef};
use crate::settings::Settings;
use crate::verify::{self, FileCheck};

/// The models on this machine, under one folder.
#[derive(Debug, Clone)]
pub struct Store {
    home: PathBuf,
    settings: Settings,
}

/// How [`Store::resolve`] may go about it.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Open no socket and run no pip: what isn't on disk is an error.
    pub offline: bool,
    /// Ask the source again whether a branch or an unversioned package has moved on. Otherwise a model that
    /// was fetched once stays at that commit or version, and using it needs no network.
    pub refresh: bool,
    /// Hears how far a download is.
    pub progress: &'a dyn Progress,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { offline: false, refresh: false, progress: &Silent }
    }
}

/// A model that is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// A folder with a `config.json`, or a `.gguf` file.
    pub path: PathBuf,
    /// What was asked for.
    pub reference: ModelRef,
    /// Where it came from, with its commit or version; equals [`Resolved::reference`] for local files.
    pub source: ModelRef,
    /// A short name for people and for the `model` field of an API.
    pub display_name: String,
    /// The files of the model.
    pub files: Vec<FileRecord>,
}

/// A model that the store holds, wholly or in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The alias, where one stands for it; else its reference.
    pub name: String,
    /// Where it came from, with its commit or version.
    pub source: ModelRef,
    /// Commit or version.
    pub revision: String,
    /// Size of all files in bytes, once complete.
    pub size: u64,
    /// What a loader is given: a folder, or a `.gguf` file.
    pub path: PathBuf,
    /// The store's folder for it.
    pub folder: PathBuf,
    /// Whether every file is there with its size. Resolve it again to fetch the rest.
    pub complete: bool,
    /// When its source last named this content, in seconds since 1970, UTC.
    pub fetched_at: u64,
    /// The files.
    pub files: Vec<FileRecord>,
}

/// What [`Store::remove`] removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The folders that are gone.
    pub folders: Vec<PathBuf>,
    /// Bytes that their files had.
    pub bytes: u64,
}

impl Store {
    /// The store in `home` with the settings of the environment. Touches nothing yet.
    pub fn open(home: impl Into<PathBuf>) -> Self {
        Self::with_settings(home, Settings::from_env())
    }

    /// The store in `home` with these settings.
    pub fn with_settings(home: impl Into<PathBuf>, settings: Settings) -> Self {
        let home = home.into();
        // A later change of the working directory must not move the store.
        let home = std::path::absolute(&home).unwrap_or(home);
        Store { home, settings }
    }

    /// The folder of the store.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Finds a model on disk, fetching what is missing unless that is forbidden.
    ///
    /// An alias is looked for on disk at all its sources before any is asked; the next source is asked only
    /// when one can't be reached (a wrong hash is final).
    ///
    /// # Errors
    /// Any [`StoreError`]; each says what to do. A failed download keeps what it received.
    pub fn resolve(&self, reference: &ModelRef, options: &Options<'_>) -> Result<Resolved, StoreError> {
        match reference {
            ModelRef::Local(path) => local::resolve(path),
            ModelRef::Alias(name) => {
                let alias = alias::find(name).ok_or_else(|| StoreError::UnknownModel {
                    given: name.clone(),
                    known: alias::known_names(),
                })?;
                self.resolve_alias(alias, options)
            }
            ModelRef::Hub(_) | ModelRef::Wheel(_) => {
                let family = self.family_of(reference)?;
                let stored = self.resolve_source(&family, None, options)?;
                Ok(stored.into_resolved(reference, reference.to_string()))
            }
        }
    }

    /// The `config.json` of a repository of the hub, without its weights; nothing is kept.
    ///
    /// # Errors
    /// Any [`StoreError`] of asking the hub.
    pub fn config(&self, hub: &HubRef) -> Result<Vec<u8>, StoreError> {
        hub::config(hub, &self.settings)
    }

    /// Everything that the store holds, by name.
    ///
    /// # Errors
    /// [`StoreError::Io`] when a folder can't be read.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for family in self.families()? {
            entries.extend(family.stored()?.into_iter().map(Stored::into_entry));
        }
        entries.sort_by(|a, b| (&a.name, &a.revision).cmp(&(&b.name, &b.revision)));
        Ok(entries)
    }

    /// Removes what the store holds for a reference; for an alias, whatever came from any of its sources.
    /// A process that has the files mapped keeps them until it ends.
    ///
    /// # Errors
    /// [`StoreError::NotStored`], [`StoreError::NotOurs`] for local files, [`StoreError::Busy`] while another
    /// process fetches it, [`StoreError::Io`].
    pub fn remove(&self, reference: &ModelRef) -> Result<Removed, StoreError> {
        let mut removed = Removed { folders: Vec::new(), bytes: 0 };
        for source in sources_of(reference)? {
            let family = self.family_of(&source)?;
            self.remove_from(&family, &mut removed)?;
        }
        if removed.folders.is_empty() {
            return Err(StoreError::NotStored { reference: reference.to_string() });
        }
        Ok(removed)
    }

    /// Reads every file of an entry again and compares it with its recorded size and SHA-256.
    ///
    /// # Errors
    /// [`StoreError::Io`] when a file can't be read; differences are no error, they are in the answer.
    pub fn verify(&self, entry: &Entry, progress: &dyn Progress) -> Result<Vec<FileCheck>, StoreError> {
        verify::check_files(&entry.folder, &entry.name, &entry.files, progress)
    }

    fn resolve_alias(&self, alias: &Alias, options: &Options<'_>) -> Result<Resolved, StoreError> {
        let asked = ModelRef::Alias(alias.name.to_owned());
        let mut sources = Vec::new();
        for source in alias.sources {
            let family = self.family_of(&source.reference.parse()?)?;
            let on_disk = family.newest_intact()?.is_some();
            sources.push((!on_disk, family, source.file));
        }
        // A source that is on disk comes first; the sort is stable, so else the table's order holds.
        sources.sort_by_key(|(absent, ..)| *absent);
        let mut tried = String::new();
        for (_, family, file) in &sources {
            match self.resolve_source(family, *file, options) {
                Ok(stored) => return Ok(stored.into_resolved(&asked, alias.name.to_owned())),
                Err(StoreError::Offline { .. }) => {
                    let (reference, missing) = (alias.name.to_owned(), alias.about.to_owned());
                    return Err(StoreError::Offline { reference, missing });
                }
                Err(error) if error.is_unreachable() => {
                    let line = format!("{}: {error}", family.reference);
                    options.progress.note(&line);
                    tried = tried + &line + "\n";
                }
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::AllSources { alias: alias.name.to_owned(), tried: tried.trim_end().to_owned() })
    }

    /// One source: from disk when it is there and needn't be asked again, else fetched.
    fn resolve_source(
        &self,
        family: &Family,
        known: Option<KnownFile>,
        options: &Options<'_>,
    ) -> Result<Stored, StoreError> {
        let may_move = options.refresh && !options.offline && !family.is_pinned();
        if !may_move && let Some(stored) = family.newest_intact()? {
            return Ok(stored);
        }
        if options.offline {
            let reference = family.reference.to_string();
            return Err(StoreError::Offline { missing: reference.clone(), reference });
        }
        let context = Context { settings: &self.settings, progress: options.progress };
        let _lock = self.lock(family, options.progress)?;
        // Another process may have fetched it while this one waited.
        if !may_move && let Some(stored) = family.newest_intact()? {
            return Ok(stored);
        }
        family.remove_unfinished()?;
        fetch::fetch(family, known, &context)
    }

    fn remove_from(&self, family: &Family, removed: &mut Removed) -> Result<(), StoreError> {
        let doomed: Vec<_> = family.stored()?.into_iter().filter(|stored| stored.answers(family)).collect();
        if doomed.is_empty() {
            return Ok(());
        }
        let _lock = Lock::try_acquire(&self.lock_path(family), &family.reference.to_string())?;
        for stored in doomed {
            // Out of sight in one step first: a removal that is cut short leaves no half model behind.
            let aside = family.unfinished_folder();
            fs::rename(&stored.folder, &aside).map_err(StoreError::io("remove", &stored.folder))?;
            disk::remove_all(&aside)?;
            removed.bytes = removed.bytes.saturating_add(stored.manifest.size());
            removed.folders.push(stored.folder);
        }
        remove_empty_parents(&family.folder, &self.models());
        Ok(())
    }

    fn lock(&self, family: &Family, progress: &dyn Progress) -> Result<Lock, StoreError> {
        let what = family.reference.to_string();
        Lock::acquire(&self.lock_path(family), &what, self.settings.limits.lock, progress)
    }

    fn lock_path(&self, family: &Family) -> PathBuf {
        let relative = family.folder.strip_prefix(self.models()).unwrap_or(&family.folder);
        let words: Vec<_> = relative.iter().map(|word| word.to_string_lossy()).collect();
        self.home.join("locks").join(words.join("--") + ".lock")
    }

    fn models(&self) -> PathBuf {
        self.home.join("models")
    }

    fn family_of(&self, reference: &ModelRef) -> Result<Family, StoreError> {
        let relative = match reference {
            ModelRef::Hub(HubRef { owner, repo, .. }) => Path::new("hf").join(owner).join(repo),
            ModelRef::Wheel(WheelRef { package, .. }) => Path::new("pypi").join(package),
            ModelRef::Alias(_) | ModelRef::Local(_) => {
                return Err(StoreError::NotStored { reference: reference.to_string() });
            }
        };
        Ok(Family { folder: self.models().join(relative), reference: reference.clone() })
    }

    /// Every repository and package that has a folder.
    fn families(&self) -> Result<Vec<Family>, StoreError> {
        let mut references = Vec::new();
        for owner in subfolders(&self.models().join("hf"))? {
            for repo in subfolders(&owner)? {
                references.push(format!("hf:{}/{}", name_of(&owner), name_of(&repo)));
            }
        }
        for package in subfolders(&self.models().join("pypi"))? {
            references.push(format!("pypi:{}", name_of(&package)));
        }
        // A folder whose name is no reference was made by someone else.
        references.iter().filter_map(|text| text.parse().ok()).map(|r| self.family_of(&r)).collect()
    }
}

/// The hub and wheel references behind a reference.
fn sources_of(reference: &ModelRef) -> Result<Vec<ModelRef>, StoreError> {
    match reference {
        ModelRef::Local(path) => Err(StoreError::NotOurs { path: path.clone() }),
        ModelRef::Alias(name) => {
            let sources = alias::find(name).map_or(&[][..], |alias| alias.sources);
            sources.iter().map(|source| source.reference.parse()).collect()
        }
        ModelRef::Hub(_) | ModelRef::Wheel(_) => Ok(vec![reference.clone()]),
    }
}

/// Removes a folder and its parents below `top` as long as they are empty. Leaving one behind is harmless.
fn remove_empty_parents(folder: &Path, top: &Path) {
    let inside = folder.ancestors().take_while(|path| *path != top);
    let _ = inside.map(fs::remove_dir).find(Result::is_err);
}
