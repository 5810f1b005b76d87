//! A buffer, or a tensor in one, could not be had, read or written.
//!
//! Errors of memory name the kind of memory or the device, and the bytes.

use tensoryard_graph::Layout;

/// A buffer or a tensor in one could not be allocated, read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system or the device did not give the memory.
    #[error("{bytes} bytes could not be allocated")]
    Allocation {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The memory went with its device.
    #[error("the memory of {device} is lost")]
    Lost {
        /// Name of the device.
        device: String,
    },
    /// More than the largest buffer of the type.
    #[error("{bytes} bytes exceed the largest buffer of {buffer_type}, {max} bytes")]
    TooLarge {
        /// Name of the buffer type.
        buffer_type: String,
        /// Bytes asked for.
        bytes: usize,
        /// Largest possible buffer.
        max: usize,
    },
    /// A device that has no room, or does not give it.
    #[error(
        "{buffer_type} has no {bytes} bytes (alignment {alignment}, {padding} bytes added to each \
         tensor, largest buffer {max}): {reason}"
    )]
    NoRoom {
        /// Name of the buffer type.
        buffer_type: String,
        /// Bytes asked for.
        bytes: usize,
        /// Alignment of tensors.
        alignment: usize,
        /// Bytes added to each tensor.
        padding: usize,
        /// Largest possible buffer.
        max: usize,
        /// What stands against it.
        reason: String,
    },
    /// A range that reaches beyond the buffer.
    #[error("{bytes} bytes at offset {offset} reach beyond the buffer of {size} bytes")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Length of the range.
        bytes: usize,
        /// Size of the buffer.
        size: usize,
    },
    /// A write into memory that may only be read.
    #[error("the buffer is read only")]
    ReadOnly,
    /// An access that the buffer type does not offer.
    #[error("{buffer_type} holds whole tensors only: {what}")]
    WholeTensorsOnly {
        /// Name of the buffer type.
        buffer_type: String,
        /// The access that was tried.
        what: &'static str,
    },
    /// A layout that the buffer type cannot hold.
    #[error("{buffer_type} cannot hold {layout}")]
    Layout {
        /// Name of the buffer type.
        buffer_type: String,
        /// The layout.
        layout: Layout,
    },
    /// A kind of memory that this machine does not have.
    #[error("there is no {buffer_type} here: {reason}")]
    Unavailable {
        /// Name of the buffer type.
        buffer_type: String,
        /// What is missing.
        reason: String,
    },
    /// A tensor that the memory refuses to hold.
    #[error("{buffer_type} refuses the tensor: {reason}")]
    Refused {
        /// Name of the buffer type.
        buffer_type: String,
        /// Why.
        reason: String,
    },
    /// The device that has the memory did not do what it was asked.
    #[error("{buffer_type}: {reason}")]
    Failed {
        /// Name of the buffer type.
        buffer_type: String,
        /// What it said.
        reason: String,
    },
    /// Buffers of several kinds where one is wanted.
    #[error("a {found} buffer among buffers of {wanted}")]
    MixedBuffers {
        /// The kind of the first buffer.
        wanted: String,
        /// The kind of another.
        found: String,
    },
    /// A number of bytes that is not the tensor's.
    #[error("{given} bytes given for {layout}, which takes {needed}")]
    ByteCount {
        /// The layout.
        layout: Layout,
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
}

impl MemoryError {
    /// Whether the device of the memory can do no more, for want of memory or because it is gone.
    pub(super) fn is_device_failure(&self) -> bool {
        match self {
            MemoryError::Allocation { .. }
            | MemoryError::NoRoom { .. }
            | MemoryError::Lost { .. }
            | MemoryError::Failed { .. } => true,
            MemoryError::TooLarge { .. }
            | MemoryError::OutOfRange { .. }
            | MemoryError::ReadOnly
            | MemoryError::WholeTensorsOnly { .. }
            | MemoryError::Layout { .. }
            | MemoryError::ByteCount { .. }
            | MemoryError::Unavailable { .. }
            | MemoryError::Refused { .. }
            | MemoryError::MixedBuffers { .. } => false,
        }
    }
}
