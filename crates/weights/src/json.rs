//! JSON with what `serde_json`'s own collections don't ask for: unique keys, and limits while reading.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::shown;
use crate::shape::MAX_DIMS;
use crate::table::MAX_TENSORS;

/// An object of at most [`MAX_TENSORS`] entries whose values are still text, borrowed from the input; parsing
/// fails on a key given twice.
pub(crate) struct UniqueKeys<'a>(pub(crate) BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for UniqueKeys<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueKeysVisitor)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = UniqueKeys<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
            if entries.len() == MAX_TENSORS {
                return Err(A::Error::custom(format_args!("more than {MAX_TENSORS} entries")));
            }
            if entries.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the name {} is there twice", shown(&key))));
            }
            entries.insert(key, value);
        }
        Ok(UniqueKeys(entries))
    }
}

/// A list of at most [`MAX_DIMS`] dimensions.
pub(crate) struct Dims(pub(crate) Vec<u64>);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(DimsVisitor)
    }
}

struct DimsVisitor;

impl<'de> Visitor<'de> for DimsVisitor {
    type Value = Dims;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut dims = Vec::new();
        while let Some(dim) = list.next_element()? {
            if dims.len() == MAX_DIMS {
                return Err(A::Error::custom(format_args!("more than {MAX_DIMS} dimensions")));
            }
            dims.push(dim);
        }
        Ok(Dims(dims))
    }
}
