//! Answers from files, and files from answers: one folder per host, one file per command.

use super::{MAX_ANSWER_BYTES, Source};
use crate::{Probe, ProbeError};
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Answers from a folder that [`Recording`] wrote.
#[derive(Clone, Debug)]
pub struct Recorded {
    folder: PathBuf,
}

impl Recorded {
    /// Answers from the host folders in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The recorded hosts in alphabetical order: the folders, without those that are hidden.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn hosts(&self) -> Result<Vec<String>, ProbeError> {
        let failed = |error| ProbeError::File { path: self.folder.clone(), error };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() && !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

impl Source for Recorded {
    fn run(&self, host: &str, probe: Probe) -> Result<String, ProbeError> {
        let folder = self.folder.join(host);
        if !folder.is_dir() {
            let error = io::Error::new(io::ErrorKind::NotFound, "no folder of recorded answers");
            return Err(ProbeError::File { path: folder, error });
        }
        let path = folder.join(probe.file());
        match read_bounded(&path) {
            Ok(Some(text)) => Ok(text),
            Ok(None) => {
                let (host, command) = (host.to_owned(), probe.command());
                Err(ProbeError::TooLong { host, command, limit: MAX_ANSWER_BYTES })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ProbeError::Missing { host: host.to_owned(), command: probe.command() })
            }
            Err(error) => Err(ProbeError::File { path, error }),
        }
    }
}

/// The file's text, or nothing when it is too long.
fn read_bounded(path: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_ANSWER_BYTES + 1).read_to_end(&mut bytes)?;
    let fits = bytes.len() as u64 <= MAX_ANSWER_BYTES;
    Ok(fits.then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Passes questions on to another source and keeps what it answers, for [`Recorded`].
#[derive(Debug)]
pub struct Recording<S> {
    source: S,
    folder: PathBuf,
}

impl<S: Source> Recording<S> {
    /// Records the answers of `source` in `folder`, which is made when needed.
    pub fn new(source: S, folder: impl Into<PathBuf>) -> Self {
        Self { source, folder: folder.into() }
    }
}

impl<S: Source> Source for Recording<S> {
    fn run(&self, host: &str, probe: Probe) -> Result<String, ProbeError> {
        let folder = self.folder.join(host);
        let path = folder.join(probe.file());
        let failed = |error| ProbeError::File { path: path.clone(), error };
        fs::create_dir_all(&folder).map_err(failed)?;
        // An answer of an earlier recording must not stand beside today's.
        if path.exists() {
            fs::remove_file(&path).map_err(failed)?;
        }
        let text = self.source.run(host, probe)?;
        fs::write(&path, &text).map_err(failed)?;
        Ok(text)
    }
}
