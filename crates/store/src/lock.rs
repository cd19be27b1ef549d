//! One process at a time per repository or package.
//!
//! The lock is the system's (`flock`), so it goes with its process however that ends. Lock files stay:
//! removing one that another process just opened would let two of them in.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::disk;
use crate::error::StoreError;
use crate::progress::Progress;

/// How often a waiting process looks again.
const POLL: Duration = Duration::from_millis(100);

/// A held lock; given back when dropped.
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Waits for the lock up to `limit`, and says once that it is waiting.
    pub(crate) fn acquire(
        path: &Path,
        what: &str,
        limit: Duration,
        progress: &dyn Progress,
    ) -> Result<Self, StoreError> {
        let file = open(path)?;
        let start = Instant::now();
        let mut told = false;
        while !try_lock(&file, path)? {
            if start.elapsed() >= limit {
                return Err(StoreError::Busy { what: what.to_owned(), waited: limit });
            }
            if !told {
                progress.note(&format!("another pomar process is fetching {what}; waiting for it"));
                told = true;
            }
            thread::sleep(POLL);
        }
        Ok(Lock { file })
    }

    /// Takes the lock or fails at once.
    pub(crate) fn try_acquire(path: &Path, what: &str) -> Result<Self, StoreError> {
        let file = open(path)?;
        if try_lock(&file, path)? {
            return Ok(Lock { file });
        }
        Err(StoreError::Busy { what: what.to_owned(), waited: Duration::ZERO })
    }
}

impl Drop for Lock {
    /// Closing the file would give the lock back too, but not while a process that another thread is just
    /// starting has a copy of it.
    fn drop(&mut self) {
        // The system gives it back at the latest when this process ends.
        let _ = self.file.unlock();
    }
}

fn open(path: &Path) -> Result<File, StoreError> {
    disk::create_parent(path)?;
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(StoreError::io("open the lock", path))
}

fn try_lock(file: &File, path: &Path) -> Result<bool, StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(StoreError::io("lock", path)(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[test]
    fn the_second_waits_and_gives_up() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("locks/a.lock");
        let first = Lock::try_acquire(&path, "a").expect("free");
        assert!(matches!(Lock::try_acquire(&path, "a"), Err(StoreError::Busy { .. })));
        let short = Duration::from_millis(50);
        assert!(matches!(Lock::acquire(&path, "a", short, &Silent), Err(StoreError::Busy { .. })));
        drop(first);
        assert!(Lock::acquire(&path, "a", short, &Silent).is_ok());
    }
}
