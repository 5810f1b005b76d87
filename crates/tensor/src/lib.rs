//! Tensor element types, shapes and memory layouts.
//!
//! The lowest crate of the workspace: plain values without memory behind
//! them. A [`DType`] says how elements are stored, a [`Shape`] how many there
//! are along each dimension, a [`Layout`] where each of them lies. Nothing
//! here allocates buffers, knows devices or computes.

mod convert;
mod dtype;
mod error;
mod layout;
mod shape;

pub use convert::{decode_to_f32, encode_from_f32};
pub use dtype::DType;
pub use error::TensorError;
pub use half::{bf16, f16};
pub use layout::Layout;
pub use shape::{MAX_DIMS, Shape};
