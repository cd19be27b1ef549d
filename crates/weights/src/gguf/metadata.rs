//! GGUF's key-value pairs: architecture, hyperparameters, tokenizer.
//!
//! A value is a u32 type and then: a number, a bool (one byte, 0 or 1), a string, or an array (u32 element
//! type, u64 count, elements). Arrays of arrays, which the format allows and nobody writes, are refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Fault, Place, WeightsError};

use super::cursor::Cursor;

/// The key-value pairs of a GGUF file.
///
/// The typed getters tell a key that is absent (`Ok(None)`) from one of the wrong type (an error that names
/// file and key).
#[derive(Debug)]
pub struct Metadata {
    file: PathBuf,
    values: BTreeMap<String, Value>,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any unsigned integer, u8 to u64.
    Unsigned(u64),
    /// Any signed integer, i8 to i64.
    Signed(i64),
    /// A float, f32 or f64.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// An array of values of one type, as wide in memory as in the file.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the variants are named after the element types of the format")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Strings(Strings),
}

/// A list of strings in two allocations. Vocabularies have up to a few hundred thousand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// Where each string ends in `text`.
    ends: Vec<usize>,
}

/// The numbers GGUF gives to value types.
mod value_type {
    pub(super) const U8: u32 = 0;
    pub(super) const I8: u32 = 1;
    pub(super) const U16: u32 = 2;
    pub(super) const I16: u32 = 3;
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const BOOL: u32 = 7;
    pub(super) const STRING: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
    pub(super) const U64: u32 = 10;
    pub(super) const I64: u32 = 11;
    pub(super) const F64: u32 = 12;
}

impl Metadata {
    pub(super) fn read(cursor: &mut Cursor<'_>, count: u64, file: &Path) -> Result<Self, WeightsError> {
        let mut values = BTreeMap::new();
        for index in 0..count {
            let key = cursor
                .string("the key")
                .map_err(|fault| fault.at(file, Place::Key(format!("number {index}"))))?;
            let fail = |fault: Fault| fault.at(file, Place::key(key));
            let value = Value::read(cursor).map_err(fail)?;
            if values.insert(key.to_owned(), value).is_some() {
                return Err(fail(Fault::damaged("the key is there twice")));
            }
        }
        Ok(Metadata { file: file.to_owned(), values })
    }

    /// The file the metadata is from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Keys and values, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// True when the file has the key.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// The error for a key that the caller can't do without:
    /// `metadata.u64(key)?.ok_or_else(|| metadata.missing(key))?`.
    pub fn missing(&self, key: &str) -> WeightsError {
        WeightsError::MissingKey { file: self.file.clone(), key: key.to_owned() }
    }

    /// Text.
    ///
    /// # Errors
    /// [`WeightsError::WrongType`] when the value is not a string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, WeightsError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A whole number from 0 up, whatever its width in the file.
    ///
    /// # Errors
    /// [`WeightsError::WrongType`] when the value is not an integer or is negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, WeightsError> {
        self.typed(key, "a non-negative integer", Value::as_u64)
    }

    /// A float or an integer.
    ///
    /// # Errors
    /// [`WeightsError::WrongType`] when the value is not a number.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, WeightsError> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// True or false.
    ///
    /// # Errors
    /// [`WeightsError::WrongType`] when the value is not a bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, WeightsError> {
        self.typed(key, "a bool", Value::as_bool)
    }

    /// An array of strings.
    ///
    /// # Errors
    /// [`WeightsError::WrongType`] when the value is not an array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>, WeightsError> {
        self.typed(key, "an array of strings", |value| value.as_array()?.as_strings())
    }

    /// An array of integers of any width.
    ///
    /// # Errors
    /// [`WeightsError::WrongType`] when the value is not an array of integers that fit i64.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, WeightsError> {
        self.typed(key, "an array of integers", |value| value.as_array()?.to_integers())
    }

    /// An array of floats.
    ///
    /// # Errors
    /// [`WeightsError::WrongType`] when the value is not an array of f32 or f64.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f64>>, WeightsError> {
        self.typed(key, "an array of floats", |value| value.as_array()?.to_floats())
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, WeightsError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wrong_type = || WeightsError::WrongType {
            file: self.file.clone(),
            key: key.to_owned(),
            expected,
            found: value.describe(),
        };
        convert(value).map(Some).ok_or_else(wrong_type)
    }
}

impl Value {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        const WHAT: &str = "the value";
        Ok(match cursor.u32("the value's type")? {
            value_type::U8 => Value::Unsigned(u8::from_le_bytes(cursor.array(WHAT)?).into()),
            value_type::I8 => Value::Signed(i8::from_le_bytes(cursor.array(WHAT)?).into()),
            value_type::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array(WHAT)?).into()),
            value_type::I16 => Value::Signed(i16::from_le_bytes(cursor.array(WHAT)?).into()),
            value_type::U32 => Value::Unsigned(u32::from_le_bytes(cursor.array(WHAT)?).into()),
            value_type::I32 => Value::Signed(i32::from_le_bytes(cursor.array(WHAT)?).into()),
            value_type::U64 => Value::Unsigned(u64::from_le_bytes(cursor.array(WHAT)?)),
            value_type::I64 => Value::Signed(i64::from_le_bytes(cursor.array(WHAT)?)),
            value_type::F32 => Value::Float(f32::from_le_bytes(cursor.array(WHAT)?).into()),
            value_type::F64 => Value::Float(f64::from_le_bytes(cursor.array(WHAT)?)),
            value_type::BOOL => Value::Bool(bool_from(u8::from_le_bytes(cursor.array(WHAT)?))?),
            value_type::STRING => Value::String(cursor.string(WHAT)?.to_owned()),
            value_type::ARRAY => Value::Array(Array::read(cursor)?),
            other => return Err(Fault::damaged(format!("value type {other} does not exist"))),
        })
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// An integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// An integer that fits i64.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::Unsigned(number) => i64::try_from(number).ok(),
            Value::Signed(number) => Some(number),
            _ => None,
        }
    }

    /// A float, or an integer as a float.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Float(number) => Some(number),
            Value::Unsigned(number) => Some(number as f64),
            Value::Signed(number) => Some(number as f64),
            _ => None,
        }
    }

    /// True or false.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// An array.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// The kind of value, for messages; never the contents of something long.
    fn describe(&self) -> String {
        match self {
            Value::Unsigned(number) => format!("the integer {number}"),
            Value::Signed(number) => format!("the integer {number}"),
            Value::Float(number) => format!("the float {number}"),
            Value::Bool(value) => format!("the bool {value}"),
            Value::String(_) => "a string".to_owned(),
            Value::Array(array) => format!("an array of {} {}", array.len(), array.element_name()),
        }
    }
}

impl Array {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        Ok(match cursor.u32("the array's element type")? {
            value_type::U8 => Array::U8(numbers(cursor, u8::from_le_bytes)?),
            value_type::I8 => Array::I8(numbers(cursor, i8::from_le_bytes)?),
            value_type::U16 => Array::U16(numbers(cursor, u16::from_le_bytes)?),
            value_type::I16 => Array::I16(numbers(cursor, i16::from_le_bytes)?),
            value_type::U32 => Array::U32(numbers(cursor, u32::from_le_bytes)?),
            value_type::I32 => Array::I32(numbers(cursor, i32::from_le_bytes)?),
            value_type::U64 => Array::U64(numbers(cursor, u64::from_le_bytes)?),
            value_type::I64 => Array::I64(numbers(cursor, i64::from_le_bytes)?),
            value_type::F32 => Array::F32(numbers(cursor, f32::from_le_bytes)?),
            value_type::F64 => Array::F64(numbers(cursor, f64::from_le_bytes)?),
            value_type::BOOL => {
                let bytes = numbers(cursor, u8::from_le_bytes)?;
                Array::Bool(bytes.into_iter().map(bool_from).collect::<Result<_, _>>()?)
            }
            value_type::STRING => Array::Strings(Strings::read(cursor)?),
            value_type::ARRAY => return Err(Fault::unsupported("arrays of arrays can't be read")),
            other => {
                return Err(Fault::damaged(format!("array element type {other} does not exist")));
            }
        })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::F64(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Strings(v) => v.len(),
        }
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The strings of an array of strings.
    pub fn as_strings(&self) -> Option<&Strings> {
        match self {
            Array::Strings(strings) => Some(strings),
            _ => None,
        }
    }

    /// Integers of any width; `None` when an element doesn't fit i64 or is no integer.
    pub fn to_integers(&self) -> Option<Vec<i64>> {
        match self {
            Array::U8(v) => Some(widen(v)),
            Array::I8(v) => Some(widen(v)),
            Array::U16(v) => Some(widen(v)),
            Array::I16(v) => Some(widen(v)),
            Array::U32(v) => Some(widen(v)),
            Array::I32(v) => Some(widen(v)),
            Array::U64(v) => v.iter().map(|&number| i64::try_from(number).ok()).collect(),
            Array::I64(v) => Some(v.clone()),
            _ => None,
        }
    }

    /// Floats of either width.
    pub fn to_floats(&self) -> Option<Vec<f64>> {
        match self {
            Array::F32(v) => Some(widen(v)),
            Array::F64(v) => Some(v.clone()),
            _ => None,
        }
    }

    fn element_name(&self) -> &'static str {
        match self {
            Array::Strings(_) => "strings",
            Array::Bool(_) => "bools",
            Array::F32(_) | Array::F64(_) => "floats",
            _ => "integers",
        }
    }
}

fn widen<T: Copy, U: From<T>>(values: &[T]) -> Vec<U> {
    values.iter().map(|&value| U::from(value)).collect()
}

/// An array of numbers of `N` bytes each.
fn numbers<const N: usize, T>(cursor: &mut Cursor<'_>, number: fn([u8; N]) -> T) -> Result<Vec<T>, Fault> {
    let count = cursor.count("array elements", N as u64)?;
    let bytes = cursor.take(count * N as u64, "the array")?;
    Ok(bytes.as_chunks::<N>().0.iter().map(|&chunk| number(chunk)).collect())
}

fn bool_from(byte: u8) -> Result<bool, Fault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Fault::damaged(format!("a bool is the byte {other}; only 0 and 1 are allowed"))),
    }
}

impl Strings {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        const LENGTH_BYTES: u64 = 8;
        let count = cursor.count("strings", LENGTH_BYTES)?;
        let mut strings = Strings::default();
        for index in 0..count {
            strings.text.push_str(cursor.string(format_args!("string {index} of the array"))?);
            strings.ends.push(strings.text.len());
        }
        Ok(strings)
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        (index < self.len()).then(|| self.at(index))
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|index| self.at(index))
    }

    fn at(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[index]]
    }
}
