//! The keys and values of a GGUF file, with getters that say what is wrong.
//!
//! Getters named after a type want exactly that type; [`Metadata::get_count`]
//! takes any integer, since writers disagree about integer widths.

use std::collections::HashMap;

use crate::error::{FormatError, Result};
use crate::value::{Array, Text, Value};

/// Keys and values in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

macro_rules! getters {
    ($($(#[$doc:meta])* $get:ident, $find:ident, $type:ty, $name:literal, $pattern:pat => $value:expr;)*) => {
        impl Metadata {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The key is missing, or its value has another type; both name the key.
                pub fn $get(&self, key: &str) -> Result<$type> {
                    self.$find(key)?.ok_or_else(|| FormatError::MissingKey(key.to_owned()))
                }

                /// As the getter, with `None` for a missing key.
                ///
                /// # Errors
                /// The value has another type.
                pub fn $find(&self, key: &str) -> Result<Option<$type>> {
                    match self.get(key) {
                        None => Ok(None),
                        Some($pattern) => Ok(Some($value)),
                        Some(other) => Err(wrong_type(key, $name, other)),
                    }
                }
            )*
        }
    };
}

getters! {
    /// The u32 of a key.
    get_u32, find_u32, u32, "u32", Value::U32(value) => *value;
    /// The i32 of a key.
    get_i32, find_i32, i32, "i32", Value::I32(value) => *value;
    /// The u64 of a key.
    get_u64, find_u64, u64, "u64", Value::U64(value) => *value;
    /// The f32 of a key.
    get_f32, find_f32, f32, "f32", Value::F32(value) => *value;
    /// The boolean of a key.
    get_bool, find_bool, bool, "bool", Value::Bool(value) => *value;
    /// The strings of an array.
    get_strings, find_strings, &[Text], "array of string",
        Value::Array(Array::String(values)) => values;
    /// The f32 numbers of an array.
    get_f32s, find_f32s, &[f32], "array of f32", Value::Array(Array::F32(values)) => values;
    /// The i32 numbers of an array.
    get_i32s, find_i32s, &[i32], "array of i32", Value::Array(Array::I32(values)) => values;
    /// The u32 numbers of an array.
    get_u32s, find_u32s, &[u32], "array of u32", Value::Array(Array::U32(values)) => values;
}

fn wrong_type(key: &str, wanted: &'static str, found: &Value) -> FormatError {
    FormatError::KeyType { key: key.to_owned(), wanted, found: found.type_name() }
}

impl Metadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(*self.index.get(key)?).map(|(_, value)| value)
    }

    /// Keys and values in the order of the file.
    pub fn entries(&self) -> &[(String, Value)] {
        &self.entries
    }

    /// Adds a key at the end.
    ///
    /// # Errors
    /// The key exists already.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Result<()> {
        let key = key.into();
        if self.index.contains_key(&key) {
            return Err(FormatError::Duplicate { kind: "key", name: key });
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value.into()));
        Ok(())
    }

    /// The text of a key.
    ///
    /// # Errors
    /// The key is missing, of another type, or not UTF-8.
    pub fn get_str(&self, key: &str) -> Result<&str> {
        self.find_str(key)?.ok_or_else(|| FormatError::MissingKey(key.to_owned()))
    }

    /// As [`Metadata::get_str`], with `None` for a missing key.
    ///
    /// # Errors
    /// The value has another type, or is not UTF-8.
    pub fn find_str(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => text
                .as_str()
                .map(Some)
                .ok_or_else(|| FormatError::invalid(format!("key {key:?}"), "is not UTF-8")),
            Some(other) => Err(wrong_type(key, "string", other)),
        }
    }

    /// A number of things: any integer type, not negative, that fits `usize`.
    ///
    /// # Errors
    /// The key is missing, of another type, or negative.
    pub fn get_count(&self, key: &str) -> Result<usize> {
        self.find_count(key)?.ok_or_else(|| FormatError::MissingKey(key.to_owned()))
    }

    /// As [`Metadata::get_count`], with `None` for a missing key.
    ///
    /// # Errors
    /// The value is of another type or negative.
    pub fn find_count(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value
            .as_u64()
            .and_then(|count| usize::try_from(count).ok())
            .map(Some)
            .ok_or_else(|| wrong_type(key, "integer that is not negative", value))
    }

    /// Token ids: an array of any 32-bit integers that are not negative.
    ///
    /// # Errors
    /// The value has another type, or holds a negative number.
    pub fn find_ids(&self, key: &str) -> Result<Option<Vec<u32>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::U32(ids))) => Ok(Some(ids.clone())),
            Some(Value::Array(Array::I32(ids))) => ids
                .iter()
                .map(|&id| {
                    u32::try_from(id).map_err(|_| {
                        FormatError::invalid(format!("key {key:?}"), format!("holds {id}"))
                    })
                })
                .collect::<Result<_>>()
                .map(Some),
            Some(other) => Err(wrong_type(key, "array of u32", other)),
        }
    }
}
