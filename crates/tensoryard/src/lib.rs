//! Speech to text on a tensor runtime in Rust.

#[cfg(feature = "download")]
pub mod hub;
