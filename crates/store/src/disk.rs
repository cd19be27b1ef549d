//! Small promises that file systems make only when asked properly: room, durability, whole files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// Kept free beyond what a download needs, so that it never fills the disk to the last byte.
pub(crate) const RESERVE: u64 = 64 << 20;

/// Bytes that an ordinary user can still write on the disk that holds `folder` (statvfs).
///
/// # Errors
/// What the system says, for instance that the folder doesn't exist.
pub fn free_space(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Fails when `bytes` more and the reserve don't fit on the disk of `folder`. Nothing to write always fits.
pub(crate) fn check_space(
    folder: &Path,
    bytes: u64,
    free_space: fn(&Path) -> io::Result<u64>,
) -> Result<(), StoreError> {
    if bytes == 0 {
        return Ok(());
    }
    let free = free_space(folder).map_err(StoreError::io("see the free space of", folder))?;
    let needed = bytes.saturating_add(RESERVE);
    if needed > free {
        return Err(StoreError::DiskFull { path: folder.to_owned(), needed, free });
    }
    Ok(())
}

/// Makes a folder and its parents.
pub(crate) fn create_folder(folder: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(folder).map_err(StoreError::io("make the folder", folder))
}

/// Makes the folder that `path` will be in.
pub(crate) fn create_parent(path: &Path) -> Result<(), StoreError> {
    path.parent().map_or(Ok(()), create_folder)
}

/// Gives a finished file its final name, so that after a crash the name is either absent or stands for all of
/// it: the content reaches the disk first, then the name, then the folder that holds the name.
pub(crate) fn publish(file: &File, from: &Path, to: &Path) -> Result<(), StoreError> {
    file.sync_all().map_err(StoreError::io("write", from))?;
    rename_durably(from, to)
}

/// Gives a finished folder its final name; its files must be on disk already.
pub(crate) fn publish_folder(from: &Path, to: &Path) -> Result<(), StoreError> {
    sync_folder(from)?;
    rename_durably(from, to)
}

fn rename_durably(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(StoreError::io("rename to", to))?;
    sync_folder(to.parent().unwrap_or(Path::new(".")))
}

fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    match File::open(folder).and_then(|dir| dir.sync_all()) {
        // Some network file systems can't sync a folder; then the name is as safe as they make it.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        other => other.map_err(StoreError::io("write", folder)),
    }
}

/// Replaces a small file in one step: after a crash it is the old one or the new one.
///
/// # Errors
/// [`StoreError::Io`] when the folder is not there or can't be written.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let temporary = with_suffix(path, ".new");
    let mut file = File::create(&temporary).map_err(StoreError::io("write", &temporary))?;
    file.write_all(content).map_err(StoreError::io("write", &temporary))?;
    publish(&file, &temporary, path)
}

/// Removes a file or folder with all it holds; one that isn't there is fine.
pub(crate) fn remove_all(path: &Path) -> Result<(), StoreError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// `path` with `suffix` behind its last component.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_checked_with_a_reserve() {
        let here = Path::new(".");
        let free: fn(&Path) -> io::Result<u64> = |_| Ok(RESERVE + 100);
        assert!(check_space(here, 100, free).is_ok());
        assert!(check_space(here, 0, |_| Ok(0)).is_ok());
        let error = check_space(here, 101, free).expect_err("one byte too many");
        let StoreError::DiskFull { needed, free: left, .. } = error else {
            panic!("another error: {error}");
        };
        assert_eq!((needed, left), (RESERVE + 101, RESERVE + 100));
        assert!(check_space(here, u64::MAX, free).is_err());
    }

    #[test]
    fn the_real_disk_has_some_space() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(free_space(dir.path()).expect("statvfs") > 0);
        assert!(free_space(&dir.path().join("absent")).is_err());
    }

    #[test]
    fn atomic_write_replaces_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x");
        write_atomically(&path, b"one").expect("written");
        write_atomically(&path, b"two").expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
        remove_all(&path).expect("removed");
        remove_all(&path).expect("absent is fine");
    }
}
