//! The header of a GGUF file, its tensors and the text model in its metadata.

use std::path::Path;

use pomar_text::ModelText;

use crate::tokenizer_json;

/// `bytes` is a whole GGUF file.
///
/// # Panics
/// When a tensor lies outside the file, or a tokenizer breaks one of its promises.
pub fn gguf(bytes: &[u8]) {
    let Ok(file) = pomar_weights::gguf::parse(bytes, Path::new("fuzz.gguf")) else {
        return;
    };
    assert!(file.alignment.is_power_of_two());
    crate::safetensors::use_tensors(&file.tensors, bytes);
    if let Ok(text) = ModelText::from_metadata(&file.metadata) {
        tokenizer_json::use_tokenizer(text.tokenizer());
    }
}
