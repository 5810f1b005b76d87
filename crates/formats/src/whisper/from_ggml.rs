//! A checkpoint from a ggml Whisper file, which carries everything but the
//! special tokens and the decoding lists.

use std::sync::Arc;

use super::checkpoint::match_shape;
use super::tensor::TensorSource;
use super::{
    CheckpointExtras, ConvOrder, TensorSpec, WhisperCheckpoint, WhisperTensor, WhisperVocabulary,
    tensor_specs,
};
use crate::error::{FormatError, Result};
use crate::file::ModelFile;
use crate::ggml_whisper::GgmlWhisperFile;

impl WhisperCheckpoint {
    /// The model of a ggml Whisper file; its tensors stay in the file.
    ///
    /// # Errors
    /// A missing or misshapen tensor, or one in an impossible type.
    pub fn from_ggml(file: &GgmlWhisperFile) -> Result<Self> {
        let config = *file.config();
        let tensors = tensor_specs(&config)?
            .into_iter()
            .map(|spec| find_tensor(file, spec, ConvOrder::KernelFastest))
            .collect::<Result<_>>()?;
        let extras = CheckpointExtras {
            name: None,
            vocabulary: WhisperVocabulary { tokens: file.tokens().to_vec(), merges: Vec::new() },
            mel_filters: file.mel_filters().clone(),
            alignment_heads: None,
            suppress_ids: None,
            suppress_ids_begin: None,
            language_ids: None,
        };
        Self::assemble(config, extras, tensors)
    }
}

/// The tensor of a spec in a file that uses the same names.
pub(super) fn find_tensor(
    file: &dyn ModelFile,
    spec: TensorSpec,
    prefers: ConvOrder,
) -> Result<WhisperTensor> {
    let info =
        file.tensor(&spec.name).ok_or_else(|| FormatError::MissingTensor(spec.name.clone()))?;
    let conv_order = match_shape(&spec, info.shape, prefers)?;
    let source = TensorSource {
        data: Arc::clone(file.data()),
        range: info.range.clone(),
        dtype: info.dtype,
        order: file.byte_order(),
        conv_order,
        scales: None,
    };
    WhisperTensor::new(spec, source)
}
