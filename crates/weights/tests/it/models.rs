//! The tiny models of `tests/fixtures/models`, written by other programs, read as their notes say they are.

use std::fs;
use std::path::{Path, PathBuf};

use pomar_weights::{Checkpoint, DType, Kind, TensorView, safetensors};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models")
}

fn reference_json(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(folder.join("reference.json")).expect("readable")).expect("JSON")
}

/// A tensor as `reference.json` describes it: PyTorch's name of the type, then dimensions.
fn described(view: &TensorView<'_>) -> serde_json::Value {
    let dtype = match view.dtype() {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        other => other.name(),
    };
    serde_json::json!([dtype, view.shape()])
}

#[test]
fn tiny_models_have_the_tensors_their_notes_list() {
    for name in ["llama", "mistral", "qwen2", "qwen3"] {
        let folder = fixtures().join(name);
        let checkpoint = Checkpoint::open(&folder).expect(name);
        assert_eq!((checkpoint.kind(), checkpoint.folder()), (Kind::HuggingFace, Some(folder.as_path())));
        let config = checkpoint.config().expect("a folder has one");
        assert_eq!(config["model_type"], name);
        assert!(checkpoint.metadata().is_none());

        let views = checkpoint.tensors().map(|view| view.expect("a known type")).collect::<Vec<_>>();
        let found: serde_json::Map<_, _> =
            views.iter().map(|v| (v.name().to_owned(), described(v))).collect();
        assert_eq!(serde_json::Value::Object(found), reference_json(&folder)["tensors"], "{name}");
        assert_eq!(checkpoint.contains("lm_head.weight"), config["tie_word_embeddings"] == false, "{name}");
    }
}

/// The reference run's first hidden states are the embedding rows of its tokens, decoded exactly.
#[test]
fn embedding_rows_are_the_reference_runs() {
    for name in ["llama", "mistral", "qwen2", "qwen3"] {
        let folder = fixtures().join(name);
        let checkpoint = Checkpoint::open(&folder).expect(name);
        let embedding = checkpoint.tensor("model.embed_tokens.weight").expect("every model has one");

        let reference = folder.join("reference.safetensors");
        let bytes = fs::read(&reference).expect("readable");
        let header = safetensors::parse_header(&bytes, &reference).expect("valid");
        let expected = header.tensors.view("seq1.embed", &bytes).expect("listed").to_f32_vec().expect("f32");

        let ids = &reference_json(&folder)["sequences"][1]["input_ids"];
        let ids = ids.as_array().expect("a list").iter().map(|id| id.as_u64().expect("an id") as usize);
        let found: Vec<f32> = ids
            .flat_map(|id| {
                embedding.rows(id..id + 1).expect("in the vocabulary").to_f32_vec().expect("floats")
            })
            .collect();
        assert_eq!(found, expected, "{name}");
    }
}
