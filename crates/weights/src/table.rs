//! Which tensors a file holds and where: what both formats' headers come down to.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::dtype::DType;
use crate::error::{Fault, Place, WeightsError, shown};
use crate::shape::Shape;
use crate::view::TensorView;

/// Most tensors one file may list. The largest mixture-of-experts checkpoints have about 200,000.
pub(crate) const MAX_TENSORS: usize = 1 << 20;

/// The tensors of one file, by name; offsets are checked against the file's size.
#[derive(Debug)]
pub struct TensorTable {
    file: PathBuf,
    entries: BTreeMap<String, Entry>,
}

/// One tensor's line in a header.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) element: Element,
    pub(crate) shape: Shape,
    /// Where the tensor is, in bytes from the file's start.
    pub(crate) bytes: Range<usize>,
}

/// The element type a header names.
#[derive(Debug)]
pub(crate) enum Element {
    Known(DType),
    /// A type this reader doesn't know. Not an error until someone wants that tensor.
    Foreign(String),
}

impl TensorTable {
    pub(crate) fn new(file: &Path) -> Self {
        TensorTable { file: file.to_owned(), entries: BTreeMap::new() }
    }

    pub(crate) fn insert(&mut self, name: String, entry: Entry) -> Result<(), WeightsError> {
        match self.entries.entry(name) {
            btree_map::Entry::Vacant(slot) => {
                slot.insert(entry);
                Ok(())
            }
            btree_map::Entry::Occupied(slot) => {
                Err(Fault::damaged("the name is there twice").at(&self.file, Place::tensor(slot.key())))
            }
        }
    }

    /// Checks that no two tensors share a byte.
    pub(crate) fn check_overlaps(&self) -> Result<(), WeightsError> {
        for pair in self.in_file_order().windows(2) {
            let [(first, before), (second, after)] = pair else {
                continue;
            };
            if after.bytes.start < before.bytes.end {
                let what = format!("it overlaps tensor {}", shown(first));
                return Err(Fault::damaged(what).at(&self.file, Place::tensor(second)));
            }
        }
        Ok(())
    }

    /// Entries by their place in the file.
    pub(crate) fn in_file_order(&self) -> Vec<(&str, &Entry)> {
        let mut entries: Vec<_> = self.entries.iter().map(|(name, entry)| (name.as_str(), entry)).collect();
        entries.sort_by_key(|(_, entry)| (entry.bytes.start, entry.bytes.end));
        entries
    }

    /// The file the table is of.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Tensor names, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when the file holds no tensor.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True when the file lists a tensor of that name, readable or not.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The tensor `name` out of `bytes`, the whole file that this table was parsed from.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`] when there is none of that name, [`WeightsError::Unsupported`] when
    /// its type is not known, [`WeightsError::Damaged`] when `bytes` is not the file that was parsed.
    pub fn view<'a>(&'a self, name: &str, bytes: &'a [u8]) -> Result<TensorView<'a>, WeightsError> {
        let (name, entry) = self.entries.get_key_value(name).ok_or_else(|| WeightsError::MissingTensor {
            file: self.file.clone(),
            tensor: name.to_owned(),
        })?;
        self.view_entry(name, entry, bytes).map_err(|fault| fault.at(&self.file, Place::tensor(name)))
    }

    fn view_entry<'a>(
        &'a self,
        name: &'a str,
        entry: &Entry,
        bytes: &'a [u8],
    ) -> Result<TensorView<'a>, Fault> {
        let dtype = match &entry.element {
            Element::Known(dtype) => *dtype,
            Element::Foreign(what) => {
                return Err(Fault::unsupported(format!("its element type is {what}, which can't be read")));
            }
        };
        let bytes = bytes
            .get(entry.bytes.clone())
            .ok_or_else(|| Fault::damaged(format!("its bytes, {:?}, are not in the file", entry.bytes)))?;
        TensorView::with_shape(&self.file, name, dtype, entry.shape, bytes)
    }
}
