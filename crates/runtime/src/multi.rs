//! Several buffers of one kind handled as one.
//!
//! For what is larger than the largest buffer of a device. No tensor straddles two of them: who
//! places tensors fills one buffer after the other.

use std::sync::Arc;

use crate::{Buffer, BufferType, MemoryError, Usage, same_buffer_type};

/// Buffers of one kind.
#[derive(Debug)]
#[doc(alias = "ggml_backend_multi_buffer_alloc_buffer")]
#[doc(alias = "ggml_backend_buffer_is_multi_buffer")]
pub struct MultiBuffer {
    buffer_type: Arc<dyn BufferType>,
    buffers: Vec<Buffer>,
    usage: Usage,
}

impl MultiBuffer {
    /// Allocates a buffer of each size. No sizes make a multi-buffer of no bytes.
    ///
    /// # Errors
    /// No memory, or a size beyond the largest buffer; what was allocated before is freed.
    pub fn allocate(
        buffer_type: &Arc<dyn BufferType>,
        sizes: &[usize],
        usage: Usage,
    ) -> Result<Self, MemoryError> {
        let allocate = |&size: &usize| Buffer::allocate(buffer_type, size, usage);
        let buffers = sizes.iter().map(allocate).collect::<Result<_, _>>()?;
        Ok(Self { buffer_type: Arc::clone(buffer_type), buffers, usage })
    }

    /// Takes buffers together, which have the usage `any` from now on.
    ///
    /// # Errors
    /// A buffer of another kind than `buffer_type`.
    pub fn new(
        buffer_type: &Arc<dyn BufferType>,
        buffers: Vec<Buffer>,
    ) -> Result<Self, MemoryError> {
        let other = buffers.iter().find(|b| !same_buffer_type(&**b.buffer_type(), &**buffer_type));
        if let Some(other) = other {
            return Err(MemoryError::MixedBuffers {
                wanted: buffer_type.name().to_owned(),
                found: other.name().to_owned(),
            });
        }
        let mut all = Self { buffer_type: Arc::clone(buffer_type), buffers, usage: Usage::Any };
        all.set_usage(Usage::Any);
        Ok(all)
    }

    /// The kind of memory.
    pub fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    /// Bytes of all buffers.
    pub fn size(&self) -> usize {
        self.buffers.iter().map(Buffer::size).sum()
    }

    /// What the buffers are used for.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Says what all buffers are used for from now on.
    #[doc(alias = "ggml_backend_multi_buffer_set_usage")]
    pub fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
        for buffer in &mut self.buffers {
            buffer.set_usage(usage);
        }
    }

    /// Sets every byte of all buffers.
    ///
    /// # Errors
    /// Read-only memory.
    pub fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        self.buffers.iter_mut().try_for_each(|buffer| buffer.clear(byte))
    }

    /// Resets all buffers: see [`Buffer::reset`].
    pub fn reset(&mut self) {
        self.buffers.iter_mut().for_each(Buffer::reset);
    }

    /// The buffers.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The buffers one by one.
    pub fn into_buffers(self) -> Vec<Buffer> {
        self.buffers
    }
}
