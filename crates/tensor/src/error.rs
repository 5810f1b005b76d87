//! The one error type of this crate.

use crate::{DType, Shape};

/// What can be wrong with a type, a shape or a layout that a caller gave.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// More dimensions than [`crate::MAX_DIMS`].
    #[error("{count} dimensions, at most {max} are possible")]
    TooManyDims {
        /// Number of dimensions given.
        count: usize,
        /// The most that a shape can have.
        max: usize,
    },
    /// The product of the dimensions, or the size in bytes, exceeds the address space.
    #[error("the size of shape {0:?} overflows")]
    Overflow(Vec<u64>),
    /// A row does not consist of whole blocks of a block-quantised type.
    #[error("rows of {row} elements are not whole blocks of {dtype}, which holds {block} a block")]
    PartialBlock {
        /// The type of the tensor.
        dtype: DType,
        /// Elements in one row.
        row: usize,
        /// Elements in one block.
        block: usize,
    },
    /// A view with another number of elements than its base.
    #[error("{from} has {} elements, {to} has {}", from.elements(), to.elements())]
    ElementCount {
        /// Shape of the base.
        from: Shape,
        /// Shape asked for.
        to: Shape,
    },
    /// An operation that needs elements without gaps was given a strided layout.
    #[error("the layout {0} is not contiguous")]
    NotContiguous(String),
    /// A list of dimensions that is not a permutation.
    #[error("{0:?} is not a permutation of the four dimensions")]
    Permutation([usize; 4]),
    /// No conversion between plain values and this type.
    #[error("values of type {0} cannot be converted to or from f32")]
    NoConversion(DType),
    /// A byte slice of another length than its elements need.
    #[error("{bytes} bytes for {elements} elements of {dtype}, {needed} are needed")]
    ByteCount {
        /// The type of the elements.
        dtype: DType,
        /// Number of elements.
        elements: usize,
        /// Bytes that so many elements take.
        needed: usize,
        /// Bytes given.
        bytes: usize,
    },
}
