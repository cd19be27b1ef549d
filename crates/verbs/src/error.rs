//! What can go wrong with verbs, and what to do about it.

use std::{fmt, io, ops::Range, path::PathBuf};

/// Why a verbs call did not do its work. Nothing in this crate tries a call twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// No verbs library could be opened.
    #[error("no RDMA verbs library: {}; {}", list(tried), how_to_get_one())]
    NoLibrary {
        /// Each file that was tried, with the loader's reason.
        tried: Vec<Tried>,
    },
    /// A library was opened, but it isn't one for verbs.
    #[error("{} has no function {symbol}: is it a verbs library ({source})?", library.display())]
    Symbol {
        /// The library.
        library: PathBuf,
        /// The function it should export.
        symbol: &'static str,
        /// The loader's reason.
        source: libloading::Error,
    },
    /// No device has this name.
    #[error("no RDMA device is named {name:?}; {}", devices(exist))]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The devices that exist.
        exist: Vec<String>,
    },
    /// A call of the library failed.
    #[error("{call} failed on {device}: {errno}{}", hint(call, errno))]
    System {
        /// The function that failed.
        call: &'static str,
        /// The device, or the library for calls that have none.
        device: String,
        /// The system's error.
        #[source]
        errno: io::Error,
    },
    /// A work request that reaches outside its memory region, or is too long for one message.
    #[error("bytes {} to {} are not a message inside a memory region of {region} bytes", range.start, range.end)]
    Range {
        /// The bytes asked for.
        range: Range<usize>,
        /// Length of the region.
        region: usize,
    },
    /// Objects of different protection domains or devices were used together.
    #[error("{what} belong to different {owner}s; make both from the same one")]
    Stranger {
        /// The two things.
        what: &'static str,
        /// What they should have in common.
        owner: &'static str,
    },
    /// A number that the verbs interface cannot hold.
    #[error("{what} of {value}: the most is {most}")]
    TooBig {
        /// What the number is for.
        what: &'static str,
        /// The number.
        value: u64,
        /// The largest that is allowed.
        most: u64,
    },
}

/// A library file that could not be opened.
#[derive(Debug)]
pub struct Tried {
    /// As it was given to the loader.
    pub file: PathBuf,
    /// The loader's reason.
    pub reason: String,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file.display(), self.reason)
    }
}

impl VerbsError {
    /// The error of a call that answered with an error number.
    pub(crate) fn numbered(call: &'static str, device: &str, errno: i32) -> Self {
        let errno = io::Error::from_raw_os_error(errno);
        Self::System { call, device: device.to_owned(), errno }
    }

    /// The error of a call that left its error number in `errno`.
    pub(crate) fn last(call: &'static str, device: &str) -> Self {
        Self::System { call, device: device.to_owned(), errno: io::Error::last_os_error() }
    }

    /// Judges the answer of a call that returns 0, or an error number, or -1 with the number in `errno`: the manual
    /// pages promise the second, older providers do the third.
    pub(crate) fn check(call: &'static str, device: &str, answer: i32) -> Result<(), Self> {
        match answer {
            0 => Ok(()),
            -1 => Err(Self::last(call, device)),
            errno => Err(Self::numbered(call, device, errno.saturating_abs())),
        }
    }
}

fn list(tried: &[Tried]) -> String {
    tried.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn how_to_get_one() -> &'static str {
    if cfg!(target_os = "macos") {
        "RDMA over Thunderbolt needs macOS 26.2 or later, and `rdma_ctl enable` in recovery mode once"
    } else {
        "install it (Debian, Ubuntu: apt install libibverbs1 ibverbs-providers; Fedora: dnf install libibverbs)"
    }
}

fn devices(exist: &[String]) -> String {
    if !exist.is_empty() {
        return format!("there are: {}", exist.join(", "));
    }
    let how = if cfg!(target_os = "macos") {
        "enable them with `rdma_ctl enable` in recovery mode"
    } else {
        "see `rdma link` and load the adapter's kernel driver"
    };
    format!("this machine has no RDMA device at all: {how}")
}

/// What to do about an error number that means more here than its text says.
fn hint(call: &str, errno: &io::Error) -> &'static str {
    match errno.raw_os_error() {
        Some(libc::ENOMEM) if call == "ibv_reg_mr" && cfg!(target_os = "linux") => {
            "; the device has no memory region left, or the limit of locked memory is too low (`ulimit -l`): \
             nothing is retried"
        }
        Some(libc::ENOMEM | libc::EBUSY | libc::ENOSPC) => {
            "; the device has no resource left; on a Mac only a reboot gives them back: nothing is retried"
        }
        Some(libc::EACCES | libc::EPERM) => "; this user may not use the device: see /dev/infiniband",
        Some(libc::ETIMEDOUT) => {
            "; the peer's address does not answer: does its interface, at the other end of this cable, have it?"
        }
        Some(libc::EIO | libc::ENODEV) => "; the device is gone or broken",
        _ => "",
    }
}
