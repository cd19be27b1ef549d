//! Why a vocabulary cannot be used, or a text not be encoded.

/// What can go wrong between text and ids.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The tokenizer's data is damaged, or contradicts itself.
    #[error("the tokenizer data is damaged: {0}")]
    Damaged(String),
    /// The data is sound but asks for something this crate does not do.
    #[error("the tokenizer needs {what}, which is not supported (supported: {supported})")]
    Unsupported {
        /// What the data asks for.
        what: String,
        /// What would have been accepted in its place.
        supported: String,
    },
    /// A size in the data is beyond what is accepted.
    #[error("the tokenizer data is too large: {what} is {actual}, the limit is {limit}")]
    TooLarge {
        /// Which size.
        what: &'static str,
        /// Its value in the data.
        actual: usize,
        /// The largest accepted value.
        limit: usize,
    },
    /// The text could not be encoded, though the tokenizer was accepted.
    #[error("this text cannot be encoded: {0}")]
    Encode(String),
}
