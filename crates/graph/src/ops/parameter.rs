//! Parameters of ops by name: for dumps, reports and drivers behind a C table.

use std::fmt;

use crate::DType;

/// The value of an op's parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParameterValue {
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f32),
    /// One of a set of names, such as the function of a unary op.
    Word(&'static str),
    /// An element type.
    Type(DType),
}

impl ParameterValue {
    /// Whether dumps show the value without its name.
    fn speaks_for_itself(self) -> bool {
        match self {
            ParameterValue::Word(_) | ParameterValue::Type(_) => true,
            ParameterValue::Integer(_) | ParameterValue::Float(_) => false,
        }
    }
}

impl From<u32> for ParameterValue {
    fn from(value: u32) -> Self {
        ParameterValue::Integer(i64::from(value))
    }
}

impl From<f32> for ParameterValue {
    fn from(value: f32) -> Self {
        ParameterValue::Float(value)
    }
}

impl fmt::Display for ParameterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterValue::Integer(value) => write!(f, "{value}"),
            ParameterValue::Float(value) => write!(f, "{value}"),
            ParameterValue::Word(word) => f.write_str(word),
            ParameterValue::Type(dtype) => f.write_str(dtype.name()),
        }
    }
}

/// Parameters as `name=value`, words and types without their names.
pub(super) fn in_words(
    describe: impl FnOnce(&mut dyn FnMut(&'static str, ParameterValue)),
) -> String {
    let mut text = String::new();
    describe(&mut |name, value| {
        if !text.is_empty() {
            text.push(' ');
        }
        if !value.speaks_for_itself() {
            text.push_str(name);
            text.push('=');
        }
        text.push_str(&value.to_string());
    });
    text
}
