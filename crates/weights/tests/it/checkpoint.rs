//! Opening what users point at: folders, files, and neither.

use std::fs;
use std::path::Path;

use pomar_weights::{Checkpoint, Kind};
use tempfile::TempDir;

use crate::support::{self, GgufFile, SAFETENSORS_HEADER, assert_message, number, pattern, value};

const CONFIG: &str = r#"{"model_type":"llama"}"#;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, contents) in files {
        fs::write(folder.path().join(name), contents).expect("written");
    }
    folder
}

fn error_of(path: &Path) -> String {
    Checkpoint::open(path).expect_err("must not open").to_string()
}

/// A safetensors file with one u8 tensor of two elements.
fn shard(tensor: &str, data: [u8; 2]) -> Vec<u8> {
    let header = format!(r#"{{"{tensor}":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}}"#);
    support::safetensors(&header, &data)
}

#[test]
fn a_gguf_file_opens() {
    let folder = folder(&[("m.GGUF", &GgufFile::sample().bytes())]);
    let path = folder.path().join("m.GGUF");
    let checkpoint = Checkpoint::open(&path).expect("valid");
    assert_eq!((checkpoint.kind(), checkpoint.path()), (Kind::Gguf, path.as_path()));
    assert!(checkpoint.config().is_none() && checkpoint.folder().is_none());
    let metadata = checkpoint.metadata().expect("GGUF has it");
    assert_eq!(metadata.str("general.architecture").expect("text"), Some("llama"));
    assert_eq!(checkpoint.tensors().len(), 4);
    let embedding = checkpoint.tensor("token_embd.weight").expect("there");
    assert_eq!((embedding.bytes(), embedding.file()), (&pattern(54)[..], path.as_path()));
    let missing = checkpoint.tensor("output.weight").expect_err("absent").to_string();
    assert_message("missing", &missing, &["m.GGUF", "no tensor `output.weight`"]);
}

#[test]
fn listing_a_gguf_file_goes_on_after_a_tensor_of_unknown_type() {
    let mut file = GgufFile::sample();
    file.tensors[1].ggml_type = number::IQ4_XS;
    let folder = folder(&[("m.gguf", &file.bytes())]);
    let checkpoint = Checkpoint::open(&folder.path().join("m.gguf")).expect("opening is fine");
    let errors: Vec<_> = checkpoint.tensors().filter_map(Result::err).collect();
    assert_eq!((errors.len(), checkpoint.names().len()), (1, 4));
    assert_message("listed", &errors[0].to_string(), &["m.gguf", "`output_norm.weight`", "IQ4_XS"]);
}

#[test]
fn a_part_of_a_split_gguf_model_is_refused() {
    let mut file = GgufFile::sample();
    file.set_key("split.count", value(2, &3_u16.to_le_bytes()));
    let folder = folder(&[("m-00001-of-00003.gguf", &file.bytes())]);
    let error = error_of(&folder.path().join("m-00001-of-00003.gguf"));
    assert_message("split", &error, &["m-00001-of-00003.gguf", "3 parts", "merge"]);
}

#[test]
fn a_checkpoint_in_several_files_opens() {
    let index =
        br#"{"metadata":{"total_size":4},"weight_map":{"b":"two.safetensors","a":"one.safetensors"}}"#;
    let folder = folder(&[
        ("config.json", CONFIG.as_bytes()),
        ("model.safetensors.index.json", index),
        ("one.safetensors", &shard("a", [1, 2])),
        ("two.safetensors", &shard("b", [3, 4])),
    ]);
    let checkpoint = Checkpoint::open(folder.path()).expect("valid");
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a", "b"]);
    let b = checkpoint.tensor("b").expect("there");
    assert_eq!((b.bytes(), b.file()), (&[3, 4][..], folder.path().join("two.safetensors").as_path()));
    let missing = checkpoint.tensor("c").expect_err("absent").to_string();
    assert_message("missing", &missing, &[&folder.path().display().to_string(), "no tensor `c`"]);
}

#[cfg(unix)]
#[test]
fn files_may_be_links_as_in_the_hubs_cache() {
    let blobs = folder(&[("7f3a", &shard("a", [1, 2])), ("90bc", CONFIG.as_bytes())]);
    let snapshot = folder(&[]);
    for (name, blob) in [("model.safetensors", "7f3a"), ("config.json", "90bc")] {
        std::os::unix::fs::symlink(blobs.path().join(blob), snapshot.path().join(name)).expect("linked");
    }
    let checkpoint = Checkpoint::open(snapshot.path()).expect("valid");
    assert_eq!(checkpoint.tensor("a").expect("there").bytes(), [1, 2]);
}

#[test]
fn a_damaged_index_is_refused() {
    let outside = "is not a plain file name";
    let cases: &[(&str, &[&str])] = &[
        ("", &["not a valid index"]),
        ("{}", &["not a valid index", "weight_map"]),
        (r#"{"weight_map":[]}"#, &["not a valid index"]),
        (r#"{"weight_map":{"a":7}}"#, &["tensor `a`", "file name is malformed"]),
        (r#"{"weight_map":{"a":"one.safetensors","a":"one.safetensors"}}"#, &["`a`", "twice"]),
        (r#"{"weight_map":{"a":"../one.safetensors"}}"#, &["tensor `a`", "`../one.safetensors`", outside]),
        (r#"{"weight_map":{"a":"/etc/one.safetensors"}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":"sub/one.safetensors"}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":"./one.safetensors"}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":"one.safetensors/"}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":"..\\one.safetensors"}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":"C:one.safetensors"}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":"a\u0000.safetensors"}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":".."}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":""}}"#, &["tensor `a`", outside]),
        (r#"{"weight_map":{"a":"config.json"}}"#, &["tensor `a`", "not a .safetensors file"]),
        (r#"{"weight_map":{"b":"one.safetensors"}}"#, &["tensor `b`", "is in one.safetensors, but it isn't"]),
    ];
    for (index, parts) in cases {
        let folder = folder(&[
            ("config.json", CONFIG.as_bytes()),
            ("model.safetensors.index.json", index.as_bytes()),
            ("one.safetensors", &shard("a", [1, 2])),
        ]);
        let error = error_of(folder.path());
        assert_message(index, &error, parts);
        assert_message(index, &error, &["model.safetensors.index.json"]);
    }
}

#[test]
fn a_missing_or_damaged_shard_is_named() {
    let index = br#"{"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}"#;
    let mut files: Vec<(&str, &[u8])> =
        vec![("config.json", CONFIG.as_bytes()), ("model.safetensors.index.json", index)];
    let one = shard("a", [1, 2]);
    files.push(("one.safetensors", &one));
    assert_message("missing", &error_of(folder(&files).path()), &["can't open", "two.safetensors"]);
    files.push(("two.safetensors", b""));
    assert_message("empty", &error_of(folder(&files).path()), &["two.safetensors", "the file is empty"]);
    files.push(("two.safetensors", &one[..one.len() - 1]));
    assert_message("cut", &error_of(folder(&files).path()), &["two.safetensors", "tensor `a`", "0..2"]);
}

#[test]
fn what_is_no_checkpoint_says_what_would_be_one() {
    let weights = support::safetensors(SAFETENSORS_HEADER, &pattern(44));
    let empty = folder(&[]);
    assert_message("empty folder", &error_of(empty.path()), &["no config.json", ".gguf"]);
    assert_message("nothing there", &error_of(&empty.path().join("x")), &["can't open", "x"]);
    let no_weights = folder(&[("config.json", CONFIG.as_bytes()), ("pytorch_model.bin", b"x")]);
    assert_message("no weights", &error_of(no_weights.path()), &["only safetensors"]);
    let other_file = folder(&[("model.safetensors", &weights)]);
    let path = other_file.path().join("model.safetensors");
    assert_message(
        "a file",
        &error_of(&path),
        &["model.safetensors", "a folder with config.json", ".gguf file"],
    );
    let folder_for_file = folder(&[("config.json", CONFIG.as_bytes())]);
    fs::create_dir(folder_for_file.path().join("model.safetensors")).expect("made");
    assert_message("a folder inside", &error_of(folder_for_file.path()), &["not a regular file"]);
}

#[test]
fn a_damaged_config_is_refused() {
    let weights = support::safetensors(SAFETENSORS_HEADER, &pattern(44));
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(4 << 20));
    let deep = "[".repeat(100_000);
    let cases =
        [("[1]", "not a JSON object"), ("{", "not valid JSON"), (&deep, "not valid JSON"), (&long, "longer")];
    for (config, part) in cases {
        let folder = folder(&[("config.json", config.as_bytes()), ("model.safetensors", &weights)]);
        assert_message(part, &error_of(folder.path()), &["config.json", part]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn only_the_rows_asked_for_are_read() {
    use std::os::unix::fs::MetadataExt;

    // A sparse file of 64 GiB opens at once and costs nothing until rows are touched.
    let folder = folder(&[("config.json", CONFIG.as_bytes())]);
    let path = folder.path().join("model.safetensors");
    let rows = 1_usize << 20;
    let bytes = rows << 16;
    let header = format!(r#"{{"w":{{"dtype":"F32","shape":[{rows},16384],"data_offsets":[0,{bytes}]}}}}"#);
    fs::write(&path, support::safetensors(&header, &[])).expect("written");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("opened");
    file.set_len((8 + header.len() + bytes) as u64).expect("a sparse file");
    assert!(file.metadata().expect("facts").blocks() < 1 << 10);

    let checkpoint = Checkpoint::open(folder.path()).expect("valid");
    let last = checkpoint.tensor("w").expect("there").rows(rows - 1..rows).expect("inside");
    assert_eq!(last.to_f32_vec().expect("floats"), vec![0.0; 16384]);
}
