//! Setting and getting the data of tensors, at once.
//!
//! Offsets count from the first element of a tensor, in bytes of its memory; a view uses the
//! buffer of its base. Moving nothing is always legal. Memory that holds whole tensors only is
//! read as if it did not: the tensor is converted back and the range cut out of it.

use std::ops::Range;

use tensoryard_graph::{DType, Layout, Shape};

use super::error::Access;
use super::{BufferKey, TensorDataError, TensorKey, TensorSlot, Tensors};
use crate::buffer::bytes_layout;
use crate::{Buffer, MemoryError};

/// Rows of bytes at even distances, in a tensor and on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strided {
    /// First byte in the tensor, counted from its first element.
    pub offset_bytes: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Number of rows.
    pub rows: usize,
    /// Distance in bytes between two rows in the tensor.
    pub tensor_stride: usize,
    /// Distance in bytes between two rows on the host.
    pub host_stride: usize,
}

impl Strided {
    fn is_empty(&self) -> bool {
        self.row_bytes == 0 || self.rows == 0
    }

    fn extent(&self, stride: usize) -> Option<usize> {
        (self.rows - 1).checked_mul(stride)?.checked_add(self.row_bytes)
    }

    fn host_row(&self, row: usize) -> Range<usize> {
        let start = row * self.host_stride;
        start..start + self.row_bytes
    }

    fn check_rows(&self, tensor: &str, stride: usize) -> Result<(), TensorDataError> {
        if self.rows == 1 || stride >= self.row_bytes {
            return Ok(());
        }
        let &Self { offset_bytes, row_bytes, .. } = self;
        let tensor = tensor.to_owned();
        Err(TensorDataError::OverlappingRows { tensor, offset_bytes, row_bytes, stride })
    }
}

/// What is read or written of a buffer, as a tensor there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub buffer: BufferKey,
    pub offset_bytes: usize,
    pub layout: Layout,
}

/// What is read, and the range that is wanted of it where that is not all.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub target: Target,
    pub cut: Option<Range<usize>>,
}

/// The bytes of an access in the memory of its buffer.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Bytes(usize),
    Rows(Strided),
}

impl Tensors {
    /// Writes bytes of a tensor.
    ///
    /// # Errors
    /// A tensor without memory, a range beyond it, read-only memory, a part of a tensor in
    /// memory that holds whole ones.
    #[doc(alias = "ggml_backend_tensor_set")]
    pub fn set(
        &mut self,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: &[u8],
    ) -> Result<(), TensorDataError> {
        match self.writable(tensor, offset_bytes, bytes.len())? {
            Some(target) => self.write_target(tensor, offset_bytes, target, bytes),
            None => Ok(()),
        }
    }

    /// Reads bytes of a tensor.
    ///
    /// # Errors
    /// A tensor without memory, a range beyond it, what went wrong in work queued on it.
    #[doc(alias = "ggml_backend_tensor_get")]
    pub fn get(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        dst: &mut [u8],
    ) -> Result<(), TensorDataError> {
        match self.readable(tensor, offset_bytes, dst.len())? {
            Some(source) => self.read_source(tensor, offset_bytes, &source, dst),
            None => Ok(()),
        }
    }

    /// Sets a range of bytes of a tensor to one value.
    ///
    /// # Errors
    /// As of [`Tensors::set`].
    #[doc(alias = "ggml_backend_tensor_memset")]
    pub fn fill(
        &mut self,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
        byte: u8,
    ) -> Result<(), TensorDataError> {
        let Some(target) = self.writable(tensor, offset_bytes, bytes)? else { return Ok(()) };
        let is_bytes = self.buffer(target.buffer)?.buffer_type().takes_views();
        if !is_bytes {
            // Converted like any other data.
            let data = self.allocate_bytes(tensor, offset_bytes, bytes, byte)?;
            return self.write_target(tensor, offset_bytes, target, &data);
        }
        let memory = self.buffer_mut(target.buffer)?.memory_mut();
        let outcome = memory.fill(target.offset_bytes, bytes, byte);
        self.name(tensor, offset_bytes, bytes, outcome)
    }

    /// Writes rows of bytes at even distances.
    ///
    /// # Errors
    /// As of [`Tensors::set`]; rows that overlap in the tensor; fewer bytes than the rows take.
    #[doc(alias = "ggml_backend_tensor_set_2d")]
    pub fn set_2d(
        &mut self,
        tensor: TensorKey,
        rows: &Strided,
        src: &[u8],
    ) -> Result<(), TensorDataError> {
        let Some((target, data)) = self.gather(tensor, rows, src)? else { return Ok(()) };
        self.write_target(tensor, rows.offset_bytes, target, &data)
    }

    /// Reads rows of bytes at even distances; what lies between them in `dst` stays.
    ///
    /// # Errors
    /// As of [`Tensors::get`]; rows that overlap in `dst`; fewer bytes than the rows take.
    #[doc(alias = "ggml_backend_tensor_get_2d")]
    pub fn get_2d(
        &self,
        tensor: TensorKey,
        rows: &Strided,
        dst: &mut [u8],
    ) -> Result<(), TensorDataError> {
        let Some(source) = self.readable_rows(tensor, rows, dst.len())? else { return Ok(()) };
        let bytes = rows.row_bytes * rows.rows;
        let mut data = self.allocate_bytes(tensor, rows.offset_bytes, bytes, 0)?;
        if source.cut.is_none() {
            self.read_source(tensor, rows.offset_bytes, &source, &mut data)?;
        } else {
            for (row, part) in data.chunks_exact_mut(rows.row_bytes).enumerate() {
                self.get(tensor, rows.offset_bytes + row * rows.tensor_stride, part)?;
            }
        }
        scatter(rows, &data, dst);
        Ok(())
    }

    /// Writes all elements of a tensor in order, whatever its strides.
    ///
    /// # Errors
    /// As of [`Tensors::set`]; a byte count that is not that of the elements.
    pub fn write(&mut self, tensor: TensorKey, elements: &[u8]) -> Result<(), TensorDataError> {
        let slot = self.slot(tensor)?;
        let layout = slot.layout;
        check_count(slot, elements.len())?;
        if elements.is_empty() {
            return Ok(());
        }
        let place = slot.place.ok_or_else(|| unplaced(slot, 0, elements.len()))?;
        if slot.view.is_some() && !self.buffer(place.buffer)?.buffer_type().takes_views() {
            return self.set(tensor, 0, elements);
        }
        let memory = self.buffer_mut(place.buffer)?.memory_mut();
        let outcome = memory.write_tensor(place.offset_bytes, &layout, elements);
        self.name(tensor, 0, elements.len(), outcome)
    }

    /// Reads all elements of a tensor in order, whatever its strides.
    ///
    /// # Errors
    /// As of [`Tensors::get`].
    pub fn read(&self, tensor: TensorKey) -> Result<Vec<u8>, TensorDataError> {
        let slot = self.slot(tensor)?;
        let bytes = slot.layout.data_bytes();
        let mut elements = self.allocate_bytes(tensor, 0, bytes, 0)?;
        if bytes == 0 {
            return Ok(elements);
        }
        let place = slot.place.ok_or_else(|| unplaced(slot, 0, bytes))?;
        let buffer = self.buffer(place.buffer)?;
        if slot.view.is_some() && !buffer.buffer_type().takes_views() {
            self.get(tensor, 0, &mut elements)?;
            return Ok(elements);
        }
        self.settled(tensor, 0, bytes, buffer)?;
        let outcome = buffer.memory().read_tensor(place.offset_bytes, &slot.layout, &mut elements);
        self.name(tensor, 0, bytes, outcome)?;
        Ok(elements)
    }

    /// Where bytes are written; `None` if there is nothing to write.
    pub(super) fn writable(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
    ) -> Result<Option<Target>, TensorDataError> {
        if bytes == 0 {
            self.slot(tensor)?;
            return Ok(None);
        }
        self.write_to(tensor, offset_bytes, bytes, Piece::Bytes(bytes)).map(Some)
    }

    fn write_to(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        extent: usize,
        piece: Piece,
    ) -> Result<Target, TensorDataError> {
        let source = self.locate(tensor, offset_bytes, extent, piece)?;
        let buffer = self.buffer(source.target.buffer)?;
        let slot = self.slot(tensor)?;
        let access = Access { tensor: &slot.name, offset_bytes, bytes: extent };
        if source.cut.is_some() {
            return Err(access.memory(MemoryError::WholeTensorsOnly {
                buffer_type: buffer.name().to_owned(),
                what: "a write of a part",
            }));
        }
        if !buffer.is_writable() {
            return Err(access.memory(MemoryError::ReadOnly));
        }
        Ok(source.target)
    }

    /// Where bytes are read; `None` if there is nothing to read.
    pub(super) fn readable(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
    ) -> Result<Option<Source>, TensorDataError> {
        if bytes == 0 {
            self.slot(tensor)?;
            return Ok(None);
        }
        self.locate(tensor, offset_bytes, bytes, Piece::Bytes(bytes)).map(Some)
    }

    /// The rows of the host one after the other, and where they are written.
    pub(super) fn gather(
        &self,
        tensor: TensorKey,
        rows: &Strided,
        src: &[u8],
    ) -> Result<Option<(Target, Vec<u8>)>, TensorDataError> {
        let slot = self.slot(tensor)?;
        if rows.is_empty() {
            return Ok(None);
        }
        rows.check_rows(&slot.name, rows.tensor_stride)?;
        check_host(slot, rows, src.len())?;
        let extent = rows.extent(rows.tensor_stride).unwrap_or(usize::MAX);
        let target = self.write_to(tensor, rows.offset_bytes, extent, Piece::Rows(*rows))?;
        let bytes = rows.row_bytes * rows.rows;
        let mut data = self.allocate_bytes(tensor, rows.offset_bytes, bytes, 0)?;
        for (row, part) in data.chunks_exact_mut(rows.row_bytes).enumerate() {
            part.copy_from_slice(&src[rows.host_row(row)]);
        }
        Ok(Some((target, data)))
    }

    pub(super) fn readable_rows(
        &self,
        tensor: TensorKey,
        rows: &Strided,
        host_bytes: usize,
    ) -> Result<Option<Source>, TensorDataError> {
        let slot = self.slot(tensor)?;
        if rows.is_empty() {
            return Ok(None);
        }
        rows.check_rows(&slot.name, rows.host_stride)?;
        check_host(slot, rows, host_bytes)?;
        let extent = rows.extent(rows.tensor_stride).unwrap_or(usize::MAX);
        self.locate(tensor, rows.offset_bytes, extent, Piece::Rows(*rows)).map(Some)
    }

    fn locate(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        extent: usize,
        piece: Piece,
    ) -> Result<Source, TensorDataError> {
        let slot = self.slot(tensor)?;
        let place = slot.place.ok_or_else(|| unplaced(slot, offset_bytes, extent))?;
        let size = slot.layout.extent_bytes();
        let end = offset_bytes.checked_add(extent).filter(|&end| end <= size);
        let end = end.ok_or_else(|| TensorDataError::OutOfRange {
            tensor: slot.name.clone(),
            offset_bytes,
            bytes: extent,
            size,
        })?;
        let buffer = place.buffer;
        if self.buffer(buffer)?.buffer_type().takes_views() {
            let access = Access { tensor: &slot.name, offset_bytes, bytes: extent };
            let layout = piece.layout().map_err(|error| access.memory(error))?;
            let offset_bytes = place.offset_bytes + offset_bytes;
            return Ok(Source { target: Target { buffer, offset_bytes, layout }, cut: None });
        }
        // The whole tensor that the memory holds, and the range of it that is meant.
        let (base, within) = match slot.view {
            Some(into) => (self.slot(into.base)?, into.offset_bytes),
            None => (slot, 0),
        };
        let whole = base.place.ok_or_else(|| unplaced(base, offset_bytes, extent))?;
        let target = Target { buffer, offset_bytes: whole.offset_bytes, layout: base.layout };
        let range = within + offset_bytes..within + end;
        let is_whole = matches!(piece, Piece::Bytes(_)) && range == (0..base.layout.data_bytes());
        Ok(Source { target, cut: (!is_whole).then_some(range) })
    }

    pub(super) fn write_target(
        &mut self,
        tensor: TensorKey,
        offset_bytes: usize,
        target: Target,
        data: &[u8],
    ) -> Result<(), TensorDataError> {
        let memory = self.buffer_mut(target.buffer)?.memory_mut();
        let outcome = memory.write_tensor(target.offset_bytes, &target.layout, data);
        self.name(tensor, offset_bytes, data.len(), outcome)
    }

    pub(super) fn read_source(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        source: &Source,
        dst: &mut [u8],
    ) -> Result<(), TensorDataError> {
        let Target { buffer, offset_bytes: from, layout } = source.target;
        let buffer = self.buffer(buffer)?;
        self.settled(tensor, offset_bytes, dst.len(), buffer)?;
        let Some(cut) = &source.cut else {
            let outcome = buffer.memory().read_tensor(from, &layout, dst);
            return self.name(tensor, offset_bytes, dst.len(), outcome);
        };
        let mut whole = self.allocate_bytes(tensor, offset_bytes, layout.data_bytes(), 0)?;
        let outcome = buffer.memory().read_tensor(from, &layout, &mut whole);
        self.name(tensor, offset_bytes, dst.len(), outcome)?;
        dst.copy_from_slice(&whole[cut.clone()]);
        Ok(())
    }

    /// What was queued on the buffer is done, and went well.
    pub(super) fn settled(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
        buffer: &Buffer,
    ) -> Result<(), TensorDataError> {
        let Some(event) = buffer.shared().last() else { return Ok(()) };
        let access = Access { tensor: &self.slot(tensor)?.name, offset_bytes, bytes };
        event.wait().map_err(|error| access.device(error))
    }

    /// Gives an outcome the names of what was accessed.
    pub(super) fn name<T>(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
        outcome: Result<T, MemoryError>,
    ) -> Result<T, TensorDataError> {
        let tensor = &self.slot(tensor)?.name;
        outcome.map_err(|error| Access { tensor, offset_bytes, bytes }.memory(error))
    }

    pub(super) fn allocate_bytes(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
        byte: u8,
    ) -> Result<Vec<u8>, TensorDataError> {
        let mut data = Vec::new();
        let outcome = data.try_reserve_exact(bytes).map_err(|_| MemoryError::Allocation { bytes });
        self.name(tensor, offset_bytes, bytes, outcome)?;
        data.resize(bytes, byte);
        Ok(data)
    }
}

impl Piece {
    fn layout(self) -> Result<Layout, MemoryError> {
        match self {
            Piece::Bytes(bytes) => bytes_layout(bytes),
            Piece::Rows(rows) => {
                let impossible = MemoryError::Allocation { bytes: usize::MAX };
                let strides = [1, rows.tensor_stride, 0, 0];
                Shape::new(&[rows.row_bytes, rows.rows])
                    .and_then(|shape| Layout::strided(DType::I8, shape, strides))
                    .map_err(|_| impossible)
            }
        }
    }
}

/// Lays rows that follow one another out at their distances.
fn scatter(rows: &Strided, data: &[u8], dst: &mut [u8]) {
    for (row, part) in data.chunks_exact(rows.row_bytes).enumerate() {
        dst[rows.host_row(row)].copy_from_slice(part);
    }
}

pub(super) fn unplaced(slot: &TensorSlot, offset_bytes: usize, bytes: usize) -> TensorDataError {
    TensorDataError::Unplaced { tensor: slot.name.clone(), offset_bytes, bytes }
}

pub(super) fn check_count(slot: &TensorSlot, given: usize) -> Result<(), TensorDataError> {
    let needed = slot.layout.data_bytes();
    if needed == given {
        return Ok(());
    }
    let tensor = slot.name.clone();
    Err(TensorDataError::ByteCount { tensor, offset_bytes: 0, given, needed })
}

fn check_host(slot: &TensorSlot, rows: &Strided, given: usize) -> Result<(), TensorDataError> {
    let needed = rows.extent(rows.host_stride).unwrap_or(usize::MAX);
    if needed <= given {
        return Ok(());
    }
    let tensor = slot.name.clone();
    Err(TensorDataError::ByteCount { tensor, offset_bytes: rows.offset_bytes, given, needed })
}
