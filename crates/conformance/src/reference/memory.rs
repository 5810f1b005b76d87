//! The memory of reference devices: bytes behind a lock.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tensoryard_graph::Layout;
use tensoryard_runtime::{BufferType, HostMemory, Memory, MemoryError};

use super::ReferenceOptions;

/// A byte that makes NaN of f32 and f16 alike.
pub(super) const POISON: u8 = 0xff;

/// The kind of memory of a reference device.
#[derive(Debug)]
pub(super) struct ReferenceBufferType {
    name: String,
    alignment: usize,
    max_size: usize,
    padding: usize,
    host: bool,
}

impl ReferenceBufferType {
    pub(super) fn new(options: &ReferenceOptions) -> Self {
        Self {
            name: options.memory.clone(),
            alignment: options.alignment,
            max_size: options.max_size,
            padding: options.padding,
            host: options.host,
        }
    }
}

impl BufferType for ReferenceBufferType {
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
        layout.extent_bytes() + self.padding
    }

    fn is_host(&self) -> bool {
        self.host
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        Ok(Box::new(ReferenceMemory { size, bytes: Mutex::new(vec![POISON; size]) }))
    }
}

/// Bytes that the device reads and writes, full of NaN when new.
#[derive(Debug)]
pub struct ReferenceMemory {
    size: usize,
    bytes: Mutex<Vec<u8>>,
}

/// Calls `each(offset of the element, offset among contiguous elements)`.
fn for_each_element(layout: &Layout, mut each: impl FnMut(usize, usize)) {
    let size = layout.dtype().block_bytes();
    let strides = layout.strides();
    let [n0, n1, n2, n3] = layout.shape().dims();
    let n0 = n0 / layout.dtype().block_len();
    for number in 0..n0 * n1 * n2 * n3 {
        let (i0, rest) = (number % n0, number / n0);
        let (i1, rest) = (rest % n1, rest / n1);
        let at =
            i0 * strides[0] + i1 * strides[1] + rest % n2 * strides[2] + rest / n2 * strides[3];
        each(at, number * size);
    }
}

impl ReferenceMemory {
    /// The bytes, locked.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, offset: usize, layout: &Layout, given: usize) -> Result<(), MemoryError> {
        let (bytes, needed) = (layout.extent_bytes(), layout.data_bytes());
        if given != needed {
            return Err(MemoryError::ByteCount { layout: *layout, needed, given });
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.size => Ok(()),
            Some(_) | None => Err(MemoryError::OutOfRange { offset, bytes, size: self.size }),
        }
    }
}

// SAFETY: it leads to no host memory.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Memory for ReferenceMemory {
    fn size(&self) -> usize {
        self.size
    }

    fn host(&self) -> Option<&HostMemory> {
        None
    }

    fn read_tensor(
        &self,
        offset: usize,
        layout: &Layout,
        dst: &mut [u8],
    ) -> Result<(), MemoryError> {
        self.check(offset, layout, dst.len())?;
        let bytes = self.lock();
        let size = layout.dtype().block_bytes();
        for_each_element(layout, |at, to| {
            dst[to..to + size].copy_from_slice(&bytes[offset + at..offset + at + size]);
        });
        Ok(())
    }

    fn write_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: &[u8],
    ) -> Result<(), MemoryError> {
        self.check(offset, layout, src.len())?;
        let mut bytes = self.lock();
        let size = layout.dtype().block_bytes();
        for_each_element(layout, |at, from| {
            bytes[offset + at..offset + at + size].copy_from_slice(&src[from..from + size]);
        });
        Ok(())
    }

    fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        self.lock().fill(byte);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
