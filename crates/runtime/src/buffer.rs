//! Buffers and the kinds of memory that they come from.
//!
//! A [`BufferType`] describes a kind of memory and allocates from it. A
//! [`Buffer`] is one allocation. Reading takes `&self`, writing `&mut self`:
//! a buffer shared by reference count is never written.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tensoryard_graph::{DType, Layout, Shape};

use crate::shared::SharedMemory;
use crate::{HostMemory, MemoryError, host_buffer_type};

/// What a buffer is used for. Only [`Usage::Weights`] draws ops to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "ggml_backend_buffer_usage")]
pub enum Usage {
    /// Anything; the usage of a new buffer.
    #[default]
    #[doc(alias = "GGML_BACKEND_BUFFER_USAGE_ANY")]
    Any,
    /// Model weights.
    #[doc(alias = "GGML_BACKEND_BUFFER_USAGE_WEIGHTS")]
    Weights,
    /// Compute memory of plans.
    #[doc(alias = "GGML_BACKEND_BUFFER_USAGE_COMPUTE")]
    Compute,
}

/// A kind of memory.
#[doc(alias = "ggml_backend_buffer_type")]
#[doc(alias = "ggml_backend_buffer_type_i")]
pub trait BufferType: Send + Sync + fmt::Debug {
    /// Name, unique among the buffer types of a process.
    #[doc(alias = "ggml_backend_buft_name")]
    fn name(&self) -> &str;

    /// Alignment in bytes of every tensor in a buffer of this type; a power of two.
    #[doc(alias = "ggml_backend_buft_get_alignment")]
    #[doc(alias = "ggml_backend_get_alignment")]
    fn alignment(&self) -> usize;

    /// Size in bytes of the largest possible buffer.
    #[doc(alias = "ggml_backend_buft_get_max_size")]
    #[doc(alias = "ggml_backend_get_max_size")]
    fn max_size(&self) -> usize;

    /// Bytes that a tensor takes, padding included; never below its own size.
    #[doc(alias = "ggml_backend_buft_get_alloc_size")]
    fn tensor_bytes(&self, layout: &Layout) -> usize;

    /// Whether buffers are plain host memory with tensors in their usual form.
    #[doc(alias = "ggml_backend_buft_is_host")]
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
    #[doc(alias = "ggml_backend_buft_alloc_buffer")]
    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError>;
}

/// Whether both are the same kind of memory.
pub fn same_buffer_type(a: &dyn BufferType, b: &dyn BufferType) -> bool {
    a.name() == b.name()
}

/// A tensor that was given a place in a buffer, as [`Memory::init_tensor`] is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedLayout {
    /// Distance in bytes from the start of the buffer to the first element.
    pub offset_bytes: usize,
    /// Type, shape and strides.
    pub layout: Layout,
    /// Offset and layout of the tensor that a view looks into.
    pub base: Option<(usize, Layout)>,
}

/// The memory behind one buffer.
///
/// # Safety
/// Devices read and write through the address of the host memory that [`Memory::host`] leads to.
/// It must be this value's own: the same for as long as the value lives, and read or written by
/// nobody else meanwhile, whatever they share with it.
///
/// It keeps what it needs of its device open for as long as it lives.
#[doc(alias = "ggml_backend_buffer_i")]
#[allow(unsafe_code, reason = "devices trust what implementations promise")]
pub unsafe trait Memory: Send + Sync + fmt::Debug + Any {
    /// Size in bytes.
    fn size(&self) -> usize;

    /// Plain host memory, if that is what it is.
    fn host(&self) -> Option<&HostMemory>;

    /// Plain host memory to be written, if that is what it is.
    fn host_mut(&mut self) -> Option<&mut HostMemory> {
        None
    }

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

    /// Reads the bytes from `offset` on.
    ///
    /// # Errors
    /// A range beyond the buffer; memory that holds whole tensors only.
    fn read_bytes(&self, offset: usize, dst: &mut [u8]) -> Result<(), MemoryError> {
        self.read_tensor(offset, &bytes_layout(dst.len())?, dst)
    }

    /// Writes bytes from `offset` on.
    ///
    /// # Errors
    /// A range beyond the buffer; read-only memory; memory that holds whole tensors only.
    fn write_bytes(&mut self, offset: usize, src: &[u8]) -> Result<(), MemoryError> {
        self.write_tensor(offset, &bytes_layout(src.len())?, src)
    }

    /// Sets a range of bytes.
    ///
    /// # Errors
    /// A range beyond the buffer; read-only memory; memory that holds whole tensors only.
    fn fill(&mut self, offset: usize, bytes: usize, byte: u8) -> Result<(), MemoryError> {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.size());
        let end = end.ok_or(MemoryError::OutOfRange { offset, bytes, size: self.size() })?;
        const PIECE: usize = 1 << 16;
        let piece = vec![byte; bytes.min(PIECE)];
        let mut at = offset;
        while at < end {
            let count = (end - at).min(PIECE);
            self.write_bytes(at, &piece[..count])?;
            at += count;
        }
        Ok(())
    }

    /// Copies a tensor from other memory, or from a place in this one if `src` is `None`, without
    /// the bytes passing through the host. Says whether it did: memory that cannot leaves all as
    /// it was and says `false`.
    ///
    /// # Errors
    /// A tensor beyond its buffer, or a device that failed.
    #[doc(alias = "ggml_backend_buffer_copy_tensor")]
    fn copy_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: Option<&dyn Memory>,
        src_offset: usize,
    ) -> Result<bool, MemoryError> {
        _ = (offset, layout, src, src_offset);
        Ok(false)
    }

    /// Told of every tensor that is placed in the buffer and of every view of one, the tensor
    /// before its views: for memory that keeps something about each. Plans are not told of
    /// here, since steps carry all about their tensors.
    ///
    /// # Errors
    /// A tensor that the memory cannot hold; it is not placed then.
    #[doc(alias = "ggml_backend_buffer_init_tensor")]
    fn init_tensor(&mut self, tensor: &PlacedLayout) -> Result<(), MemoryError> {
        _ = tensor;
        Ok(())
    }

    /// Forgets what [`Memory::init_tensor`] kept.
    fn reset(&mut self) {}

    /// For downcasts by the device that made it.
    fn as_any(&self) -> &dyn Any;
}

/// The layout of so many plain bytes.
pub(crate) fn bytes_layout(bytes: usize) -> Result<Layout, MemoryError> {
    let shape = Shape::new(&[bytes]).map_err(|_| MemoryError::Allocation { bytes })?;
    Layout::contiguous(DType::I8, shape).map_err(|_| MemoryError::Allocation { bytes })
}

/// One allocation of a [`BufferType`].
///
/// Buffers of no bytes are legal. Work in flight may hold the memory beyond the buffer's life.
/// Looking at the memory waits for that work.
#[derive(Debug)]
#[doc(alias = "ggml_backend_buffer")]
pub struct Buffer {
    buffer_type: Arc<dyn BufferType>,
    shared: Arc<SharedMemory>,
    size: usize,
    usage: Usage,
    alignment: usize,
    is_writable: bool,
    /// Address of the first byte of host memory.
    base: Option<usize>,
}

impl Buffer {
    /// Allocates `size` bytes.
    ///
    /// # Errors
    /// No memory, or more than the largest buffer of the type.
    #[doc(alias = "ggml_backend_buft_alloc_buffer")]
    #[doc(alias = "ggml_backend_alloc_buffer")]
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
        let mut buffer = Self::from_memory(buffer_type, buffer_type.allocate(size)?, usage);
        // A device may round up; the buffer is of the size that was asked for.
        buffer.size = buffer.size.min(size);
        Ok(buffer)
    }

    /// A buffer over host memory that the caller has: bytes shared with others, read only, or
    /// bytes of an owner that it gives away. Nothing is copied, the owner is dropped with the
    /// buffer, and [`Buffer::alignment`] is what the address happens to have.
    #[doc(alias = "ggml_backend_cpu_buffer_from_ptr")]
    #[doc(alias = "ggml_backend_dev_buffer_from_host_ptr")]
    pub fn from_host(memory: HostMemory, usage: Usage) -> Self {
        Self::from_memory(host_buffer_type(), Box::new(memory), usage)
    }

    /// A buffer over memory that exists.
    #[doc(alias = "ggml_backend_buffer_init")]
    pub fn from_memory(
        buffer_type: &Arc<dyn BufferType>,
        memory: Box<dyn Memory>,
        usage: Usage,
    ) -> Self {
        let size = memory.size();
        let host = memory.host();
        let (base, is_writable) = (host.map(HostMemory::address), is_writable(&*memory));
        let alignment = match host {
            Some(host) => host.alignment().min(buffer_type.alignment()),
            None => buffer_type.alignment(),
        };
        let shared = Arc::new(SharedMemory::new(memory));
        let buffer_type = Arc::clone(buffer_type);
        Self { buffer_type, shared, size, usage, alignment, is_writable, base }
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

    /// Says what the buffer is used for from now on.
    #[doc(alias = "ggml_backend_buffer_set_usage")]
    pub fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Name of the kind of memory.
    #[doc(alias = "ggml_backend_buffer_name")]
    pub fn name(&self) -> &str {
        self.buffer_type.name()
    }

    /// Address of the first byte, of host memory.
    #[doc(alias = "ggml_backend_buffer_get_base")]
    pub fn base(&self) -> Option<usize> {
        self.base
    }

    /// Whether the memory is plain host memory with tensors in their usual form.
    #[doc(alias = "ggml_backend_buffer_is_host")]
    pub fn is_host(&self) -> bool {
        self.base.is_some()
    }

    /// Whether the memory may be written. What [`Buffer::from_host`] was given by reference count
    /// may not, such as a mapped file.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Alignment in bytes of the tensors: that of the type, or less where the memory was not
    /// allocated by it.
    #[doc(alias = "ggml_backend_buffer_get_alignment")]
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Largest buffer of the type.
    #[doc(alias = "ggml_backend_buffer_get_max_size")]
    pub fn max_size(&self) -> usize {
        self.buffer_type.max_size()
    }

    /// Bytes that a tensor takes here, padding included.
    #[doc(alias = "ggml_backend_buffer_get_alloc_size")]
    pub fn tensor_bytes(&self, layout: &Layout) -> usize {
        self.buffer_type.tensor_bytes(layout)
    }

    /// Sets every byte, once no work in flight uses the buffer. Does nothing to a buffer of no
    /// bytes.
    ///
    /// # Errors
    /// Read-only memory.
    #[doc(alias = "ggml_backend_buffer_clear")]
    pub fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        if self.size == 0 {
            return Ok(());
        }
        self.memory_mut().clear(byte)
    }

    /// Forgets what the memory kept about its tensors. The contents are undefined afterwards.
    #[doc(alias = "ggml_backend_buffer_reset")]
    pub fn reset(&mut self) {
        self.memory_mut().reset();
        self.shared.set_last(None);
    }
}

fn is_writable(memory: &dyn Memory) -> bool {
    memory.host().is_none_or(HostMemory::is_writable)
}
