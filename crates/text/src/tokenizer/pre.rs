//! Pre-tokenizers by the name that GGUF files give them (`tokenizer.ggml.pre`).
//!
//! A pre-tokenizer cuts text into the words inside which BPE merges. GGUF stores only a name; the
//! patterns are those of the `tokenizer.json` (or tiktoken file) that each family publishes.

use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::TokenizerError;

/// What a name stands for.
pub(super) struct Family {
    names: &'static [&'static str],
    steps: &'static [Step],
    /// Whether text is brought to Unicode NFC first.
    nfc: bool,
    /// Whether a word that is itself a token is taken whole, without merging.
    pub(super) ignore_merges: bool,
    /// Whether BOS is added when the file does not say.
    pub(super) add_bos: bool,
}

enum Step {
    /// Cut out every match of the pattern.
    Pattern(&'static str),
    /// Cut out every single digit.
    EachDigit,
    /// GPT-2's own pattern, built into the byte-level stage.
    Gpt2,
}

const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
);
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const FAMILIES: &[Family] = &[
    Family {
        names: &["default", "gpt-2", "gpt2", "mpt", "olmo", "phi-2"],
        steps: &[Step::Gpt2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Family {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        steps: &[Step::Pattern(LLAMA3)],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    Family {
        names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"],
        steps: &[Step::Pattern(LLAMA3)],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Family {
        names: &["qwen2", "deepseek-r1-qwen", "megrez"],
        steps: &[Step::Pattern(QWEN2)],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    Family {
        names: &["qwen35"],
        steps: &[Step::Pattern(QWEN35)],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    Family {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        steps: &[Step::EachDigit, Step::Gpt2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Family {
        names: &["gpt-4o", "llama4"],
        steps: &[Step::Pattern(O200K)],
        nfc: false,
        ignore_merges: true,
        add_bos: false,
    },
    Family {
        names: &["tekken"],
        steps: &[Step::Pattern(TEKKEN)],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    Family {
        names: &["deepseek-v3"],
        steps: &[
            Step::Pattern(r"\p{N}{1,3}"),
            Step::Pattern("[一-龥\u{3040}-ゟ゠-ヿ]+"),
            Step::Pattern(DEEPSEEK3),
        ],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
];

/// The family called `name`; files from before names were stored count as `default`.
pub(super) fn family(name: Option<&str>) -> Result<&'static Family, TokenizerError> {
    let name = name.unwrap_or("default");
    FAMILIES.iter().find(|family| family.names.contains(&name)).ok_or_else(|| TokenizerError::Unsupported {
        what: format!("the pre-tokenizer {name:?}"),
        supported: FAMILIES.iter().flat_map(|family| family.names).copied().collect::<Vec<_>>().join(", "),
    })
}

impl Family {
    pub(super) fn normalizer(&self) -> Option<NormalizerWrapper> {
        self.nfc.then_some(NormalizerWrapper::NFC(NFC))
    }

    pub(super) fn pre_tokenizer(&self) -> tokenizers::Result<PreTokenizerWrapper> {
        let mut stages: Vec<PreTokenizerWrapper> = Vec::new();
        for step in self.steps {
            match step {
                Step::Pattern(pattern) => {
                    let pattern = SplitPattern::Regex((*pattern).to_owned());
                    stages.push(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into());
                }
                Step::EachDigit => stages.push(Digits::new(true).into()),
                Step::Gpt2 => {}
            }
        }
        let use_gpt2_pattern = self.steps.iter().any(|step| matches!(step, Step::Gpt2));
        stages.push(ByteLevel::new(false, true, use_gpt2_pattern).into());
        Ok(Sequence::new(stages).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_compiles_and_names_are_unique() {
        let mut names: Vec<&str> = Vec::new();
        for family in FAMILIES {
            family.pre_tokenizer().unwrap();
            names.extend(family.names);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let message = family(Some("no-such")).err().unwrap().to_string();
        assert!(message.contains("no-such") && message.contains("llama-bpe"), "{message}");
    }
}
