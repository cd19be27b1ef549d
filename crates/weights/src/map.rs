//! Files mapped into memory. The only `unsafe` of this crate.

use std::fs::{self, File};
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use crate::error::{Fault, Place, WeightsError};

/// A file's contents, mapped for reading. Pages are read from disk when they are first touched.
///
/// A file that is cut short by another program while it is mapped is out of reach: touching a page that is no
/// longer there ends the process with SIGBUS, and no check made here can prevent it. Replace model files by
/// renaming, never by writing into them.
#[derive(Debug)]
pub(crate) struct Map(Mmap);

impl Map {
    /// Maps the whole of a regular file and checks that the map is as long as the file.
    pub(crate) fn open(path: &Path) -> Result<Self, WeightsError> {
        // Opening a pipe would wait for a writer, so look first.
        let facts = fs::metadata(path).map_err(|e| WeightsError::io("open", path, e))?;
        if !facts.is_file() {
            return Err(WeightsError::not_a_checkpoint(path, "it is not a regular file"));
        }
        let damaged = |what: String| Fault::damaged(what).at(path, Place::Contents);
        if facts.len() == 0 {
            return Err(damaged("the file is empty".to_owned()));
        }
        let file = File::open(path).map_err(|e| WeightsError::io("open", path, e))?;
        // SAFETY: the map is read-only and handed out as `&[u8]`, for which any byte values are valid. What
        // can't be proven is that the bytes stay the same while they are borrowed: another program could
        // write into the file. No mapping API can exclude that, so it is asked of whoever manages the files
        // (see `Map`). The damage is bounded even then: sizes and offsets are copied out of the header
        // once, checked on the copy, and only the copy is used afterwards.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| WeightsError::io("map", path, e))?;
        if map.len() as u64 != facts.len() {
            return Err(damaged(format!(
                "its size went from {} to {} bytes while opening",
                facts.len(),
                map.len()
            )));
        }
        Ok(Map(map))
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
