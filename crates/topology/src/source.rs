//! Where answers come from: hosts over ssh, or files that were recorded earlier.

mod child;
mod recorded;
mod ssh;

pub use recorded::{Recorded, Recording};
pub use ssh::Ssh;

use crate::{HostsError, MAX_HOSTS, Probe, ProbeError};

/// The most bytes of an answer that are read. `system_profiler` gives about 1 KiB for each Thunderbolt
/// device.
pub const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// Something that answers probes.
pub trait Source: Sync {
    /// The text that `probe`'s command prints on `host`.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Missing`] when the host has no such command; the other variants when it could not be
    /// asked.
    fn run(&self, host: &str, probe: Probe) -> Result<String, ProbeError>;
}

/// Checks host names before they become arguments of ssh and names of folders.
///
/// # Errors
///
/// The first name that is refused, and why.
pub fn check_hosts(names: &[String]) -> Result<(), HostsError> {
    if names.is_empty() {
        return Err(HostsError::None);
    }
    if names.len() > MAX_HOSTS {
        return Err(HostsError::TooMany(names.len()));
    }
    for (index, name) in names.iter().enumerate() {
        if !is_host_name(name) {
            return Err(HostsError::BadName(name.chars().filter(|c| !c.is_control()).take(64).collect()));
        }
        if names[..index].contains(name) {
            return Err(HostsError::Twice(name.clone()));
        }
    }
    Ok(())
}

/// Names, addresses (IPv6 and its `%interface` too) and `user@name`; nothing that begins like an option or a
/// path.
fn is_host_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-:@%".contains(c);
    (1..=255).contains(&name.len()) && !name.starts_with(['-', '.']) && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_options_or_paths_are_refused() {
        let check = |names: &[&str]| check_hosts(&names.iter().map(|&name| name.into()).collect::<Vec<_>>());
        assert_eq!(check(&["studio-1.local", "me@10.0.0.2", "fe80::1%en0"]), Ok(()));
        for bad in ["-oProxyCommand=x", "..", "a/b", "a b", "", "a;b", "a\u{1b}[2J"] {
            assert!(matches!(check(&[bad]), Err(HostsError::BadName(_))), "{bad:?}");
        }
        assert_eq!(check(&["a", "a"]), Err(HostsError::Twice("a".into())));
        assert_eq!(check(&[]), Err(HostsError::None));
        assert_eq!(check(&["a"; 17]), Err(HostsError::TooMany(17)));
    }
}
