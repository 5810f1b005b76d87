//! Buffers and the kinds of memory that they come from.
//!
//! A [`BufferType`] describes a kind of memory and allocates from it. A
//! [`Buffer`] is one allocation. Reading takes `&self`, writing `&mut self`:
//! a buffer shared by reference count is never written.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tensoryard_graph::Layout;

use crate::shared::SharedMemory;
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
///
/// Work in flight may hold the memory beyond the buffer's life. Looking at the memory waits for
/// that work.
#[derive(Debug)]
#[doc(alias = "ggml_backend_buffer")]
pub struct Buffer {
    buffer_type: Arc<dyn BufferType>,
    shared: Arc<SharedMemory>,
    size: usize,
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
        Ok(Self::from_memory(buffer_type, buffer_type.allocate(size)?, usage))
    }

    /// A buffer over memory that exists, such as a mapped file.
    #[doc(alias = "ggml_backend_cpu_buffer_from_ptr")]
    pub fn from_memory(
        buffer_type: &Arc<dyn BufferType>,
        memory: Box<dyn Memory>,
        usage: Usage,
    ) -> Self {
        let size = memory.size();
        let shared = Arc::new(SharedMemory::new(memory));
        Self { buffer_type: Arc::clone(buffer_type), shared, size, usage }
    }

    /// The kind of memory.
    #[doc(alias = "ggml_backend_buffer_get_type")]
    pub fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    /// The memory itself, once no work in flight uses it.
    pub fn memory(&self) -> &dyn Memory {
        self.shared.when_idle()
    }

    /// The memory itself, to be written, once no work in flight uses it.
    #[allow(unsafe_code, reason = "exclusive access to what work in flight may share")]
    pub fn memory_mut(&mut self) -> &mut dyn Memory {
        // SAFETY: a memory has one buffer, which is borrowed exclusively here; the executor
        // counts uses in under an exclusive borrow of the buffer's owner.
        unsafe { self.shared.get_mut() }
    }

    /// The memory for the executor, which lends it to queues.
    pub(crate) fn shared(&self) -> &Arc<SharedMemory> {
        &self.shared
    }

    /// Size in bytes, exactly as it was asked for.
    #[doc(alias = "ggml_backend_buffer_get_size")]
    pub fn size(&self) -> usize {
        self.size
    }

    /// What the buffer is used for.
    #[doc(alias = "ggml_backend_buffer_get_usage")]
    pub fn usage(&self) -> Usage {
        self.usage
    }
}
