//! A model's weights on disk, whatever their format.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Fault, Place, WeightsError};
use crate::gguf::{self, metadata::Metadata};
use crate::index::{self, Index};
use crate::map::Map;
use crate::safetensors;
use crate::table::TensorTable;
use crate::view::TensorView;

const CONFIG_FILE: &str = "config.json";
const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// Longest `config.json` that is accepted, in bytes. Real ones have a few thousand; in memory JSON can take
/// sixteen times its length.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// The weights of one model: mapped files and a table of what is where in them.
///
/// Opening reads the headers only. A file that another program cuts short while it is open here is out of
/// reach: touching the missing part ends the process with SIGBUS. Sizes are checked at opening.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    about: About,
    shards: Vec<Shard>,
    /// Tensor name to the shard that holds it.
    tensors: BTreeMap<String, usize>,
}

/// What a checkpoint says about its model, in its format's own way.
#[derive(Debug)]
enum About {
    HuggingFace(serde_json::Value),
    Gguf(Metadata),
}

/// The format of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder in Hugging Face layout: `config.json` and safetensors files.
    HuggingFace,
    /// One GGUF file.
    Gguf,
}

#[derive(Debug)]
struct Shard {
    map: Map,
    table: TensorTable,
}

impl Checkpoint {
    /// Opens a folder in Hugging Face layout (`config.json` beside `model.safetensors`, or
    /// `model.safetensors.index.json` and the files it names) or a `.gguf` file, and checks every header.
    ///
    /// # Errors
    /// When the path is neither, a file can't be read, or a header breaks a rule of its format; the message
    /// names file, tensor or key, and the rule.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let facts = fs::metadata(path).map_err(|e| WeightsError::io("open", path, e))?;
        if facts.is_dir() {
            open_folder(path)
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
            open_gguf(path)
        } else {
            Err(WeightsError::not_a_checkpoint(
                path,
                "give a folder with config.json and safetensors, or a .gguf file",
            ))
        }
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that holds `config.json`, tokenizer and chat template; `None` for a GGUF file, which has
    /// them inside.
    pub fn folder(&self) -> Option<&Path> {
        match self.about {
            About::HuggingFace(_) => Some(&self.path),
            About::Gguf(_) => None,
        }
    }

    /// The format.
    pub fn kind(&self) -> Kind {
        match self.about {
            About::HuggingFace(_) => Kind::HuggingFace,
            About::Gguf(_) => Kind::Gguf,
        }
    }

    /// `config.json`, an object; `None` for a GGUF file.
    pub fn config(&self) -> Option<&serde_json::Value> {
        match &self.about {
            About::HuggingFace(config) => Some(config),
            About::Gguf(_) => None,
        }
    }

    /// The key-value pairs of a GGUF file; `None` for a folder.
    pub fn metadata(&self) -> Option<&Metadata> {
        match &self.about {
            About::HuggingFace(_) => None,
            About::Gguf(metadata) => Some(metadata),
        }
    }

    /// True when there is a tensor of that name, readable or not.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The tensor of that name. None of its bytes is touched.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], or [`WeightsError::Unsupported`] when its element type is not known.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, WeightsError> {
        match self.tensors.get(name) {
            Some(&number) => self.view(name, number),
            None => Err(WeightsError::MissingTensor { file: self.path.clone(), tensor: name.to_owned() }),
        }
    }

    /// Tensor names, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// All tensors, sorted by name; an error in place of each one whose element type is not known.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Result<TensorView<'_>, WeightsError>> {
        self.tensors.iter().map(|(name, &number)| self.view(name, number))
    }

    fn view(&self, name: &str, number: usize) -> Result<TensorView<'_>, WeightsError> {
        let shard = &self.shards[number];
        shard.table.view(name, &shard.map)
    }
}

impl Shard {
    fn open_safetensors(path: &Path) -> Result<Self, WeightsError> {
        let map = Map::open(path)?;
        let table = safetensors::parse_header(&map, path)?.tensors;
        Ok(Shard { map, table })
    }

    /// The names of all tensors, each with this shard's number.
    fn names(&self, number: usize) -> BTreeMap<String, usize> {
        self.table.names().map(|name| (name.to_owned(), number)).collect()
    }
}

fn open_gguf(path: &Path) -> Result<Checkpoint, WeightsError> {
    let map = Map::open(path)?;
    let gguf::Gguf { metadata, tensors: table, .. } = gguf::parse(&map, path)?;
    refuse_split(&metadata)?;
    let shard = Shard { map, table };
    let tensors = shard.names(0);
    Ok(Checkpoint { path: path.to_owned(), about: About::Gguf(metadata), shards: vec![shard], tensors })
}

/// A GGUF model can be split over several files, each of which is a GGUF file with some of the tensors.
fn refuse_split(metadata: &Metadata) -> Result<(), WeightsError> {
    const KEY: &str = "split.count";
    match metadata.u64(KEY)? {
        Some(count) if count > 1 => {
            let what = format!(
                "one of {count} parts of a model; merge them into one file first (llama-gguf-split --merge)"
            );
            Err(Fault::unsupported(what).at(metadata.file(), Place::key(KEY)))
        }
        _ => Ok(()),
    }
}

fn open_folder(path: &Path) -> Result<Checkpoint, WeightsError> {
    let config = read_config(path)?;
    let (shards, tensors) = if path.join(SINGLE_FILE).exists() {
        let shard = Shard::open_safetensors(&path.join(SINGLE_FILE))?;
        let tensors = shard.names(0);
        (vec![shard], tensors)
    } else if path.join(INDEX_FILE).exists() {
        open_indexed(path)?
    } else {
        let reason =
            format!("it has neither {SINGLE_FILE} nor {INDEX_FILE}; only safetensors weights can be read");
        return Err(WeightsError::not_a_checkpoint(path, reason));
    };
    Ok(Checkpoint { path: path.to_owned(), about: About::HuggingFace(config), shards, tensors })
}

/// Opens the files an index names and makes sure that each tensor is where the index says.
fn open_indexed(folder: &Path) -> Result<(Vec<Shard>, BTreeMap<String, usize>), WeightsError> {
    let path = folder.join(INDEX_FILE);
    let Index { files, tensors } = index::parse(&read_bounded(&path, index::MAX_INDEX_BYTES)?, &path)?;
    let shards = files
        .iter()
        .map(|file| Shard::open_safetensors(&folder.join(file)))
        .collect::<Result<Vec<_>, _>>()?;
    for (name, &number) in &tensors {
        if !shards[number].table.contains(name) {
            let what = format!("the index says it is in {}, but it isn't", files[number]);
            return Err(Fault::damaged(what).at(&path, Place::tensor(name)));
        }
    }
    Ok((shards, tensors))
}

fn read_config(folder: &Path) -> Result<serde_json::Value, WeightsError> {
    let path = folder.join(CONFIG_FILE);
    if !path.exists() {
        let reason = format!("the folder has no {CONFIG_FILE}; for a GGUF model give the .gguf file itself");
        return Err(WeightsError::not_a_checkpoint(folder, reason));
    }
    let damaged = |what: String| Fault::damaged(what).at(&path, Place::Contents);
    let config: serde_json::Value = serde_json::from_slice(&read_bounded(&path, MAX_CONFIG_BYTES)?)
        .map_err(|e| damaged(format!("it is not valid JSON: {e}")))?;
    if !config.is_object() {
        return Err(damaged("it is not a JSON object".to_owned()));
    }
    Ok(config)
}

/// A whole small file.
fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, WeightsError> {
    let io = |e| WeightsError::io("read", path, e);
    // Opening a pipe would wait for a writer, so look first.
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(WeightsError::not_a_checkpoint(path, "it is not a regular file"));
    }
    let mut contents = Vec::new();
    File::open(path).map_err(io)?.take(limit + 1).read_to_end(&mut contents).map_err(io)?;
    if contents.len() as u64 > limit {
        return Err(Fault::damaged(format!("it is longer than {limit} bytes")).at(path, Place::Contents));
    }
    Ok(contents)
}
