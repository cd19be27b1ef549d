//! A user's own folder or file: looked at, never changed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::manifest::FileRecord;
use crate::reference::{ModelRef, has_gguf_suffix};
use crate::store::Resolved;

/// Most files that are listed of a folder.
const MAX_FILES: usize = 10_000;

/// Checks that `path` looks like a model: a folder with a `config.json`, or a `.gguf` file.
pub(crate) fn resolve(path: &Path) -> Result<Resolved, StoreError> {
    let bad = |why: String| StoreError::Local { path: path.to_owned(), why };
    let meta = fs::metadata(path).map_err(|e| bad(absent(path, &e)))?;
    let files = if meta.is_dir() {
        if !path.join("config.json").is_file() {
            return Err(bad("this folder has no config.json, so it is no Hugging Face checkpoint".into()));
        }
        list_files(path).map_err(StoreError::io("list", path))?
    } else if meta.is_file() && has_gguf_suffix(&path.to_string_lossy()) {
        vec![FileRecord { name: file_name(path), size: meta.len(), sha256: None }]
    } else {
        return Err(bad("neither a folder with a config.json nor a .gguf file".into()));
    };
    let reference = ModelRef::Local(path.to_owned());
    Ok(Resolved {
        path: path.to_owned(),
        source: reference.clone(),
        reference,
        display_name: display_name(path),
        files,
    })
}

/// Says that a path is absent, and what was perhaps meant.
fn absent(path: &Path, error: &std::io::Error) -> String {
    let as_hub = format!("hf:{}", path.display());
    match as_hub.parse::<ModelRef>() {
        Ok(_) if error.kind() == std::io::ErrorKind::NotFound => {
            format!(
                "there is no such file or folder\nhint: a repository of the model hub is written {as_hub}"
            )
        }
        _ => error.to_string(),
    }
}

fn list_files(folder: &Path) -> std::io::Result<Vec<FileRecord>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.take(MAX_FILES) {
        let path = entry?.path();
        let meta = fs::metadata(&path);
        if let Ok(meta) = meta
            && meta.is_file()
        {
            files.push(FileRecord { name: file_name(&path), size: meta.len(), sha256: None });
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The folder's name, or the file's without `.gguf`; of `.` the folder that it stands for.
fn display_name(path: &Path) -> String {
    let named = if path.file_name().is_some() { Ok(path.to_owned()) } else { fs::canonicalize(path) };
    let name = file_name(&named.unwrap_or_else(|_| PathBuf::from("model")));
    if has_gguf_suffix(&name) { name[..name.len() - ".gguf".len()].to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_folder_and_a_gguf_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("tiny");
        fs::create_dir(&folder).expect("made");
        assert!(matches!(resolve(&folder), Err(StoreError::Local { .. })));
        fs::write(folder.join("config.json"), "{}").expect("written");
        let resolved = resolve(&folder).expect("a checkpoint");
        assert_eq!((resolved.display_name.as_str(), resolved.path.as_path()), ("tiny", folder.as_path()));
        assert_eq!(resolved.files.len(), 1);
        assert_eq!(resolve(&folder.join(".").join("..").join("tiny")).expect("same").display_name, "tiny");

        let file = dir.path().join("m.Q4_1.GGUF");
        fs::write(&file, "GGUF").expect("written");
        let resolved = resolve(&file).expect("a file");
        assert_eq!((resolved.display_name.as_str(), resolved.files[0].size), ("m.Q4_1", 4));
        assert!(resolve(&folder.join("config.json")).is_err());
    }

    #[test]
    fn an_absent_path_that_looks_like_a_repository_gets_a_hint() {
        let message = resolve(Path::new("no-such-owner/no-such-repo")).expect_err("absent").to_string();
        assert!(message.contains("hf:no-such-owner/no-such-repo"), "{message}");
    }
}
