//! What can go wrong with a file, always with the file's name and the place in it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Longest piece of a hostile name that a message repeats, in characters.
const SHOWN_CHARS: usize = 120;

/// Why a checkpoint, or a tensor in it, can't be read.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The operating system refused.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as an infinitive: "open", "map", ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The path is there but is neither a Hugging Face folder nor a GGUF file.
    #[error("{} is not a model that can be opened: {reason}", path.display())]
    NotACheckpoint {
        /// The path that was to be opened.
        path: PathBuf,
        /// What is missing and what would be accepted.
        reason: String,
    },
    /// The file breaks the rules of its format: it is cut short, corrupted, or made to do harm.
    #[error("{} is damaged: {place}: {what}; fetch or convert it again", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in the file.
        place: Place,
        /// Which rule is broken, with the numbers.
        what: String,
    },
    /// The file may be fine, but this reader doesn't know the format used there.
    #[error("{}: {place}: {what}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// Where in the file.
        place: Place,
        /// What is not known, and what is.
        what: String,
    },
    /// A tensor that was asked for is not there.
    #[error("{} has no tensor {}", file.display(), shown(tensor))]
    MissingTensor {
        /// The file, or the folder of a checkpoint in several files.
        file: PathBuf,
        /// The name that was asked for.
        tensor: String,
    },
    /// A metadata key that the caller can't do without is not there.
    #[error("{} has no metadata key {}", file.display(), shown(key))]
    MissingKey {
        /// The GGUF file.
        file: PathBuf,
        /// The key that was asked for.
        key: String,
    },
    /// A metadata key holds another type than the caller needs.
    #[error("{}: metadata key {} should be {expected}, but it is {found}", file.display(), shown(key))]
    WrongType {
        /// The GGUF file.
        file: PathBuf,
        /// The key.
        key: String,
        /// What was asked for.
        expected: &'static str,
        /// What the file holds.
        found: String,
    },
    /// Rows outside the tensor were asked for.
    #[error("{}: tensor {}: rows {start}..{end} of {rows} rows asked for", file.display(), shown(tensor))]
    NoSuchRows {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// First row asked for.
        start: usize,
        /// One past the last row asked for.
        end: usize,
        /// Rows there are.
        rows: usize,
    },
}

impl WeightsError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        WeightsError::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn not_a_checkpoint(path: &Path, reason: impl Into<String>) -> Self {
        WeightsError::NotACheckpoint { path: path.to_owned(), reason: reason.into() }
    }
}

/// A place inside a file, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The part before the tensors that belongs to no tensor or key.
    Header,
    /// The file as a whole.
    Contents,
    /// One metadata key.
    Key(String),
    /// One tensor.
    Tensor(String),
}

impl Place {
    pub(crate) fn tensor(name: &str) -> Self {
        Place::Tensor(name.to_owned())
    }

    pub(crate) fn key(name: &str) -> Self {
        Place::Key(name.to_owned())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => f.write_str("header"),
            Place::Contents => f.write_str("contents"),
            Place::Key(key) => write!(f, "metadata key {}", shown(key)),
            Place::Tensor(name) => write!(f, "tensor {}", shown(name)),
        }
    }
}

/// A fault found by a parser that doesn't know yet where it is; [`Fault::at`] makes it an error.
#[derive(Debug)]
pub(crate) enum Fault {
    Damaged(String),
    Unsupported(String),
}

impl Fault {
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Fault::Damaged(what.into())
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Fault::Unsupported(what.into())
    }

    pub(crate) fn at(self, file: &Path, place: Place) -> WeightsError {
        let file = file.to_owned();
        match self {
            Fault::Damaged(what) => WeightsError::Damaged { file, place, what },
            Fault::Unsupported(what) => WeightsError::Unsupported { file, place, what },
        }
    }
}

/// A name from a file as a message may show it: quoted, control characters escaped, length bounded.
pub(crate) fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if name.chars().nth(SHOWN_CHARS).is_some() {
        text.push_str("...");
    }
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_escaped_and_cut() {
        assert_eq!(shown("a\u{1b}[31m\n"), "`a\\u{1b}[31m\\n`");
        assert_eq!(shown(&"x".repeat(SHOWN_CHARS)).len(), SHOWN_CHARS + 2);
        assert_eq!(shown(&"x".repeat(1 << 20)).len(), SHOWN_CHARS + 5);
    }
}
