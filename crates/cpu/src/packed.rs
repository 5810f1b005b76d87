//! The buffer type of weights packed into panels.
//!
//! Writing a tensor packs it, reading gives the very bytes back that were
//! written. The memory reads and writes whole tensors only, and refuses views
//! other than whole rows in storage order. Matrices `[k, m]` and convolution
//! weights `[in_channels, kernel, out_channels]` can be packed.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use tensoryard_graph::Layout;
use tensoryard_runtime::{BufferType, HostMemory, Memory, MemoryError, PlacedLayout};

use crate::pack::{PANEL_ALIGNMENT, PackSource, PanelType, Panels, pack_all};

/// Weights in panels, ready for the matrix kernels.
#[derive(Debug)]
#[doc(alias = "ggml_backend_cpu_repack_buffer_type")]
pub struct PackedBufferType;

const NAME: &str = "CPU_Packed";

/// The process-wide buffer type of packed weights.
#[doc(alias = "ggml_backend_cpu_repack_buffer_type")]
pub fn packed_buffer_type() -> &'static Arc<dyn BufferType> {
    static PACKED: LazyLock<Arc<dyn BufferType>> = LazyLock::new(|| Arc::new(PackedBufferType));
    &PACKED
}

/// Whether a buffer type is that of packed weights.
pub(crate) fn is_packed(buffer_type: &dyn BufferType) -> bool {
    buffer_type.name() == NAME
}

/// The matrix that a packed tensor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedMatrix {
    pub panel_type: PanelType,
    pub rows: usize,
    pub k: usize,
}

impl PackedMatrix {
    /// Three dimensions are convolution weights, fewer a matrix.
    pub fn of(layout: &Layout) -> Option<Self> {
        let panel_type = PanelType::from_dtype(layout.dtype())?;
        let [d0, d1, d2, d3] = layout.shape().dims();
        let (k, rows) = if layout.shape().rank() == 3 { (d0 * d1, d2) } else { (d0, d1) };
        let possible = layout.is_contiguous() && d3 == 1 && !layout.shape().is_empty();
        possible.then_some(Self { panel_type, rows, k })
    }

    pub fn bytes(&self) -> Option<usize> {
        self.panel_type.packed_bytes(self.rows, self.k)
    }

    /// The panels at the beginning of `bytes`.
    pub fn panels<'a>(&self, bytes: &'a [u8]) -> Option<Panels<'a>> {
        Panels::from_bytes(self.panel_type, bytes, self.rows, self.k)
    }
}

impl BufferType for PackedBufferType {
    fn name(&self) -> &str {
        NAME
    }

    fn alignment(&self) -> usize {
        PANEL_ALIGNMENT
    }

    fn max_size(&self) -> usize {
        isize::MAX as usize - PANEL_ALIGNMENT
    }

    fn tensor_bytes(&self, layout: &Layout) -> usize {
        let packed = PackedMatrix::of(layout).and_then(|matrix| matrix.bytes());
        packed.unwrap_or(0).max(layout.data_bytes())
    }

    fn is_host(&self) -> bool {
        false
    }

    fn takes_views(&self) -> bool {
        false
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        Ok(Box::new(PackedMemory { host: HostMemory::allocate(size, PANEL_ALIGNMENT)? }))
    }
}

/// Host memory that holds panels.
#[derive(Debug)]
pub(crate) struct PackedMemory {
    host: HostMemory,
}

impl PackedMemory {
    pub fn host(&self) -> &HostMemory {
        &self.host
    }
}

fn matrix_of(layout: &Layout, given: usize) -> Result<(PackedMatrix, usize), MemoryError> {
    let needed = layout.data_bytes();
    if given != needed {
        return Err(MemoryError::ByteCount { layout: *layout, needed, given });
    }
    let unpackable = || MemoryError::Layout { buffer_type: NAME.to_owned(), layout: *layout };
    let matrix = PackedMatrix::of(layout).ok_or_else(unpackable)?;
    let bytes = matrix.bytes().ok_or_else(unpackable)?;
    Ok((matrix, bytes))
}

fn whole_tensors_only(what: &'static str) -> MemoryError {
    MemoryError::WholeTensorsOnly { buffer_type: NAME.to_owned(), what }
}

/// Whether a view is made of whole rows of the base, in the order in which they are stored.
fn is_whole_rows(view: &Layout, base: &Layout, offset_bytes: usize) -> bool {
    let row_bytes = base.row_bytes().max(1);
    view.dtype() == base.dtype()
        && view.is_contiguous()
        && offset_bytes.is_multiple_of(row_bytes)
        && view.data_bytes().is_multiple_of(row_bytes)
}

// SAFETY: it leads to no host memory; what is inside is its own.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Memory for PackedMemory {
    fn size(&self) -> usize {
        self.host.size()
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
        let (matrix, bytes) = matrix_of(layout, dst.len())?;
        let packed = self.host.slice(offset, bytes)?;
        let unpackable = || MemoryError::Layout { buffer_type: NAME.to_owned(), layout: *layout };
        let panels = matrix.panels(packed).ok_or_else(unpackable)?;
        let row_bytes = matrix.k * layout.dtype().block_bytes();
        for (row, dst) in dst.chunks_exact_mut(row_bytes).enumerate() {
            panels.unpack_row(row, dst);
        }
        Ok(())
    }

    fn write_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: &[u8],
    ) -> Result<(), MemoryError> {
        let (matrix, bytes) = matrix_of(layout, src.len())?;
        let unpackable = || MemoryError::Layout { buffer_type: NAME.to_owned(), layout: *layout };
        let source = PackSource::contiguous(layout.dtype(), src, matrix.rows, matrix.k)
            .ok_or_else(unpackable)?;
        let dst = self.host.slice_mut(offset, bytes)?;
        pack_all(matrix.panel_type, &source, dst).ok_or_else(unpackable)
    }

    fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        Memory::clear(&mut self.host, byte)
    }

    fn read_bytes(&self, _: usize, _: &mut [u8]) -> Result<(), MemoryError> {
        Err(whole_tensors_only("a read of bytes"))
    }

    fn write_bytes(&mut self, _: usize, _: &[u8]) -> Result<(), MemoryError> {
        Err(whole_tensors_only("a write of a part"))
    }

    fn fill(&mut self, _: usize, _: usize, _: u8) -> Result<(), MemoryError> {
        Err(whole_tensors_only("a write of a part"))
    }

    fn init_tensor(&mut self, tensor: &PlacedLayout) -> Result<(), MemoryError> {
        let layout = &tensor.layout;
        let Some((start, base)) = &tensor.base else {
            return matrix_of(layout, layout.data_bytes()).map(|_| ());
        };
        let offset_bytes = tensor.offset_bytes.checked_sub(*start);
        if offset_bytes.is_some_and(|offset| is_whole_rows(layout, base, offset)) {
            return Ok(());
        }
        Err(whole_tensors_only("a view other than whole rows in storage order"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensoryard_graph::{DType, Shape};
    use tensoryard_runtime::{Buffer, Usage};

    #[test]
    fn what_is_written_is_read_back_exactly() {
        for (dims, dtype) in [
            (&[7usize, 33][..], DType::F16),
            (&[5, 3, 34], DType::F16),
            (&[16, 64], DType::F32),
            (&[1, 1], DType::F32),
        ] {
            let layout = Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap();
            let kind = packed_buffer_type();
            let size = kind.tensor_bytes(&layout) + 64;
            let mut buffer = Buffer::allocate(kind, size, Usage::Weights).unwrap();
            let bytes: Vec<u8> =
                (0..layout.data_bytes()).map(|index| (index * 37 % 251) as u8).collect();
            buffer.memory_mut().write_tensor(64, &layout, &bytes).unwrap();
            let mut back = vec![0; bytes.len()];
            buffer.memory().read_tensor(64, &layout, &mut back).unwrap();
            assert_eq!(back, bytes, "{layout}");
            assert!(buffer.memory().read_tensor(128, &layout, &mut back).is_err());
            assert!(buffer.memory_mut().write_tensor(64, &layout, &bytes[1..]).is_err());
        }
    }

    #[test]
    fn views_and_other_types_are_refused() {
        let shape = Shape::new(&[8, 4]).unwrap();
        let plain = Layout::contiguous(DType::F32, shape).unwrap();
        let mut memory = packed_buffer_type().allocate(4096).unwrap();
        let turned = plain.permute([1, 0, 2, 3]).unwrap();
        assert!(matches!(
            memory.write_tensor(0, &turned, &[0; 128]),
            Err(MemoryError::Layout { .. })
        ));
        let ids = Layout::contiguous(DType::I32, shape).unwrap();
        assert!(memory.write_tensor(0, &ids, &[0; 128]).is_err());
    }
}
