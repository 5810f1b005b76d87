//! The writer of the ggml Whisper format.
//!
//! Writes what whisper.cpp expects: header and tensors in the order given,
//! data pulled through a callback one tensor at a time. Which tensors a model
//! has and in which types is decided by the caller; see
//! [`crate::whisper::WhisperCheckpoint`].

use std::io::Write;

use tensoryard_tensor::{DType, Shape};

use super::{MAGIC, QUANTIZATION_FACTOR, QUANTIZATION_VERSION, ftype_of_dtype};
use crate::error::{FormatError, Result};
use crate::file::{TensorInfo, tensor_size_bytes};
use crate::gguf::TensorSink;
use crate::whisper::{MelFilters, WhisperConfig};

/// What a ggml Whisper file says before its tensors.
#[derive(Debug, Clone, Copy)]
pub struct GgmlWhisperHeader<'a> {
    /// The hyperparameters.
    pub config: &'a WhisperConfig,
    /// The type of the large matrices.
    pub matrix_type: DType,
    /// The mel filters.
    pub mel_filters: &'a MelFilters,
    /// The text tokens as raw bytes, by id.
    pub tokens: &'a [Vec<u8>],
}

/// A tensor to be written.
#[derive(Debug, Clone)]
pub struct GgmlTensor {
    /// Name as the format's readers expect it.
    pub name: String,
    /// How its elements are stored.
    pub dtype: DType,
    /// Elements along each dimension, fastest first.
    pub shape: Shape,
    /// Number of dimensions to write, since readers compare it for vectors.
    pub rank: usize,
}

/// Writes a file to `out`. `data` is called for each tensor in order with its
/// index and must write exactly the tensor's bytes, little-endian.
///
/// # Errors
/// A number beyond 31 bits, a matrix type without a file type number, what
/// `out` or `data` report, and a callback that writes too much or too little.
pub fn write_ggml_whisper(
    out: &mut dyn Write,
    header: &GgmlWhisperHeader<'_>,
    tensors: &[GgmlTensor],
    data: &mut dyn FnMut(usize, &mut TensorSink<'_>) -> Result<()>,
) -> Result<()> {
    let mut head = Vec::new();
    head.extend(MAGIC.to_le_bytes());
    for (name, value) in header.config.fields() {
        put_size(&mut head, name, value)?;
    }
    head.extend(ftype(header.matrix_type)?.to_le_bytes());
    let mel = header.mel_filters;
    if mel.n_mels.checked_mul(mel.n_bins) != Some(mel.values.len()) {
        let problem = format!("{} values for {} of {}", mel.values.len(), mel.n_mels, mel.n_bins);
        return Err(FormatError::invalid("mel filters", problem));
    }
    put_size(&mut head, "the number of mel filters", mel.n_mels)?;
    put_size(&mut head, "the number of bins of a mel filter", mel.n_bins)?;
    head.extend(mel.values.iter().flat_map(|value| value.to_le_bytes()));
    put_size(&mut head, "the number of tokens", header.tokens.len())?;
    for token in header.tokens {
        put_size(&mut head, "the length of a token", token.len())?;
        head.extend(token);
    }
    out.write_all(&head).map_err(FormatError::io("write"))?;

    for (index, tensor) in tensors.iter().enumerate() {
        let mut head = Vec::new();
        put_size(&mut head, "a dimension count", tensor.rank)?;
        put_size(&mut head, "a name length", tensor.name.len())?;
        head.extend(tensor.dtype.gguf_number().to_le_bytes());
        for &dim in tensor.shape.dims().iter().take(tensor.rank) {
            put_size(&mut head, &tensor.name, dim)?;
        }
        head.extend(tensor.name.as_bytes());
        out.write_all(&head).map_err(FormatError::io("write"))?;
        let size = tensor_size_bytes(tensor.dtype, tensor.shape)
            .map_err(FormatError::tensor(&tensor.name))?;
        let info = TensorInfo {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape,
            rank: tensor.rank,
            range: 0..size,
        };
        let mut sink = TensorSink::new(out, &info);
        data(index, &mut sink)?;
        sink.check_complete()?;
    }
    Ok(())
}

fn ftype(dtype: DType) -> Result<u32> {
    let number = ftype_of_dtype(dtype).ok_or_else(|| {
        FormatError::invalid("matrix type", format!("{dtype} has no file type number"))
    })?;
    let version = if dtype.is_quantized() { QUANTIZATION_VERSION } else { 0 };
    Ok(number + version * QUANTIZATION_FACTOR)
}

fn put_size(out: &mut Vec<u8>, what: &str, value: usize) -> Result<()> {
    let value = i32::try_from(value).map_err(|_| FormatError::Count {
        what: what.to_owned(),
        count: value as u64,
        limit: i32::MAX as u64,
    })?;
    out.extend(value.to_le_bytes());
    Ok(())
}
