//! What the environment may change: where the hub is, who asks, which interpreter runs pip, how long to wait.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, io};

/// Where and how a store fetches.
#[derive(Clone)]
pub struct Settings {
    /// Address of the model hub, without a slash at its end.
    pub endpoint: String,
    /// Token for the hub. Sent to the hub's own host only, and only over TLS or on loopback.
    pub token: Option<String>,
    /// The Python interpreter whose pip fetches wheels: a name looked up in `PATH`, or an absolute path.
    pub python: PathBuf,
    /// Waiting times and retry counts.
    pub limits: Limits,
    /// Free bytes for the user on the disk that holds a folder.
    pub free_space: fn(&Path) -> io::Result<u64>,
}

/// Waiting times and retry counts. Every wait of the store is bounded by one of them.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// For the head of an answer, and for each next piece of a body.
    pub stall: Duration,
    /// A body that brings fewer than [`Limits::min_bytes`] in this time is cut and asked for again.
    pub slow_window: Duration,
    /// See [`Limits::slow_window`].
    pub min_bytes: u64,
    /// Failures in a row, without a useful amount of new bytes between them, before giving up.
    pub failures: u32,
    /// Wait after the first failure; doubles with each further one.
    pub first_wait: Duration,
    /// Longest wait between attempts, also when the server asks for more with `Retry-After`.
    pub longest_wait: Duration,
    /// Redirects followed for one request.
    pub redirects: u32,
    /// For a lock that another process holds.
    pub lock: Duration,
    /// For one run of pip.
    pub pip: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(20),
            stall: Duration::from_secs(30),
            slow_window: Duration::from_secs(60),
            min_bytes: 64 * 1024,
            failures: 5,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            redirects: 8,
            lock: Duration::from_secs(6 * 3600),
            pip: Duration::from_secs(2 * 3600),
        }
    }
}

impl Settings {
    /// Reads `HF_ENDPOINT` (default: the public hub) and `HF_TOKEN`; everything else has its default.
    pub fn from_env() -> Self {
        let variable = |name| env::var(name).ok().filter(|value| !value.trim().is_empty());
        Settings {
            endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()),
            token: variable("HF_TOKEN").map(|token| token.trim().to_owned()),
            python: PathBuf::from("python3"),
            limits: Limits::default(),
            free_space: crate::disk::free_space,
        }
    }
}

/// Never shows the token.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "..."))
            .field("python", &self.python)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_not_shown() {
        let settings = Settings { token: Some("hf_secret".into()), ..Settings::from_env() };
        assert!(!format!("{settings:?}").contains("secret"));
    }
}
