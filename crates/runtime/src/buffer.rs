//! Buffers and the kinds of memory that they come from.
//!
//! A [`BufferType`] describes a kind of memory and allocates from it. A
//! [`Buffer`] is one allocation. Reading takes `&self`, writing `&mut self`:
//! a buffer shared by reference count is never written.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tensoryard_graph::Layout;

use crate::{HostMemory, MemoryError};

/// What a buffer is used for. Only [`Usage::Weights`] draws ops to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "ggml_backend_buffer_usage")]
pub enum Usage {
    /// Anything; the usage of a new buffer.
    #[default]
    Any,
    /// Model weights.
    Weights,
    /// Compute memory of plans.
    Compute,
}

/// A kind of memory.
#[doc(alias = "ggml_backend_buffer_type")]
pub trait BufferType: Send + Sync + fmt::Debug {
    /// Name, unique among the buffer types of a process.
    fn name(&self) -> &str;

    /// Alignment in bytes of every tensor in a buffer of this type; a power of two.
    fn alignment(&self) -> usize;

    /// Size in bytes of the largest possible buffer.
    fn max_size(&self) -> usize;

    /// Bytes that a tensor takes, padding included; never below its own size.
    fn tensor_bytes(&self, layout: &Layout) -> usize;

    /// Whether buffers are plain host memory with tensors in their usual form.
    fn is_host(&self) -> bool;

    /// Whether a part of a tensor can be looked at where it lies. Types that convert tensors
    /// hold whole ones only.
    fn takes_views(&self) -> bool {
        true
    }

    /// Memory of `size` bytes.
    ///
    /// # Errors
    /// No memory: the error names the size.
    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError>;
}

/// Whether both are the same kind of memory.
pub fn same_buffer_type(a: &dyn BufferType, b: &dyn BufferType) -> bool {
    a.name() == b.name()
}

/// The memory behind one buffer.
pub trait Memory: Send + Sync + fmt::Debug + Any {
    /// Size in bytes.
    fn size(&self) -> usize;

    /// Plain host memory, if that is what it is.
    fn host(&self) -> Option<&HostMemory>;

    /// Reads a tensor into contiguous bytes of the layout's elements.
    ///
    /// # Errors
    /// A tensor beyond the buffer; a byte count that is not the tensor's.
    fn read_tensor(
        &self,
        offset: usize,
        layout: &Layout,
        dst: &mut [u8],
    ) -> Result<(), MemoryError>;

    /// Writes a tensor from contiguous bytes of the layout's elements.
    ///
    /// # Errors
    /// A tensor beyond the buffer; read-only memory; a byte count that is not the tensor's.
    fn write_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: &[u8],
    ) -> Result<(), MemoryError>;

    /// Sets every byte.
    ///
    /// # Errors
    /// Read-only memory.
    fn clear(&mut self, byte: u8) -> Result<(), MemoryError>;

    /// For downcasts by the device that made it.
    fn as_any(&self) -> &dyn Any;
}

/// One allocation of a [`BufferType`].
#[derive(Debug)]
#[doc(alias = "ggml_backend_buffer")]
pub struct Buffer {
    buffer_type: Arc<dyn BufferType>,
    memory: Box<dyn Memory>,
    usage: Usage,
}

impl Buffer {
    /// Allocates `size` bytes.
    ///
    /// # Errors
    /// No memory, or more than the largest buffer of the type.
    #[doc(alias = "ggml_backend_buft_alloc_buffer")]
    pub fn allocate(
        buffer_type: &Arc<dyn BufferType>,
        size: usize,
        usage: Usage,
    ) -> Result<Self, MemoryError> {
        if size > buffer_type.max_size() {
            return Err(MemoryError::TooLarge {
                buffer_type: buffer_type.name().to_owned(),
                bytes: size,
                max: buffer_type.max_size(),
            });
        }
        let memory = buffer_type.allocate(size)?;
        Ok(Self { buffer_type: Arc::clone(buffer_type), memory, usage })
    }

    /// A buffer over memory that exists, such as a mapped file.
    #[doc(alias = "ggml_backend_cpu_buffer_from_ptr")]
    pub fn from_memory(
        buffer_type: &Arc<dyn BufferType>,
        memory: Box<dyn Memory>,
        usage: Usage,
    ) -> Self {
        Self { buffer_type: Arc::clone(buffer_type), memory, usage }
    }

    /// The kind of memory.
    pub fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    /// The memory itself.
    pub fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    /// The memory itself, to be written.
    pub fn memory_mut(&mut self) -> &mut dyn Memory {
        &mut *self.memory
    }

    /// Size in bytes, exactly as it was asked for.
    pub fn size(&self) -> usize {
        self.memory.size()
    }

    /// What the buffer is used for.
    pub fn usage(&self) -> Usage {
        self.usage
    }
}
