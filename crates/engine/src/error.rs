//! What can go wrong between a checkpoint and its logits.

use pomar_comm::CommError;
use pomar_kernels::PackError;
use pomar_weights::WeightsError;

/// Why a model could not be loaded, split or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model's description (config.json or GGUF metadata) is missing something or has a value that can't be.
    #[error("{file}: {what}")]
    Config {
        /// The file that holds the description.
        file: String,
        /// What is wrong, with the key's name.
        what: String,
    },
    /// An architecture that this engine has no file for.
    #[error("{file}: the architecture {found:?} is not supported; supported are {supported}")]
    UnknownArchitecture {
        /// The file that names the architecture.
        file: String,
        /// Its name there.
        found: String,
        /// The names that would work.
        supported: String,
    },
    /// The model can't be split like this.
    #[error("{split}: {what}")]
    Split {
        /// The split asked for.
        split: String,
        /// Why not, and what would work.
        what: String,
    },
    /// A tensor whose shape is not what the description says.
    #[error("{tensor}: the file has shape {found:?}, the model's description needs {expected:?}")]
    Shape {
        /// The tensor's name in the file.
        tensor: String,
        /// Its shape there, outermost first.
        found: Vec<usize>,
        /// The shape that was expected.
        expected: Vec<usize>,
    },
    /// A tensor in a number format that the backend can't multiply.
    #[error(
        "{tensor}: weights in {format} can't be used; convert the model to bf16 or a GGUF type such as Q8_0"
    )]
    Format {
        /// The tensor's name in the file.
        tensor: String,
        /// The number format found.
        format: &'static str,
    },
    /// A step that does not fit this shard: an id outside the vocabulary, a page outside the cache.
    #[error("the step can't be computed: {what}")]
    Step {
        /// What does not fit.
        what: String,
    },
    /// Sampling parameters outside their ranges.
    #[error("{name} is {found}; it must be {must}")]
    Sampling {
        /// The parameter.
        name: &'static str,
        /// Its value.
        found: String,
        /// The allowed range in words.
        must: &'static str,
    },
    /// Weights could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Weights could not be packed for the kernels.
    #[error("{tensor}: {source}")]
    Pack {
        /// The tensor's name in the file.
        tensor: String,
        /// Why not.
        source: PackError,
    },
    /// The other ranks could not be reached.
    #[error(transparent)]
    Comm(#[from] CommError),
}
