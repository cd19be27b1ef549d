//! The header of a safetensors file and its tensors.

use std::path::Path;

use pomar_weights::{TensorTable, TensorView};

/// `bytes` is a whole safetensors file.
///
/// # Panics
/// When a tensor lies outside the file.
pub fn safetensors(bytes: &[u8]) {
    if let Ok(file) = pomar_weights::safetensors::parse_header(bytes, Path::new("fuzz.safetensors")) {
        use_tensors(&file.tensors, bytes);
    }
}

/// Asks for every tensor, as loading a model does.
pub(crate) fn use_tensors(tensors: &TensorTable, bytes: &[u8]) {
    let mut total = 0;
    for name in tensors.names() {
        assert!(tensors.contains(name));
        if let Ok(tensor) = tensors.view(name, bytes) {
            total += tensor.bytes().len();
            use_tensor(&tensor);
        }
    }
    // Tensors don't overlap, so together they are no longer than the file.
    assert!(total <= bytes.len());
}

/// Cuts a tensor as a rank of several does, and reads it if it is small enough to be a bias.
fn use_tensor(tensor: &TensorView<'_>) {
    let rows = tensor.rows_count();
    assert_eq!(tensor.bytes().len(), rows * tensor.row_bytes());
    let half = tensor.rows(rows / 2..rows).expect("rows of this tensor");
    assert_eq!(half.rows_count(), rows - rows / 2);
    assert!(tensor.rows(0..rows + 1).is_err());
    if let Ok(values) = half.to_f32_vec() {
        assert_eq!(values.len(), half.rows_count() * half.cols());
    }
}
