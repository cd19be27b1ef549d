//! A JSON object taken apart field by field, so that every error names its field and nothing is ignored.

use crate::ApiError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The fields of a body that nobody has taken yet.
#[derive(Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Parses a body. Fields that are null count as absent.
    ///
    /// # Errors
    /// 400 when the body is no JSON object, or is nested deeper than 128 levels.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => {
                Ok(Self(fields.into_iter().filter(|(_, value)| !value.is_null()).collect()))
            }
            Ok(_) => Err(ApiError::invalid("the body must be a JSON object")),
            Err(error) => Err(ApiError::invalid(format!("the body is no JSON: {error}"))),
        }
    }

    /// Takes a field, if it is there.
    ///
    /// # Errors
    /// 400 naming the field when it has another type.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.0.shift_remove(name) else {
            return Ok(None);
        };
        serde_json::from_value(value).map(Some).map_err(|error| ApiError::field(name, error.to_string()))
    }

    /// Takes a field that must be there.
    ///
    /// # Errors
    /// 400 naming the field when it is missing or has another type.
    pub fn require<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?.ok_or_else(|| ApiError::field(name, "this field is missing"))
    }

    /// Takes a field whose only supported value is the API's default.
    ///
    /// # Errors
    /// 400 naming the field when it has any other value.
    pub fn only(&mut self, name: &str, default: &Value) -> Result<(), ApiError> {
        match self.0.shift_remove(name) {
            Some(value) if value != *default => {
                Err(ApiError::field(name, format!("only {default} is supported")))
            }
            _ => Ok(()),
        }
    }

    /// Takes a field that says nothing about the answer.
    pub fn skip(&mut self, name: &str) {
        self.0.shift_remove(name);
    }

    /// Ends the parsing.
    ///
    /// # Errors
    /// 400 naming the first field that nobody took.
    pub fn finish(self) -> Result<(), ApiError> {
        match self.0.keys().next() {
            Some(name) => {
                let name: String = name.chars().take(100).collect();
                Err(ApiError::field(name, "this field is not supported"))
            }
            None => Ok(()),
        }
    }
}
