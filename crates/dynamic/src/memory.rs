//! Memory of a driver: tensors as ranges of bytes that its functions read and write.
#![allow(unsafe_code)]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use tensoryard_graph::Layout;
use tensoryard_runtime::{BufferType, HostMemory, Memory, MemoryError};

use crate::abi;
use crate::library::{Failure, Library};

/// A kind of memory of a driver.
#[derive(Debug)]
pub(crate) struct DynamicBufferType {
    pub library: Arc<Library>,
    pub device: u64,
    /// Name of the device.
    pub device_name: String,
    pub index: u64,
    pub name: String,
    pub alignment: usize,
    pub max_size: usize,
    pub is_host: bool,
}

/// A buffer of the driver, freed when dropped.
#[derive(Debug)]
struct Handle {
    library: Arc<Library>,
    /// Nothing for a buffer of no bytes.
    buffer: Option<NonNull<abi::Buffer>>,
}

// SAFETY: the header lets buffers be used from any thread, writers being alone.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`; only reads go through a shared reference.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer {
            // SAFETY: the buffer came from `buffer_alloc` and is freed once. Nobody is told of a
            // failure: the memory is gone either way.
            _ = unsafe { self.library.call(|f, error| (f.buffer_free)(buffer.as_ptr(), error)) };
        }
    }
}

/// Memory in a buffer of a driver.
#[derive(Debug)]
pub(crate) struct DynamicMemory {
    /// The memory as the host sees it, for types of host memory. Dropped before the buffer.
    host: Option<HostMemory>,
    handle: Handle,
    device_name: String,
    type_name: String,
    size: usize,
}

/// Host memory that lives in a buffer of the driver.
struct HostBytes(NonNull<u8>, usize);

// SAFETY: plain bytes that belong to this value, inside a buffer that outlives it.
unsafe impl Send for HostBytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostBytes {}

impl AsMut<[u8]> for HostBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the driver gave the address of so many bytes, which were written once over
        // before; the memory that holds this value keeps the buffer.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.1) }
    }
}

impl BufferType for DynamicBufferType {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn max_size(&self) -> usize {
        self.max_size
    }

    fn tensor_bytes(&self, layout: &Layout) -> usize {
        layout.extent_bytes()
    }

    fn is_host(&self) -> bool {
        self.is_host
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        let buffer = if size == 0 { None } else { Some(self.alloc(size)?) };
        let handle = Handle { library: Arc::clone(&self.library), buffer };
        let mut memory = DynamicMemory {
            host: None,
            handle,
            device_name: self.device_name.clone(),
            type_name: self.name.clone(),
            size,
        };
        if self.is_host {
            memory.host = Some(match buffer {
                Some(buffer) => self.map(&mut memory, buffer)?,
                None => HostMemory::allocate(0, self.alignment)?,
            });
        }
        Ok(Box::new(memory))
    }
}

impl DynamicBufferType {
    fn error(&self, size: usize, failure: Failure) -> MemoryError {
        memory_error(&self.device_name, &self.name, size, failure)
    }

    fn alloc(&self, size: usize) -> Result<NonNull<abi::Buffer>, MemoryError> {
        let mut buffer = std::ptr::null_mut();
        // SAFETY: device and type exist; the handle is written through a pointer to it.
        let asked = unsafe {
            self.library.call(|f, error| {
                (f.buffer_alloc)(self.device, self.index, size as u64, &raw mut buffer, error)
            })
        };
        asked.map_err(|failure| self.error(size, failure))?;
        NonNull::new(buffer).ok_or_else(|| self.refuse("buffer_alloc gave no buffer"))
    }

    fn refuse(&self, reason: &str) -> MemoryError {
        MemoryError::Failed { buffer_type: self.name.clone(), reason: reason.to_owned() }
    }

    /// The host's view of a new buffer.
    fn map(
        &self,
        memory: &mut DynamicMemory,
        buffer: NonNull<abi::Buffer>,
    ) -> Result<HostMemory, MemoryError> {
        // Fresh memory may hold anything; slices are made of bytes that were written.
        memory.clear(0)?;
        let mut base = std::ptr::null_mut();
        // SAFETY: the buffer is of host memory; the address is written through a pointer to it.
        let asked = unsafe {
            self.library.call(|f, error| (f.buffer_base)(buffer.as_ptr(), &raw mut base, error))
        };
        asked.map_err(|failure| self.error(memory.size, failure))?;
        let base = NonNull::new(base.cast::<u8>());
        let base = base.ok_or_else(|| self.refuse("buffer_base gave no address"))?;
        if !base.addr().get().is_multiple_of(self.alignment) {
            return Err(self.refuse("buffer_base gave an address that is not aligned"));
        }
        Ok(HostMemory::from_owned(Box::new(HostBytes(base, memory.size))))
    }
}

fn memory_error(device: &str, buffer_type: &str, bytes: usize, failure: Failure) -> MemoryError {
    match failure.status {
        abi::OUT_OF_MEMORY => MemoryError::Allocation { bytes },
        abi::LOST => MemoryError::Lost { device: device.to_owned() },
        _ => MemoryError::Failed { buffer_type: buffer_type.to_owned(), reason: failure.reason },
    }
}

impl DynamicMemory {
    /// The buffer, if it is one of this library.
    pub fn buffer_of(&self, library: &Arc<Library>) -> Option<*mut abi::Buffer> {
        let buffer = self.handle.buffer.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        Arc::ptr_eq(&self.handle.library, library).then_some(buffer)
    }

    fn error(&self, bytes: usize, failure: Failure) -> MemoryError {
        memory_error(&self.device_name, &self.type_name, bytes, failure)
    }

    fn check(&self, offset: usize, layout: &Layout, given: usize) -> Result<(), MemoryError> {
        let (needed, bytes) = (layout.data_bytes(), layout.extent_bytes());
        if needed != given {
            return Err(MemoryError::ByteCount { layout: *layout, needed, given });
        }
        self.check_range(offset, bytes)
    }

    fn check_range(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.size => Ok(()),
            Some(_) | None => Err(MemoryError::OutOfRange { offset, bytes, size: self.size }),
        }
    }

    fn read_range(&self, offset: usize, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let Some(buffer) = self.handle.buffer else { return Ok(()) };
        let (data, size) = (bytes.as_mut_ptr().cast(), bytes.len() as u64);
        // SAFETY: the range lies inside the buffer; `data` has room for it.
        let done = unsafe {
            self.handle
                .library
                .call(|f, error| (f.buffer_read)(buffer.as_ptr(), offset as u64, data, size, error))
        };
        done.map_err(|failure| self.error(bytes.len(), failure))
    }

    fn write_range(&mut self, offset: usize, bytes: &[u8]) -> Result<(), MemoryError> {
        let Some(buffer) = self.handle.buffer else { return Ok(()) };
        let (data, size) = (bytes.as_ptr().cast(), bytes.len() as u64);
        // SAFETY: the range lies inside the buffer; `data` holds as many bytes.
        let done = unsafe {
            self.handle.library.call(|f, error| {
                (f.buffer_write)(buffer.as_ptr(), offset as u64, data, size, error)
            })
        };
        done.map_err(|failure| self.error(bytes.len(), failure))
    }
}

/// Calls `run(offset in memory, offset in contiguous bytes, bytes)` for each run of neighbouring
/// elements.
fn for_each_run(
    layout: &Layout,
    mut run: impl FnMut(usize, usize, usize) -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    if layout.is_contiguous() {
        return run(0, 0, layout.data_bytes());
    }
    let (row_bytes, block) = (layout.row_bytes(), layout.dtype().block_bytes());
    for row in 0..layout.shape().rows() {
        let (start, packed) = (layout.nth_row_offset(row), row * row_bytes);
        if layout.has_contiguous_rows() {
            run(start, packed, row_bytes)?;
        } else {
            for index in 0..row_bytes / block {
                run(start + index * layout.strides()[0], packed + index * block, block)?;
            }
        }
    }
    Ok(())
}

// SAFETY: its host memory, where it has some, comes from the driver for it alone, by the rules
// of the table.
unsafe impl Memory for DynamicMemory {
    fn size(&self) -> usize {
        self.size
    }

    fn host(&self) -> Option<&HostMemory> {
        self.host.as_ref()
    }

    fn host_mut(&mut self) -> Option<&mut HostMemory> {
        self.host.as_mut()
    }

    fn read_tensor(
        &self,
        offset: usize,
        layout: &Layout,
        dst: &mut [u8],
    ) -> Result<(), MemoryError> {
        self.check(offset, layout, dst.len())?;
        for_each_run(layout, |at, to, bytes| self.read_range(offset + at, &mut dst[to..to + bytes]))
    }

    fn write_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: &[u8],
    ) -> Result<(), MemoryError> {
        self.check(offset, layout, src.len())?;
        for_each_run(layout, |at, from, bytes| {
            self.write_range(offset + at, &src[from..from + bytes])
        })
    }

    fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        self.fill(0, self.size, byte)
    }

    fn fill(&mut self, offset: usize, bytes: usize, byte: u8) -> Result<(), MemoryError> {
        self.check_range(offset, bytes)?;
        let Some(buffer) = self.handle.buffer else { return Ok(()) };
        // SAFETY: the range lies inside the buffer.
        let done = unsafe {
            self.handle.library.call(|f, error| {
                (f.buffer_fill)(buffer.as_ptr(), offset as u64, bytes as u64, byte, error)
            })
        };
        done.map_err(|failure| self.error(bytes, failure))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
