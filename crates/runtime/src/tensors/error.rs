//! Errors of tensors in buffers: each names the tensor, the offset and the size.

use tensoryard_graph::Layout;

use crate::{Buffer, DeviceError, MemoryError};

/// A tensor could not be placed, read, written or copied.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TensorDataError {
    /// A key of another set.
    #[error("there is no tensor {number} among {count}")]
    UnknownTensor {
        /// Number of the key.
        number: usize,
        /// Tensors of the set.
        count: usize,
    },
    /// A key of another set.
    #[error("there is no buffer {number} among {count}")]
    UnknownBuffer {
        /// Number of the key.
        number: usize,
        /// Buffers of the set.
        count: usize,
    },
    /// A tensor without memory.
    #[error("{bytes} bytes at offset {offset_bytes} of {tensor:?}, which has no memory")]
    Unplaced {
        /// Name of the tensor.
        tensor: String,
        /// First byte, counted from the first element.
        offset_bytes: usize,
        /// Bytes that were to be moved.
        bytes: usize,
    },
    /// A range that reaches beyond the tensor.
    #[error("{bytes} bytes at offset {offset_bytes} reach beyond {tensor:?}, which has {size}")]
    OutOfRange {
        /// Name of the tensor.
        tensor: String,
        /// First byte, counted from the first element.
        offset_bytes: usize,
        /// Bytes that were to be moved.
        bytes: usize,
        /// Bytes from the first element to the end of the last.
        size: usize,
    },
    /// A number of bytes that the access does not take.
    #[error("{tensor:?}, offset {offset_bytes}: {given} bytes given, wanted {needed}")]
    ByteCount {
        /// Name of the tensor.
        tensor: String,
        /// First byte, counted from the first element.
        offset_bytes: usize,
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Rows that lie in one another.
    #[error("{tensor:?}, offset {offset_bytes}: rows of {row_bytes} bytes {stride} apart overlap")]
    OverlappingRows {
        /// Name of the tensor.
        tensor: String,
        /// First byte, counted from the first element.
        offset_bytes: usize,
        /// Bytes of a row.
        row_bytes: usize,
        /// Distance between two rows.
        stride: usize,
    },
    /// A copy between tensors of different types, shapes or strides.
    #[error("{src:?} is {found}, it cannot be copied to {dst:?}, which is {wanted}")]
    LayoutMismatch {
        /// Name of the source.
        src: String,
        /// Its layout.
        found: Layout,
        /// Name of the destination.
        dst: String,
        /// Its layout.
        wanted: Layout,
    },
    /// A tensor that has memory already.
    #[error("{tensor:?} is placed already")]
    AlreadyPlaced {
        /// Name of the tensor.
        tensor: String,
    },
    /// A view is initialised from its base, never placed.
    #[error("{tensor:?} is a view of {base:?} and cannot be placed on its own")]
    PlacedView {
        /// Name of the view.
        tensor: String,
        /// Name of its base.
        base: String,
    },
    /// Only views are initialised from a base.
    #[error("{tensor:?} is no view")]
    NotAView {
        /// Name of the tensor.
        tensor: String,
    },
    /// A view of a tensor without memory.
    #[error("{tensor:?} is a view of {base:?}, which has no memory")]
    BaseUnplaced {
        /// Name of the view.
        tensor: String,
        /// Name of its base.
        base: String,
    },
    /// A view that reaches beyond its base.
    #[error(
        "{tensor:?} takes {bytes} bytes at offset {offset_bytes} of {base:?}, which has {size}"
    )]
    BeyondBase {
        /// Name of the view.
        tensor: String,
        /// Name of its base.
        base: String,
        /// First byte, counted from the base's first element.
        offset_bytes: usize,
        /// Bytes of the view.
        bytes: usize,
        /// Bytes of the base.
        size: usize,
    },
    /// A place that is no multiple of the alignment.
    #[error("{tensor:?} at offset {offset_bytes} of {buffer_type} is not aligned to {alignment}")]
    Misaligned {
        /// Name of the tensor.
        tensor: String,
        /// Offset in the buffer.
        offset_bytes: usize,
        /// Name of the buffer type.
        buffer_type: String,
        /// Alignment of the buffer and of the tensor's elements.
        alignment: usize,
    },
    /// A tensor that reaches beyond its buffer.
    #[error(
        "{tensor:?} takes {bytes} bytes with padding at offset {offset_bytes} of {buffer_type}, \
         which has {size}"
    )]
    BeyondBuffer {
        /// Name of the tensor.
        tensor: String,
        /// Offset in the buffer.
        offset_bytes: usize,
        /// Bytes of the tensor, padding included.
        bytes: usize,
        /// Name of the buffer type.
        buffer_type: String,
        /// Size of the buffer.
        size: usize,
    },
    /// The memory failed or refused.
    #[error("{tensor:?}, {bytes} bytes at offset {offset_bytes}: {error}")]
    Access {
        /// Name of the tensor.
        tensor: String,
        /// First byte, counted from the first element.
        offset_bytes: usize,
        /// Bytes that were to be moved.
        bytes: usize,
        /// What happened.
        #[source]
        error: MemoryError,
    },
    /// A buffer could not be had or cleared.
    #[error("a buffer of {bytes} bytes of {buffer_type}: {error}")]
    Buffer {
        /// Name of the buffer type.
        buffer_type: String,
        /// Size of the buffer.
        bytes: usize,
        /// What happened.
        #[source]
        error: MemoryError,
    },
    /// A queue failed.
    #[error("{tensor:?}, {bytes} bytes at offset {offset_bytes}: {error}")]
    Device {
        /// Name of the tensor.
        tensor: String,
        /// First byte, counted from the first element.
        offset_bytes: usize,
        /// Bytes that were to be moved.
        bytes: usize,
        /// What happened.
        #[source]
        error: DeviceError,
    },
}

pub(super) fn in_buffer(buffer: &Buffer, error: MemoryError) -> TensorDataError {
    let buffer_type = buffer.name().to_owned();
    TensorDataError::Buffer { buffer_type, bytes: buffer.size(), error }
}

/// What is accessed, for errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access<'a> {
    pub tensor: &'a str,
    pub offset_bytes: usize,
    pub bytes: usize,
}

impl Access<'_> {
    pub fn memory(&self, error: MemoryError) -> TensorDataError {
        let &Self { tensor, offset_bytes, bytes } = self;
        TensorDataError::Access { tensor: tensor.to_owned(), offset_bytes, bytes, error }
    }

    pub fn device(&self, error: DeviceError) -> TensorDataError {
        let &Self { tensor, offset_bytes, bytes } = self;
        TensorDataError::Device { tensor: tensor.to_owned(), offset_bytes, bytes, error }
    }
}
