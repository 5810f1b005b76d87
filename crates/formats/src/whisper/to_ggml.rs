//! Writing a checkpoint in the ggml Whisper format, so that whisper.cpp loads it.
//!
//! Its reader knows the types in advance: all matrices have the one type of
//! the file, convolutions are f16 (f32 in an f32 file) and kernel-fastest, all
//! else is f32. Convolution biases are written as `[1, n]`. Text tokens come
//! first; the reader names the special tokens behind them itself.
//!
//! An f32 file is right by the format and loads, but whisper.cpp 1.8.5 cannot
//! compute f32 convolutions and aborts; write f16 for it.

use std::path::Path;

use tensoryard_tensor::{DType, Shape};

use super::{
    ConvOrder, Progress, TensorRole, WeightType, WhisperCheckpoint, WhisperTensor, conv_shape_in,
    special_tokens,
};
use crate::atomic::AtomicFile;
use crate::error::{FormatError, Result};
use crate::file::tensor_size_bytes;
use crate::ggml_whisper::{GgmlTensor, GgmlWhisperHeader, write_ggml_whisper};

/// How many tokens the original's text vocabulary has in files of this format.
const TEXT_TOKENS: usize = 50257;

impl WhisperCheckpoint {
    /// Writes the model in the ggml Whisper format at `path`, streaming tensor
    /// by tensor; the file appears only when it is complete. `progress` stops
    /// by returning `false`.
    ///
    /// # Errors
    /// Matrices of several types, which the format cannot say; the file cannot
    /// be written; no conversion exists from a stored type;
    /// [`FormatError::Stopped`].
    pub fn write_ggml(
        &self,
        path: impl AsRef<Path>,
        weights: WeightType,
        progress: &mut dyn FnMut(Progress<'_>) -> bool,
    ) -> Result<()> {
        let path = path.as_ref();
        let matrix_type = self.matrix_type(weights)?;
        let described = self
            .tensors
            .iter()
            .map(|tensor| describe(tensor, matrix_type))
            .collect::<Result<Vec<_>>>()?;
        let known_vocabulary = !special_tokens(self.config.n_vocab).is_empty();
        let all = &self.vocabulary.tokens;
        let tokens = match all.get(..TEXT_TOKENS) {
            Some(text) if known_vocabulary => text,
            _ => all,
        };
        let header = GgmlWhisperHeader {
            config: &self.config,
            matrix_type,
            mel_filters: &self.mel_filters,
            tokens,
        };
        let mut file = AtomicFile::create(path)?;
        let mut bytes = 0;
        write_ggml_whisper(&mut file, &header, &described, &mut |index, sink| {
            let (Some(tensor), Some(target)) = (self.tensors.get(index), described.get(index))
            else {
                return Ok(());
            };
            let mut put = |chunk: &[u8]| sink.put(chunk);
            tensor.stream_ordered(target.dtype, ConvOrder::KernelFastest, &mut put)?;
            tensor.release();
            bytes += tensor_size_bytes(target.dtype, target.shape)
                .map_err(FormatError::tensor(tensor.name()))?;
            let (done, total) = (index + 1, described.len());
            let progressed = Progress { tensor: tensor.name(), done, total, bytes };
            if progress(progressed) { Ok(()) } else { Err(FormatError::Stopped) }
        })
        .map_err(|error| error.in_file(path))?;
        file.commit()
    }

    /// The one type of all matrices.
    fn matrix_type(&self, weights: WeightType) -> Result<DType> {
        let mut matrices = self
            .tensors
            .iter()
            .filter(|tensor| matches!(tensor.role(), TensorRole::Linear | TensorRole::Embedding));
        let first = matrices.next().map_or(DType::F32, |tensor| weights.of(tensor));
        match matrices.find(|tensor| weights.of(tensor) != first) {
            None => Ok(first),
            Some(other) => {
                let problem = format!(
                    "is {}, other matrices are {first}; this format has one type for all",
                    weights.of(other)
                );
                Err(FormatError::placement(other.name(), problem))
            }
        }
    }
}

fn describe(tensor: &WhisperTensor, matrix_type: DType) -> Result<GgmlTensor> {
    let name = tensor.name().to_owned();
    let n = tensor.shape()[0];
    let (dtype, shape, rank) = match tensor.role() {
        TensorRole::Linear | TensorRole::Embedding => (matrix_type, tensor.shape(), 2),
        TensorRole::Conv if matrix_type == DType::F32 => {
            (DType::F32, conv_shape_in(ConvOrder::KernelFastest, tensor.shape()), 3)
        }
        TensorRole::Conv => {
            (DType::F16, conv_shape_in(ConvOrder::KernelFastest, tensor.shape()), 3)
        }
        TensorRole::Vector if name.starts_with("encoder.conv") => {
            let column = Shape::new(&[1, n]).map_err(FormatError::tensor(&name))?;
            (DType::F32, column, 2)
        }
        TensorRole::Vector => (DType::F32, tensor.shape(), 1),
        TensorRole::Positional => (DType::F32, tensor.shape(), 2),
    };
    Ok(GgmlTensor { name, dtype, shape, rank })
}
