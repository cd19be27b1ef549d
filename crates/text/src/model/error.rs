//! Why a model's text files cannot be used.

use std::path::PathBuf;

use pomar_weights::WeightsError;

use crate::template::TemplateError;
use crate::tokenizer::TokenizerError;

/// What can be wrong with a model's text files.
#[derive(Debug, thiserror::Error)]
pub enum ModelTextError {
    /// A file that is there could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The folder has no tokenizer.
    #[error("{} has no tokenizer.json: the model cannot read or write text without it", folder.display())]
    NoTokenizer {
        /// The model's folder.
        folder: PathBuf,
    },
    /// A file's contents are not what they should be.
    #[error("{} is damaged: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The vocabulary in a file cannot be used.
    #[error("{}: {source}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TokenizerError,
    },
    /// A GGUF file or its metadata is damaged.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The model has no chat template.
    #[error(
        "the model has no chat template: use it with plain prompts, or put a chat_template.jinja beside it"
    )]
    NoTemplate,
    /// The chat template is unusable, refuses the messages or fails on them.
    #[error(transparent)]
    Template(#[from] TemplateError),
}
