//! A checkpoint from a GGUF file of architecture `whisper`.
//!
//! Hyperparameters have the keys that the format description lists for
//! Whisper; our own keys are in [`super::to_gguf`].

use tensoryard_tensor::DType;

use super::from_ggml::find_tensor;
use super::to_gguf::{
    ALIGNMENT_HEADS, ARCHITECTURE, LANGUAGE_IDS, MEL_FILTERS, SUPPRESS_IDS, SUPPRESS_IDS_BEGIN,
    config_keys,
};
use super::{
    CheckpointExtras, ConvOrder, MelFilters, WhisperCheckpoint, WhisperConfig, WhisperVocabulary,
    tensor_specs, token_bytes,
};
use crate::error::{FormatError, Result};
use crate::file::ModelFile;
use crate::gguf::{GgufFile, Metadata};
use crate::value::Text;

impl WhisperCheckpoint {
    /// The model of a GGUF file; its tensors stay in the file.
    ///
    /// # Errors
    /// Another architecture, a missing or mistyped key, a missing or misshapen
    /// tensor.
    pub fn from_gguf(file: &GgufFile) -> Result<Self> {
        let keys = file.keys();
        let found = keys.get_str("general.architecture")?;
        if found != ARCHITECTURE {
            return Err(FormatError::WrongModel { wanted: ARCHITECTURE, found: found.to_owned() });
        }
        let mut config = WhisperConfig::default();
        for ((_, field), key) in config.fields_mut().into_iter().zip(config_keys()) {
            *field = keys.get_count(key)?;
        }
        config.check()?;
        // A few may be missing and are then named; the list of all must not outgrow the file.
        if config.n_tensors() > 2 * file.tensors().len() + 100 {
            return Err(FormatError::Count {
                what: "the number of tensors that the hyperparameters demand".into(),
                count: config.n_tensors() as u64,
                limit: file.tensors().len() as u64,
            });
        }
        let tensors = tensor_specs(&config)?
            .into_iter()
            .map(|spec| find_tensor(file, spec, ConvOrder::ChannelFastest))
            .collect::<Result<_>>()?;
        let extras = CheckpointExtras {
            name: keys.find_str("general.name")?.map(str::to_owned),
            vocabulary: vocabulary(keys)?,
            mel_filters: mel_filters(file)?,
            alignment_heads: alignment_heads(keys)?,
            suppress_ids: keys.find_ids(SUPPRESS_IDS)?,
            suppress_ids_begin: keys.find_ids(SUPPRESS_IDS_BEGIN)?,
            language_ids: keys.find_ids(LANGUAGE_IDS)?,
        };
        Self::assemble(config, extras, tensors)
    }
}

fn vocabulary(keys: &Metadata) -> Result<WhisperVocabulary> {
    let model = keys.get_str("tokenizer.ggml.model")?;
    if model != "gpt2" {
        let problem = format!("is {model:?}, Whisper has \"gpt2\"");
        return Err(FormatError::invalid("tokenizer.ggml.model", problem));
    }
    let text = |key: &str, text: &Text| {
        text.as_str()
            .map(str::to_owned)
            .ok_or_else(|| FormatError::invalid(format!("key {key:?}"), "is not UTF-8"))
    };
    let tokens = keys
        .get_strings("tokenizer.ggml.tokens")?
        .iter()
        .map(|token| Ok(token_bytes(&text("tokenizer.ggml.tokens", token)?)))
        .collect::<Result<_>>()?;
    let merges = keys
        .find_strings("tokenizer.ggml.merges")?
        .unwrap_or_default()
        .iter()
        .map(|merge| {
            let merge = text("tokenizer.ggml.merges", merge)?;
            let (left, right) = merge.split_once(' ').ok_or_else(|| {
                FormatError::invalid("tokenizer.ggml.merges", format!("{merge:?} is no pair"))
            })?;
            Ok((token_bytes(left), token_bytes(right)))
        })
        .collect::<Result<_>>()?;
    Ok(WhisperVocabulary { tokens, merges })
}

fn mel_filters(file: &GgufFile) -> Result<MelFilters> {
    let info =
        file.tensor(MEL_FILTERS).ok_or_else(|| FormatError::MissingTensor(MEL_FILTERS.into()))?;
    if info.dtype != DType::F32 {
        return Err(FormatError::placement(MEL_FILTERS, format!("is {}, not f32", info.dtype)));
    }
    let [n_bins, n_mels, ..] = info.shape.dims();
    let bytes = file.tensor_bytes(info)?;
    let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    MelFilters::new(n_mels, n_bins, values)
}

fn alignment_heads(keys: &Metadata) -> Result<Option<Vec<(u32, u32)>>> {
    let Some(flat) = keys.find_ids(ALIGNMENT_HEADS)? else { return Ok(None) };
    let (pairs, rest) = flat.as_chunks::<2>();
    if !rest.is_empty() {
        let problem = format!("{} numbers, pairs are needed", flat.len());
        return Err(FormatError::invalid(ALIGNMENT_HEADS, problem));
    }
    Ok(Some(pairs.iter().map(|&[layer, head]| (layer, head)).collect()))
}
