//! The GGUF format, versions 2 and 3: typed metadata, a list of tensors, then the tensors at aligned offsets.
//!
//! ```text
//! "GGUF" | u32 version | u64 tensors | u64 keys
//! keys    x (string key, u32 type, value)                         see [`metadata`]
//! tensors x (string name, u32 n, n x u64 dimension innermost first, u32 ggml type, u64 offset)
//! padding to general.alignment | data; tensor offsets count from here
//! ```
//!
//! A string is a u64 length in bytes and UTF-8 text. Everything is little-endian. The format is described at
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod cursor;
mod ggml;
pub mod metadata;

use std::path::Path;

use crate::error::{Fault, Place, WeightsError};
use crate::shape::Shape;
use crate::table::{Element, Entry, TensorTable};

use cursor::Cursor;
use metadata::Metadata;

/// Longest header (everything before the data) that is accepted, in bytes. Big vocabularies take 20 MB.
pub const MAX_HEADER_BYTES: usize = 100_000_000;

/// The first bytes of every GGUF file.
const MAGIC: &[u8; 4] = b"GGUF";

/// Alignment of tensors when the file names none, in bytes.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Largest alignment that is accepted, in bytes; more would only be padding.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// Most dimensions a ggml tensor has.
const MAX_GGML_DIMS: u32 = 4;

/// Most tensors that are accepted. Real files have a few thousand: experts are fused.
const MAX_TENSORS: u64 = 1 << 16;

/// Most metadata keys that are accepted. Real files have fewer than a hundred.
const MAX_KEYS: u64 = 1 << 16;

/// Bytes of the smallest possible key and tensor lines, for bounding their number by the bytes that are left.
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// What the header of a GGUF file says.
#[derive(Debug)]
pub struct Gguf {
    /// Version of the format: 2 or 3.
    pub version: u32,
    /// Alignment of tensors in the data part, in bytes; a power of two.
    pub alignment: usize,
    /// The typed key-value pairs.
    pub metadata: Metadata,
    /// The file's tensors, their dimensions turned round so that the outermost comes first.
    pub tensors: TensorTable,
}

/// Reads and checks the header of the GGUF file whose whole contents are `bytes`. The tensors' bytes are not
/// touched. `file` is for messages only.
///
/// # Errors
/// [`WeightsError::Damaged`] or [`WeightsError::Unsupported`] with the key or tensor and the rule that is
/// broken. A tensor of an unknown ggml type is an error only when that tensor is asked for.
pub fn parse(bytes: &[u8], file: &Path) -> Result<Gguf, WeightsError> {
    let mut cursor = Cursor::new(bytes);
    let preamble = Preamble::read(&mut cursor).map_err(|fault| fault.at(file, Place::Header))?;
    let metadata = Metadata::read(&mut cursor, preamble.keys, file)?;
    let alignment = alignment(&metadata)?;
    let lines = read_lines(&mut cursor, preamble.tensors, file)?;
    let data_start = cursor.position().next_multiple_of(alignment);
    let mut tensors = TensorTable::new(file);
    for line in lines {
        let entry = line.place(data_start, alignment, bytes.len());
        let entry = entry.map_err(|fault| fault.at(file, Place::tensor(&line.name)))?;
        tensors.insert(line.name, entry)?;
    }
    tensors.check_overlaps()?;
    Ok(Gguf { version: preamble.version, alignment, metadata, tensors })
}

struct Preamble {
    version: u32,
    tensors: u64,
    keys: u64,
}

impl Preamble {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        if cursor.take(4, "the magic number")? != MAGIC {
            return Err(Fault::damaged("it doesn't start with \"GGUF\": not a GGUF file"));
        }
        let version = cursor.u32("the version")?;
        if !matches!(version, 2 | 3) {
            return Err(Fault::unsupported(wrong_version(version)));
        }
        let tensors = cursor.count("tensors", MIN_TENSOR_BYTES)?;
        let keys = cursor.count("metadata keys", MIN_KEY_BYTES)?;
        if tensors > MAX_TENSORS {
            return Err(Fault::damaged(format!("it lists {tensors} tensors; the limit is {MAX_TENSORS}")));
        }
        if keys > MAX_KEYS {
            return Err(Fault::damaged(format!("it lists {keys} metadata keys; the limit is {MAX_KEYS}")));
        }
        Ok(Preamble { version, tensors, keys })
    }
}

fn wrong_version(version: u32) -> String {
    match version.swap_bytes() {
        2 | 3 => "a big-endian GGUF file; only little-endian ones can be read, convert it".to_owned(),
        _ => format!("GGUF version {version}; versions 2 and 3 can be read, convert it"),
    }
}

fn alignment(metadata: &Metadata) -> Result<usize, WeightsError> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.u64(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    // The format asks for a multiple of 8; ggml for a power of two.
    if !alignment.is_power_of_two() || !(8..=MAX_ALIGNMENT).contains(&alignment) {
        let what =
            format!("an alignment of {alignment}; it must be a power of two from 8 to {MAX_ALIGNMENT}");
        return Err(Fault::damaged(what).at(metadata.file(), Place::key(KEY)));
    }
    Ok(alignment as usize)
}

/// A tensor's line in the header, not yet checked against the file's size.
struct Line {
    name: String,
    shape: Shape,
    ggml_type: u32,
    offset: u64,
}

fn read_lines(cursor: &mut Cursor<'_>, count: u64, file: &Path) -> Result<Vec<Line>, WeightsError> {
    let mut lines = Vec::new();
    for index in 0..count {
        let name = cursor.string("the tensor's name").map_err(|fault| {
            let place = Place::Tensor(format!("number {index}"));
            fault.at(file, place)
        })?;
        let line = Line::read(cursor, name).map_err(|fault| fault.at(file, Place::tensor(name)))?;
        lines.push(line);
    }
    Ok(lines)
}

impl Line {
    fn read(cursor: &mut Cursor<'_>, name: &str) -> Result<Self, Fault> {
        let rank = cursor.u32("the number of dimensions")?;
        if rank > MAX_GGML_DIMS {
            return Err(Fault::damaged(format!("it has {rank} dimensions; the limit is {MAX_GGML_DIMS}")));
        }
        let mut dims = Vec::new();
        for _ in 0..rank {
            dims.push(cursor.u64("a dimension")?);
        }
        // ggml counts dimensions from the innermost.
        let shape = Shape::new(dims.into_iter().rev())?;
        let ggml_type = cursor.u32("the element type")?;
        let offset = cursor.u64("the offset")?;
        Ok(Line { name: name.to_owned(), shape, ggml_type, offset })
    }

    /// Finds the tensor's bytes in the file.
    fn place(&self, data_start: usize, alignment: usize, file_len: usize) -> Result<Entry, Fault> {
        if !self.offset.is_multiple_of(alignment as u64) {
            let what = format!("its offset {} is not a multiple of the alignment {alignment}", self.offset);
            return Err(Fault::damaged(what));
        }
        let element = ggml::element(self.ggml_type);
        let len = match element {
            Element::Known(dtype) => self.shape.bytes(dtype)?,
            Element::Foreign(_) => 0,
        };
        let start = usize::try_from(self.offset).ok().and_then(|offset| data_start.checked_add(offset));
        let end = start.and_then(|start| start.checked_add(len)).filter(|&end| end <= file_len);
        let Some((start, end)) = start.zip(end) else {
            let what = format!(
                "its {len} bytes at offset {} of the data (which starts at byte {data_start}) reach past the \
                 file's end at byte {file_len}",
                self.offset
            );
            return Err(Fault::damaged(what));
        };
        Ok(Entry { element, shape: self.shape, bytes: start..end })
    }
}
