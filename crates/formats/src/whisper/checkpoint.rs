//! The checkpoint itself, and what a caller adds to a format that lacks it.

use std::collections::HashMap;
use std::path::Path;

use tensoryard_tensor::{DType, Shape};

use super::{
    ConvOrder, MelFilters, TensorRole, TensorSpec, WhisperConfig, WhisperTensor, WhisperVocabulary,
};
use crate::ctranslate2::CTranslate2File;
use crate::detect::{Format, detect};
use crate::error::{FormatError, Result};
use crate::file::OpenOptions;
use crate::ggml_whisper::GgmlWhisperFile;
use crate::gguf::GgufFile;

/// A Whisper model: hyperparameters, vocabulary, filters, and its tensors,
/// which stay in their file.
#[derive(Debug, Clone)]
pub struct WhisperCheckpoint {
    /// A name for people, such as `tiny.en`.
    pub name: Option<String>,
    /// The hyperparameters.
    pub config: WhisperConfig,
    /// Tokens by id, special ones included.
    pub vocabulary: WhisperVocabulary,
    /// The mel filters.
    pub mel_filters: MelFilters,
    /// Decoder heads whose cross-attention follows time: (layer, head).
    pub alignment_heads: Option<Vec<(u32, u32)>>,
    /// Tokens that are never produced; `None` leaves the choice to the decoder.
    pub suppress_ids: Option<Vec<u32>>,
    /// Tokens that are not produced first; `None` leaves the choice to the decoder.
    pub suppress_ids_begin: Option<Vec<u32>>,
    /// Tokens that name a language, as the source says. Converters are known to
    /// have been off by one for English-only models, so decoding goes by
    /// [`super::special_tokens`]; the list is kept so that a conversion loses
    /// nothing.
    pub language_ids: Option<Vec<u32>>,
    pub(super) tensors: Vec<WhisperTensor>,
    pub(super) index: HashMap<String, usize>,
}

/// What a CTranslate2 `model.bin` does not hold: parsed by the caller from the
/// JSON and text files beside it, and the mel filters, which are computed.
#[derive(Debug, Clone)]
pub struct CheckpointExtras {
    /// A name for people, such as `tiny.en`.
    pub name: Option<String>,
    /// Tokens by id; special tokens at the end may be missing.
    pub vocabulary: WhisperVocabulary,
    /// The mel filters.
    pub mel_filters: MelFilters,
    /// `alignment_heads` of `config.json`.
    pub alignment_heads: Option<Vec<(u32, u32)>>,
    /// `suppress_ids` of `config.json`.
    pub suppress_ids: Option<Vec<u32>>,
    /// `suppress_ids_begin` of `config.json`.
    pub suppress_ids_begin: Option<Vec<u32>>,
    /// `lang_ids` of `config.json`.
    pub language_ids: Option<Vec<u32>>,
}

/// Which type matrices and convolutions get when a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WeightType {
    /// As they are stored.
    #[default]
    Keep,
    /// f32, every tensor.
    F32,
    /// f16; vectors and positions stay f32.
    F16,
}

/// How far a conversion has come.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The tensor that was just written.
    pub tensor: &'a str,
    /// How many were written, this one included.
    pub done: usize,
    /// How many there are.
    pub total: usize,
    /// Bytes of tensor data written so far.
    pub bytes: u64,
}

impl WhisperCheckpoint {
    /// Opens a Whisper model of any format. `extras` is needed for CTranslate2
    /// and ignored for the formats that carry everything.
    ///
    /// # Errors
    /// What the reader of the format reports; another architecture; a missing
    /// or misshapen tensor.
    pub fn open(
        path: impl AsRef<Path>,
        options: OpenOptions,
        extras: Option<&CheckpointExtras>,
    ) -> Result<Self> {
        let path = path.as_ref();
        let read = |result: Result<Self>| result.map_err(|error| error.in_file(path));
        match detect(path)? {
            Format::Gguf => read(Self::from_gguf(&GgufFile::open(path, options)?)),
            Format::GgmlWhisper => read(Self::from_ggml(&GgmlWhisperFile::open(path, options)?)),
            Format::CTranslate2 => {
                let file = CTranslate2File::open(path, options)?;
                let extras = extras.ok_or_else(|| {
                    let problem = "a CTranslate2 model needs its vocabulary and mel filters";
                    FormatError::invalid("extras", problem).in_file(path)
                })?;
                read(Self::from_ctranslate2(&file, extras))
            }
            Format::SafeTensors => read(Err(FormatError::WrongFormat {
                wanted: "GGUF, ggml Whisper or CTranslate2",
                found: Format::SafeTensors.name().into(),
            })),
        }
    }

    /// Every tensor, in the order of [`super::tensor_specs`].
    pub fn tensors(&self) -> &[WhisperTensor] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&WhisperTensor> {
        self.tensors.get(*self.index.get(name)?)
    }

    /// Puts the parts together and checks them against each other.
    pub(super) fn assemble(
        config: WhisperConfig,
        extras: CheckpointExtras,
        tensors: Vec<WhisperTensor>,
    ) -> Result<Self> {
        let mut vocabulary = extras.vocabulary;
        if vocabulary.tokens.len() > config.n_vocab {
            let problem =
                format!("{} tokens, n_vocab is {}", vocabulary.tokens.len(), config.n_vocab);
            return Err(FormatError::invalid("vocabulary", problem));
        }
        vocabulary.complete(config.n_vocab);
        let filters = &extras.mel_filters;
        if filters.n_mels != config.n_mels
            || filters.n_mels.checked_mul(filters.n_bins) != Some(filters.values.len())
        {
            let problem = format!(
                "{} of {} bins in {} values, the model has {} mels",
                filters.n_mels,
                filters.n_bins,
                filters.values.len(),
                config.n_mels
            );
            return Err(FormatError::invalid("mel filters", problem));
        }
        let ids = [
            ("suppressed tokens", &extras.suppress_ids),
            ("tokens suppressed first", &extras.suppress_ids_begin),
            ("language tokens", &extras.language_ids),
        ];
        for (what, ids) in ids {
            if let Some(id) = ids.iter().flatten().find(|&&id| id as usize >= config.n_vocab) {
                let problem = format!("token {id}, n_vocab is {}", config.n_vocab);
                return Err(FormatError::invalid(what, problem));
            }
        }
        for &(layer, head) in extras.alignment_heads.iter().flatten() {
            if layer as usize >= config.n_text_layer || head as usize >= config.n_text_head {
                let problem = format!("layer {layer}, head {head} does not exist");
                return Err(FormatError::invalid("alignment heads", problem));
            }
        }
        let index =
            tensors.iter().enumerate().map(|(at, tensor)| (tensor.name().to_owned(), at)).collect();
        Ok(Self {
            name: extras.name,
            config,
            vocabulary,
            mel_filters: extras.mel_filters,
            alignment_heads: extras.alignment_heads,
            suppress_ids: extras.suppress_ids,
            suppress_ids_begin: extras.suppress_ids_begin,
            language_ids: extras.language_ids,
            tensors,
            index,
        })
    }
}

impl WeightType {
    /// The type that a tensor is written in.
    pub(super) fn of(self, tensor: &WhisperTensor) -> DType {
        match (self, tensor.role()) {
            (Self::F32, _) => DType::F32,
            (Self::Keep, _) | (Self::F16, TensorRole::Vector | TensorRole::Positional) => {
                tensor.dtype()
            }
            (Self::F16, TensorRole::Linear | TensorRole::Embedding | TensorRole::Conv) => {
                DType::F16
            }
        }
    }
}

/// The shape of convolution weights in an order, from their shape in a checkpoint.
pub(crate) fn conv_shape_in(order: ConvOrder, shape: Shape) -> Shape {
    let [channels, width, n_out, _] = shape.dims();
    match order {
        ConvOrder::ChannelFastest => shape,
        // The same factors cannot overflow in another order.
        ConvOrder::KernelFastest => Shape::new(&[width, channels, n_out]).unwrap_or(shape),
    }
}

/// In which order a file has a tensor of this spec, told by its shape; vectors
/// may also be written as `[1, n]`.
pub(super) fn match_shape(
    spec: &TensorSpec,
    found: Shape,
    prefers: ConvOrder,
) -> Result<ConvOrder> {
    let other = match prefers {
        ConvOrder::ChannelFastest => ConvOrder::KernelFastest,
        ConvOrder::KernelFastest => ConvOrder::ChannelFastest,
    };
    if spec.role == TensorRole::Conv {
        for order in [prefers, other] {
            if conv_shape_in(order, spec.shape) == found {
                return Ok(order);
            }
        }
    }
    let is_column = spec.role == TensorRole::Vector && found.dims() == [1, spec.shape[0], 1, 1];
    if found == spec.shape || is_column {
        return Ok(prefers);
    }
    Err(FormatError::TensorShape {
        tensor: spec.name.clone(),
        wanted: conv_shape_in(prefers, spec.shape),
        found,
    })
}
