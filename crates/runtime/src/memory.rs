//! The buffer type of plain host memory, which every machine has.
//!
//! Tensors lie in it in their usual form at 64-byte aligned offsets, so that
//! vector loads and cache lines start where tensors do.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use tensoryard_graph::Layout;

use crate::{BufferType, HostMemory, Memory, MemoryError};

/// Plain host memory.
#[derive(Debug)]
pub struct HostBufferType {
    name: &'static str,
}

const ALIGNMENT: usize = 64;

impl HostBufferType {
    /// Host memory under a name of its own.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }
}

/// The process-wide type of plain host memory, `CPU`.
#[doc(alias = "ggml_backend_cpu_buffer_type")]
pub fn host_buffer_type() -> &'static Arc<dyn BufferType> {
    static HOST: LazyLock<Arc<dyn BufferType>> =
        LazyLock::new(|| Arc::new(HostBufferType::new("CPU")));
    &HOST
}

impl BufferType for HostBufferType {
    fn name(&self) -> &str {
        self.name
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn max_size(&self) -> usize {
        isize::MAX as usize - ALIGNMENT
    }

    fn tensor_bytes(&self, layout: &Layout) -> usize {
        layout.extent_bytes()
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        Ok(Box::new(HostMemory::allocate(size, ALIGNMENT)?))
    }
}

/// Zeroed bytes for the contents of a tensor.
///
/// # Errors
/// The memory cannot be had.
pub fn bytes_for(size: usize) -> Result<Vec<u8>, MemoryError> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| MemoryError::Allocation { bytes: size })?;
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Calls `row(offset in memory, offset in contiguous bytes)` for each row, or each element
/// where rows have gaps, with the number of bytes at both.
fn for_each_run(layout: &Layout, mut run: impl FnMut(usize, usize, usize)) {
    let row_bytes = layout.row_bytes();
    if layout.is_contiguous() {
        return run(0, 0, layout.data_bytes());
    }
    for row in 0..layout.shape().rows() {
        let start = layout.nth_row_offset(row);
        if layout.has_contiguous_rows() {
            run(start, row * row_bytes, row_bytes);
        } else {
            let block = layout.dtype().block_bytes();
            for index in 0..row_bytes / block {
                run(start + index * layout.strides()[0], row * row_bytes + index * block, block);
            }
        }
    }
}

/// Puts contiguous elements where the layout has them, from the start of `dst` on.
pub(crate) fn scatter(layout: &Layout, dst: &mut [u8], src: &[u8]) {
    for_each_run(layout, |at, from, bytes| {
        dst[at..at + bytes].copy_from_slice(&src[from..from + bytes]);
    });
}

pub(crate) fn check_bytes(layout: &Layout, given: usize) -> Result<(), MemoryError> {
    let needed = layout.data_bytes();
    if needed == given {
        return Ok(());
    }
    Err(MemoryError::ByteCount { layout: *layout, needed, given })
}

// SAFETY: it is the host memory, allocated by it or owned by what it keeps; safe code writes it
// under `&mut` only.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Memory for HostMemory {
    fn size(&self) -> usize {
        HostMemory::size(self)
    }

    fn host(&self) -> Option<&HostMemory> {
        Some(self)
    }

    fn host_mut(&mut self) -> Option<&mut HostMemory> {
        Some(self)
    }

    fn read_tensor(
        &self,
        offset: usize,
        layout: &Layout,
        dst: &mut [u8],
    ) -> Result<(), MemoryError> {
        check_bytes(layout, dst.len())?;
        let src = self.slice(offset, layout.extent_bytes())?;
        for_each_run(layout, |at, to, bytes| {
            dst[to..to + bytes].copy_from_slice(&src[at..at + bytes]);
        });
        Ok(())
    }

    fn write_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: &[u8],
    ) -> Result<(), MemoryError> {
        check_bytes(layout, src.len())?;
        scatter(layout, self.slice_mut(offset, layout.extent_bytes())?, src);
        Ok(())
    }

    fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        let size = HostMemory::size(self);
        if size > 0 {
            self.slice_mut(0, size)?.fill(byte);
        }
        Ok(())
    }

    fn read_bytes(&self, offset: usize, dst: &mut [u8]) -> Result<(), MemoryError> {
        dst.copy_from_slice(self.slice(offset, dst.len())?);
        Ok(())
    }

    fn write_bytes(&mut self, offset: usize, src: &[u8]) -> Result<(), MemoryError> {
        self.slice_mut(offset, src.len())?.copy_from_slice(src);
        Ok(())
    }

    fn fill(&mut self, offset: usize, bytes: usize, byte: u8) -> Result<(), MemoryError> {
        self.slice_mut(offset, bytes)?.fill(byte);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensoryard_graph::{DType, Shape};

    #[test]
    fn bytes_that_cannot_be_had_are_an_error() {
        assert_eq!(bytes_for(3).unwrap(), [0; 3]);
        for bytes in [usize::MAX, isize::MAX as usize] {
            assert_eq!(bytes_for(bytes).unwrap_err(), MemoryError::Allocation { bytes });
        }
    }

    #[test]
    fn strided_tensors_are_gathered_and_scattered() {
        let mut memory = HostMemory::allocate(64, 64).unwrap();
        let shape = Shape::new(&[2, 3]).unwrap();
        let plain = Layout::contiguous(DType::F16, shape).unwrap();
        memory.write_tensor(8, &plain, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
        let turned = plain.permute([1, 0, 2, 3]).unwrap();
        let mut out = [0; 12];
        memory.read_tensor(8, &turned, &mut out).unwrap();
        assert_eq!(out, [1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12]);
        assert!(memory.read_tensor(56, &plain, &mut out).is_err());
        assert!(memory.read_tensor(8, &plain, &mut out[..10]).is_err());
    }
}
