//! The safetensors format: 8 bytes of header length, a JSON header, then the tensors without gaps.
//!
//! ```text
//! u64 n | n bytes of JSON | data
//!         {"name": {"dtype": "BF16", "shape": [out, in], "data_offsets": [begin, end]}, ...}
//! ```
//!
//! Offsets count from the data's start. The format's rules (<https://github.com/huggingface/safetensors>) ask
//! for unique names, no holes and no overlaps; all of that is checked here, so that a message can name the
//! tensor.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dtype::DType;
use crate::error::{Fault, Place, WeightsError, shown};
use crate::json::{Dims, UniqueKeys};
use crate::shape::Shape;
use crate::table::{Element, Entry, TensorTable};

/// Longest header that is accepted, in bytes; the limit of the format's own library.
pub const MAX_HEADER_BYTES: usize = 100_000_000;

/// Bytes of the header-length field.
const LENGTH_BYTES: usize = 8;

/// The key that holds free text about the file instead of a tensor.
const METADATA_KEY: &str = "__metadata__";

/// What the header of a safetensors file says.
#[derive(Debug)]
pub struct Header {
    /// The file's tensors.
    pub tensors: TensorTable,
    /// The free text of `__metadata__`, often just `{"format": "pt"}`.
    pub metadata: BTreeMap<String, String>,
}

/// Reads and checks the header of the safetensors file whose whole contents are `bytes`. The tensors' bytes
/// are not touched. `file` is for messages only.
///
/// # Errors
/// [`WeightsError::Damaged`] with the tensor and the rule that is broken.
pub fn parse_header(bytes: &[u8], file: &Path) -> Result<Header, WeightsError> {
    let header_fault = |fault: Fault| fault.at(file, Place::Header);
    let text = header_text(bytes).map_err(header_fault)?;
    let data_start = LENGTH_BYTES + text.len();
    let UniqueKeys(mut lines) = serde_json::from_str(text)
        .map_err(|e| header_fault(Fault::damaged(format!("the header is not valid JSON: {e}"))))?;
    let metadata = free_text(lines.remove(METADATA_KEY)).map_err(header_fault)?;
    let mut tensors = TensorTable::new(file);
    for (name, line) in lines {
        let entry =
            entry(line, data_start, bytes.len()).map_err(|fault| fault.at(file, Place::tensor(&name)))?;
        tensors.insert(name, entry)?;
    }
    check_contiguous(&tensors, data_start, bytes.len())?;
    Ok(Header { tensors, metadata })
}

/// The header's JSON text, its length checked.
fn header_text(bytes: &[u8]) -> Result<&str, Fault> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        let what = format!("the file has {} bytes, too few for a safetensors header", bytes.len());
        return Err(Fault::damaged(what));
    };
    let length = u64::from_le_bytes(*length);
    let checked = usize::try_from(length).ok().filter(|&n| n <= MAX_HEADER_BYTES);
    let Some(length) = checked else {
        let what =
            format!("a header of {length} bytes; the limit is {MAX_HEADER_BYTES}. Is it a safetensors file?");
        return Err(Fault::damaged(what));
    };
    let Some(text) = rest.get(..length) else {
        let what = format!("a header of {length} bytes, but the file ends after {} of them", rest.len());
        return Err(Fault::damaged(what));
    };
    str::from_utf8(text).map_err(|e| Fault::damaged(format!("the header is not UTF-8: {e}")))
}

fn free_text(line: Option<&RawValue>) -> Result<BTreeMap<String, String>, Fault> {
    let Some(line) = line else {
        return Ok(BTreeMap::new());
    };
    let wrong = |e| Fault::damaged(format!("{METADATA_KEY} is not an object of strings: {e}"));
    let UniqueKeys(values) = serde_json::from_str(line.get()).map_err(wrong)?;
    values
        .into_iter()
        .map(|(key, value)| Ok((key, serde_json::from_str(value.get()).map_err(wrong)?)))
        .collect()
}

/// A tensor's line as the header has it.
#[derive(Deserialize)]
struct Line {
    dtype: String,
    shape: Dims,
    data_offsets: [u64; 2],
}

fn entry(line: &RawValue, data_start: usize, file_len: usize) -> Result<Entry, Fault> {
    let line: Line = serde_json::from_str(line.get())
        .map_err(|e| Fault::damaged(format!("its header entry is malformed: {e}")))?;
    let shape = Shape::new(line.shape.0)?;
    let [begin, end] = line.data_offsets;
    let data_len = file_len - data_start;
    let offsets = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
    let Some((begin, end)) = offsets.filter(|&(begin, end)| begin <= end && end <= data_len) else {
        let what = format!("its offsets {begin}..{end} are not within the file's {data_len} bytes of data");
        return Err(Fault::damaged(what));
    };
    let element = element(&line.dtype);
    if let Element::Known(dtype) = element {
        let needed = shape.bytes(dtype)?;
        if needed != end - begin {
            let what = format!(
                "{dtype} {:?} takes {needed} bytes, but its offsets {begin}..{end} give it {}",
                shape.dims(),
                end - begin
            );
            return Err(Fault::damaged(what));
        }
    }
    Ok(Entry { element, shape, bytes: data_start + begin..data_start + end })
}

fn element(name: &str) -> Element {
    const PLAIN: [DType; 16] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F8E8M0,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];
    match PLAIN.into_iter().find(|dtype| dtype.name() == name) {
        Some(dtype) => Element::Known(dtype),
        None => Element::Foreign(shown(name)),
    }
}

/// The format wants every byte of data to belong to exactly one tensor.
fn check_contiguous(tensors: &TensorTable, data_start: usize, file_len: usize) -> Result<(), WeightsError> {
    tensors.check_overlaps()?;
    let mut end = data_start;
    for (name, entry) in tensors.in_file_order() {
        if entry.bytes.start != end {
            let what = format!("{} bytes before it belong to no tensor", entry.bytes.start - end);
            return Err(Fault::damaged(what).at(tensors.file(), Place::tensor(name)));
        }
        end = entry.bytes.end;
    }
    if end != file_len {
        let what = format!("the last {} bytes belong to no tensor", file_len - end);
        return Err(Fault::damaged(what).at(tensors.file(), Place::Contents));
    }
    Ok(())
}
