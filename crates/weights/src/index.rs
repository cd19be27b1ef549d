//! `model.safetensors.index.json`: which file of a checkpoint in several files holds which tensor.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::Deserialize;

use crate::error::{Fault, Place, WeightsError, shown};
use crate::json::UniqueKeys;

/// Longest index that is accepted, in bytes. The largest checkpoints' take 20 MB.
pub(crate) const MAX_INDEX_BYTES: u64 = 100_000_000;

/// Most files a checkpoint may be in; each one is mapped.
const MAX_SHARDS: usize = 4096;

/// The index: tensor name to the number of its file, and the files' names.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) files: Vec<String>,
    pub(crate) tensors: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Json<'a> {
    #[serde(borrow)]
    weight_map: UniqueKeys<'a>,
}

/// Reads the text of an index. `file` is for messages only.
pub(crate) fn parse(text: &[u8], file: &Path) -> Result<Index, WeightsError> {
    let json: Json = serde_json::from_slice(text)
        .map_err(|e| Fault::damaged(format!("it is not a valid index: {e}")).at(file, Place::Contents))?;
    let mut files = Vec::new();
    let mut numbers = BTreeMap::new();
    let mut tensors = BTreeMap::new();
    for (tensor, value) in json.weight_map.0 {
        let name: String = serde_json::from_str(value.get()).map_err(|e| {
            Fault::damaged(format!("its file name is malformed: {e}")).at(file, Place::tensor(&tensor))
        })?;
        let number = match numbers.get(&name) {
            Some(&number) => number,
            None => {
                check_name(&name, files.len()).map_err(|fault| fault.at(file, Place::tensor(&tensor)))?;
                numbers.insert(name.clone(), files.len());
                files.push(name);
                files.len() - 1
            }
        };
        tensors.insert(tensor, number);
    }
    Ok(Index { files, tensors })
}

/// A file of the checkpoint must lie in the checkpoint's own folder: its name is one plain path component.
/// (The file itself may be a symbolic link; the hub's cache is made of them.)
fn check_name(name: &str, files_so_far: usize) -> Result<(), Fault> {
    if files_so_far == MAX_SHARDS {
        return Err(Fault::damaged(format!("the checkpoint is in more than {MAX_SHARDS} files")));
    }
    let mut components = Path::new(name).components();
    let plain = matches!(components.next(), Some(Component::Normal(only)) if only == name);
    if !plain || components.next().is_some() || name.contains(['\\', ':', '\0']) {
        return Err(Fault::damaged(format!("its file {} is not a plain file name", shown(name))));
    }
    if !name.ends_with(".safetensors") {
        return Err(Fault::damaged(format!("its file {} is not a .safetensors file", shown(name))));
    }
    Ok(())
}
