//! Speech to text on a tensor runtime in Rust.
