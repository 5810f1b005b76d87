//! A tensor of a checkpoint: where its elements lie and how to stream them in
//! another type or order.
//!
//! Streaming goes through buffers of one row group, whatever the tensor's
//! size. Elements whose type and order already fit are passed on unchanged.

use std::ops::Range;
use std::sync::Arc;

use tensoryard_tensor::{DType, Shape, decode_to_f32, encode_from_f32};

use super::{TensorRole, TensorSpec, conv_shape_in};
use crate::error::{FormatError, Result};
use crate::file::{ByteOrder, FileData, tensor_size_bytes, to_little_endian};

/// Which dimension of convolution weights is the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvOrder {
    /// `[in_channels, kernel, out_channels]`; checkpoints and our GGUF files.
    ChannelFastest,
    /// `[kernel, in_channels, out_channels]`; the original, CTranslate2, ggml.
    KernelFastest,
}

/// Stored factors by which integers were multiplied, one a row.
#[derive(Debug, Clone)]
pub(crate) struct RowScales {
    pub(crate) range: Range<u64>,
}

/// Where and how the elements of a tensor are stored.
#[derive(Debug, Clone)]
pub(crate) struct TensorSource {
    pub(crate) data: Arc<FileData>,
    pub(crate) range: Range<u64>,
    pub(crate) dtype: DType,
    pub(crate) order: ByteOrder,
    pub(crate) conv_order: ConvOrder,
    pub(crate) scales: Option<RowScales>,
}

/// A tensor of a Whisper checkpoint, still in its file.
#[derive(Debug, Clone)]
pub struct WhisperTensor {
    spec: TensorSpec,
    dtype: DType,
    source: TensorSource,
}

const CHUNK_BYTES: usize = 256 * 1024;
const CHUNK_ELEMENTS: usize = 16 * 1024;

impl WhisperTensor {
    /// Joins what a tensor must be with where it is.
    pub(crate) fn new(spec: TensorSpec, source: TensorSource) -> Result<Self> {
        let size =
            tensor_size_bytes(source.dtype, spec.shape).map_err(FormatError::tensor(&spec.name))?;
        if source.range.end.saturating_sub(source.range.start) != size {
            let found = source.range.end.saturating_sub(source.range.start);
            let problem = format!("{found} bytes of data, {size} are needed");
            return Err(FormatError::placement(&spec.name, problem));
        }
        if matches!(source.dtype, DType::I8) != source.scales.is_some() {
            let problem = format!("type {} needs a scale for each row, others none", DType::I8);
            return Err(FormatError::placement(&spec.name, problem));
        }
        let dtype = checkpoint_type(spec.role, source.dtype).ok_or_else(|| {
            let problem = format!("type {} is not possible for it", source.dtype);
            FormatError::placement(&spec.name, problem)
        })?;
        Ok(Self { spec, dtype, source })
    }

    /// The name of the original release.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// What the tensor is for.
    pub fn role(&self) -> TensorRole {
        self.spec.role
    }

    /// Elements along each dimension, fastest first; convolutions are
    /// `[in_channels, kernel, out_channels]`.
    pub fn shape(&self) -> Shape {
        self.spec.shape
    }

    /// The type that suits the tensor: as stored for matrices, f16 or f32 for
    /// convolutions, f32 for vectors and positions.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The type in the file.
    pub fn stored_dtype(&self) -> DType {
        self.source.dtype
    }

    /// The file's bytes and the range of the tensor in them, when they are the
    /// tensor as [`WhisperTensor::dtype`] and [`WhisperTensor::shape`] say, so
    /// that it can be used in place. The alignment is the file's.
    pub fn in_place(&self) -> Option<(&Arc<FileData>, Range<u64>)> {
        let fits = self.is_unchanged(self.dtype, ConvOrder::ChannelFastest)
            && self.source.data.is_borrowable();
        fits.then(|| (&self.source.data, self.source.range.clone()))
    }

    /// The bytes of [`WhisperTensor::in_place`].
    pub fn bytes(&self) -> Option<&[u8]> {
        let (data, range) = self.in_place()?;
        data.borrow(&range)
    }

    /// Gives `sink` the little-endian elements in order, as `dtype`.
    ///
    /// # Errors
    /// No conversion exists from the stored type; the file cannot be read; what
    /// `sink` reports.
    pub fn stream(&self, dtype: DType, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.stream_ordered(dtype, ConvOrder::ChannelFastest, sink)
    }

    /// As [`WhisperTensor::stream`], with convolutions in the order given.
    ///
    /// # Errors
    /// As [`WhisperTensor::stream`].
    pub fn stream_ordered(
        &self,
        dtype: DType,
        order: ConvOrder,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.is_unchanged(dtype, order) {
            self.stream_bytes(sink)
        } else {
            self.stream_converted(dtype, order, sink)
        }
    }

    /// The elements as f32, in order.
    ///
    /// # Errors
    /// As [`WhisperTensor::stream`].
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(self.spec.shape.elements());
        self.stream(DType::F32, &mut |bytes| {
            values.extend(bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)));
            Ok(())
        })?;
        Ok(values)
    }

    /// The little-endian elements in order, as `dtype`.
    ///
    /// # Errors
    /// As [`WhisperTensor::stream`].
    pub fn to_bytes(&self, dtype: DType) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        self.stream(dtype, &mut |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    /// Lets the system drop the tensor's pages; see [`FileData::release`].
    pub fn release(&self) {
        self.source.data.release(&self.source.range);
    }

    fn turns(&self, order: ConvOrder) -> bool {
        self.spec.role == TensorRole::Conv && self.source.conv_order != order
    }

    fn is_unchanged(&self, dtype: DType, order: ConvOrder) -> bool {
        self.source.dtype == dtype
            && self.source.order == ByteOrder::Little
            && self.source.scales.is_none()
            && !self.turns(order)
    }

    fn stream_bytes(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let range = self.source.range.clone();
        if let Some(bytes) = self.source.data.borrow(&range) {
            return bytes.chunks(CHUNK_BYTES).try_for_each(sink);
        }
        let mut buffer = vec![0; CHUNK_BYTES.min((range.end - range.start) as usize)];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(CHUNK_BYTES as u64);
            let chunk = &mut buffer[..len as usize];
            self.source.data.read_at(at, chunk)?;
            sink(chunk)?;
            at += len;
        }
        Ok(())
    }

    fn stream_converted(
        &self,
        dtype: DType,
        order: ConvOrder,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let shape = self.spec.shape;
        let stored = self.source.dtype;
        let elements = shape.elements();
        let [channels, width, ..] = shape.dims();
        let group = match self.spec.role {
            TensorRole::Conv => channels * width,
            _ if self.source.scales.is_some() => channels,
            _ => CHUNK_ELEMENTS.next_multiple_of(stored.block_len()),
        };
        let wrong = || FormatError::tensor(self.name());
        let mut bytes = Vec::new();
        let mut values = Vec::new();
        let mut turned = Vec::new();
        let mut at = self.source.range.start;
        let mut done = 0;
        let mut row = 0;
        while done < elements {
            let count = group.min(elements - done);
            let size = tensor_size_bytes(stored, Shape::new(&[count]).map_err(wrong())?)
                .map_err(wrong())?;
            bytes.resize(size as usize, 0);
            self.source.data.read_at(at, &mut bytes)?;
            to_little_endian(self.name(), stored, self.source.order, &mut bytes)?;
            values.resize(count, 0.0);
            decode_to_f32(stored, &bytes, &mut values).map_err(wrong())?;
            if let Some(scales) = &self.source.scales {
                let scale = self.row_scale(scales, row)?;
                values.iter_mut().for_each(|value| *value /= scale);
            }
            if self.turns(order) {
                turned.clear();
                turned.extend_from_slice(&values);
                turn(&turned, &mut values, conv_shape_in(self.source.conv_order, shape));
            }
            bytes.resize(dtype.bytes(count).unwrap_or(0), 0);
            encode_from_f32(dtype, &values, &mut bytes).map_err(wrong())?;
            sink(&bytes)?;
            at += size;
            done += count;
            row += 1;
        }
        Ok(())
    }

    fn row_scale(&self, scales: &RowScales, row: u64) -> Result<f32> {
        let mut bytes = [0; 4];
        self.source.data.read_at(scales.range.start + 4 * row, &mut bytes)?;
        let scale = f32::from_le_bytes(bytes);
        if scale.is_finite() && scale > 0.0 {
            return Ok(scale);
        }
        Err(FormatError::placement(self.name(), format!("row {row} has the scale {scale}")))
    }
}

/// The type that a tensor has in a checkpoint, `None` when its stored type cannot be used.
fn checkpoint_type(role: TensorRole, stored: DType) -> Option<DType> {
    let is_float = matches!(stored, DType::F32 | DType::F16 | DType::BF16 | DType::F64);
    match role {
        TensorRole::Vector | TensorRole::Positional => is_float.then_some(DType::F32),
        TensorRole::Conv if matches!(stored, DType::F16 | DType::I8) => Some(DType::F16),
        TensorRole::Conv => is_float.then_some(DType::F32),
        TensorRole::Linear | TensorRole::Embedding => match stored {
            DType::I8 => Some(DType::F16),
            DType::F64 => Some(DType::F32),
            DType::I16 | DType::I32 | DType::I64 => None,
            other => Some(other),
        },
    }
}

/// Exchanges the two fastest dimensions of one output channel, whose stored
/// shape is `[fast, slow]`.
fn turn(src: &[f32], dst: &mut [f32], stored: Shape) {
    let [fast, slow, ..] = stored.dims();
    for (index, value) in dst.iter_mut().enumerate() {
        let (in_fast, in_slow) = (index / slow, index % slow);
        *value = src[in_slow * fast + in_fast];
    }
}
