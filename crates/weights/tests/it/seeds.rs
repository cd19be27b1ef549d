//! The seeds of the fuzz targets keep their promise: `valid-*` files are read, `damaged-*` files are refused.

use std::fs;
use std::path::{Path, PathBuf};

use pomar_weights::{TensorTable, WeightsError, gguf, safetensors};

/// All seeds of a format, by name.
fn seeds(format: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(format);
    let entries = fs::read_dir(folder).expect("the seeds are part of the project");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    paths.sort();
    assert!(paths.len() >= 15, "{format} has {} seeds", paths.len());
    paths
}

fn replay(format: &str, parse: impl Fn(&[u8], &Path) -> Result<TensorTable, WeightsError>) {
    for path in seeds(format) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("plain name").to_owned();
        let bytes = fs::read(&path).expect("readable");
        assert!(bytes.len() < 4096, "{name} is too long for a seed");
        let read_all = |table: TensorTable| {
            let views = table.names().map(|tensor| table.view(tensor, &bytes).map(|_| ()));
            views.collect::<Result<Vec<()>, _>>().map(|views| views.len())
        };
        let outcome = parse(&bytes, &path).and_then(read_all);
        let as_promised = if name.starts_with("valid-") { outcome.is_ok() } else { outcome.is_err() };
        assert!(as_promised, "{name}: {outcome:?}");
        if let Err(error) = outcome {
            assert!(error.to_string().contains(&name), "{error}");
        }
    }
}

#[test]
fn gguf_seeds() {
    replay("gguf", |bytes, path| gguf::parse(bytes, path).map(|gguf| gguf.tensors));
}

#[test]
fn safetensors_seeds() {
    replay("safetensors", |bytes, path| safetensors::parse_header(bytes, path).map(|header| header.tensors));
}
