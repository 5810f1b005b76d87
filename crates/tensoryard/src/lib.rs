//! Speech to text on a tensor runtime in Rust.

mod convert;
#[cfg(feature = "download")]
pub mod hub;

pub use convert::{
    CONVERSION_REVISION, ConvertOptions, ConvertProgress, FormatError, ModelFormat, WeightType,
    convert,
};
