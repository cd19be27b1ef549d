//! Which files of a repository a reference means.

use std::fmt::Write as _;

use super::TreeFile;
use crate::error::StoreError;
use crate::reference::{HubRef, has_gguf_suffix};

/// Small files that belong to a checkpoint, in the repository's root.
const COMPANIONS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "model.safetensors.index.json",
];

/// The files that a reference means: the named one; else a checkpoint's weights and their companions.
pub(super) fn choose(files: Vec<TreeFile>, hub: &HubRef) -> Result<Vec<TreeFile>, StoreError> {
    let nothing = |why| Err(StoreError::NothingToFetch { repository: hub.to_string(), why });
    if let Some(name) = &hub.file {
        let named: Vec<_> = files.iter().filter(|file| file.path == *name).cloned().collect();
        return if named.is_empty() { nothing(without(&files, hub, "no such file")) } else { Ok(named) };
    }
    let weights = weight_names(&files);
    let has_config = files.iter().any(|file| file.path == "config.json");
    if weights.is_empty() || !has_config {
        let lone = if weights.is_empty() { "no safetensors weights" } else { "no config.json" };
        return nothing(without(&files, hub, lone));
    }
    let wanted = |path: &str| {
        COMPANIONS.contains(&path)
            || (path.starts_with("chat_template") && !path.contains('/'))
            || weights.iter().any(|name| name == path)
    };
    Ok(files.into_iter().filter(|file| wanted(&file.path)).collect())
}

/// Weights in the repository's root. Some repositories hold them twice, under the library's names
/// (`model.safetensors`, `model-00001-of-00002.safetensors`) and as `consolidated...`: then the former only.
fn weight_names(files: &[TreeFile]) -> Vec<String> {
    let in_root = |path: &str| path.ends_with(".safetensors") && !path.contains('/');
    let all: Vec<String> = files.iter().map(|file| file.path.clone()).filter(|path| in_root(path)).collect();
    let usual =
        |path: &String| path == "model.safetensors" || (path.starts_with("model-") && path.contains("-of-"));
    let usual_ones: Vec<String> = all.iter().filter(|path| usual(path)).cloned().collect();
    if usual_ones.is_empty() { all } else { usual_ones }
}

/// What is missing, and the GGUF files that could be named instead.
fn without(files: &[TreeFile], hub: &HubRef, missing: &str) -> String {
    /// More names than this would bury the message.
    const MAX_SHOWN: usize = 20;
    let gguf: Vec<_> = files.iter().filter(|file| has_gguf_suffix(&file.path)).collect();
    if gguf.is_empty() {
        return format!("{missing}, and no .gguf file either");
    }
    let mut text = format!("{missing}; name one of its files:");
    for file in gguf.iter().take(MAX_SHOWN) {
        let named = HubRef { file: Some(file.path.clone()), ..hub.clone() };
        // Writing to a string can't fail.
        let _ = write!(text, "\n  {named}  ({})", crate::error::human(file.size));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Promise;

    fn hub(file: Option<&str>) -> HubRef {
        HubRef { owner: "o".into(), repo: "r".into(), revision: None, file: file.map(str::to_owned) }
    }

    fn chosen(paths: &[&str], file: Option<&str>) -> Result<Vec<String>, StoreError> {
        let tree = paths.iter().map(|path| TreeFile {
            path: (*path).into(),
            size: 1,
            promise: Promise::GitBlob("0".repeat(40)),
        });
        Ok(choose(tree.collect(), &hub(file))?.into_iter().map(|file| file.path).collect())
    }

    #[test]
    fn a_checkpoint_is_its_weights_and_companions() {
        let all = [
            "README.md",
            "config.json",
            "tokenizer.json",
            "chat_template.jinja",
            "pytorch_model.bin",
            "model.safetensors",
            "consolidated.safetensors",
            "original/model.safetensors",
            "onnx/model.onnx",
            "model.py",
            "manifest.json",
        ];
        let expected = ["config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"];
        assert_eq!(chosen(&all, None).expect("a checkpoint"), expected);
        let odd = ["config.json", "weights.safetensors"];
        assert_eq!(chosen(&odd, None).expect("a checkpoint"), odd);
        let sharded = [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ];
        assert_eq!(chosen(&sharded, None).expect("a checkpoint"), sharded);
    }

    #[test]
    fn a_repository_of_gguf_files_asks_for_a_name() {
        let all = ["README.md", "q4/a.gguf", "b.gguf"];
        let message = chosen(&all, None).expect_err("ambiguous").to_string();
        assert!(message.contains("hf:o/r:q4/a.gguf") && message.contains("hf:o/r:b.gguf"), "{message}");
        assert_eq!(chosen(&all, Some("b.gguf")).expect("named"), ["b.gguf"]);
        assert!(chosen(&all, Some("c.gguf")).is_err());
        assert!(chosen(&["config.json", "pytorch_model.bin"], None).is_err());
        assert!(chosen(&["model.safetensors"], None).is_err());
    }
}
