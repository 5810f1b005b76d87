//! Writing a checkpoint as GGUF.
//!
//! Architecture `whisper`, with the keys that the format description lists for
//! it, the tokenizer keys that are usual in GGUF (`tokenizer.ggml.*`, model
//! `gpt2`), and these of our own: `whisper.alignment_heads` (layer, head, layer,
//! head, …), `whisper.suppress_tokens`, `whisper.suppress_tokens_begin`,
//! `whisper.language_tokens`. The mel filters are the f32 tensor `mel_filters`
//! of shape `[n_bins, n_mels]`. Convolution weights are channel-fastest.

use std::path::Path;

use tensoryard_tensor::{DType, Shape};

use super::{Progress, WeightType, WhisperCheckpoint, WhisperVocabulary, token_text};
use crate::error::{FormatError, Result};
use crate::ggml_whisper::ftype_of_dtype;
use crate::gguf::GgufBuilder;
use crate::value::{Array, Text, Value};

pub(super) const ARCHITECTURE: &str = "whisper";
pub(super) const MEL_FILTERS: &str = "mel_filters";
pub(super) const ALIGNMENT_HEADS: &str = "whisper.alignment_heads";
pub(super) const SUPPRESS_IDS: &str = "whisper.suppress_tokens";
pub(super) const SUPPRESS_IDS_BEGIN: &str = "whisper.suppress_tokens_begin";
pub(super) const LANGUAGE_IDS: &str = "whisper.language_tokens";

/// The keys of the hyperparameters, in the order of [`super::WhisperConfig::fields`].
pub(super) fn config_keys() -> [&'static str; 10] {
    [
        "whisper.vocab_size",
        "whisper.encoder.context_length",
        "whisper.encoder.embedding_length",
        "whisper.encoder.attention.head_count",
        "whisper.encoder.block_count",
        "whisper.decoder.context_length",
        "whisper.decoder.embedding_length",
        "whisper.decoder.attention.head_count",
        "whisper.decoder.block_count",
        "whisper.encoder.mels_count",
    ]
}

impl WhisperCheckpoint {
    /// Writes the model as GGUF at `path`, streaming tensor by tensor; the file
    /// appears only when it is complete. `progress` stops by returning `false`.
    ///
    /// # Errors
    /// The file cannot be written, or no conversion exists from a stored type;
    /// [`FormatError::Stopped`].
    pub fn write_gguf(
        &self,
        path: impl AsRef<Path>,
        weights: WeightType,
        progress: &mut dyn FnMut(Progress<'_>) -> bool,
    ) -> Result<()> {
        let builder = self.gguf_builder(weights)?;
        let total = self.tensors.len();
        let mut bytes = 0;
        let mut next = 0;
        builder.write_file(path, &mut |info, sink| {
            if info.name == MEL_FILTERS {
                let values = &self.mel_filters.values;
                return values.iter().try_for_each(|value| sink.put(&value.to_le_bytes()));
            }
            let tensor = self
                .tensor(&info.name)
                .ok_or_else(|| FormatError::MissingTensor(info.name.clone()))?;
            tensor.stream(info.dtype, &mut |chunk| sink.put(chunk))?;
            tensor.release();
            bytes += info.size_bytes();
            next += 1;
            let progressed = Progress { tensor: &info.name, done: next, total, bytes };
            if progress(progressed) { Ok(()) } else { Err(FormatError::Stopped) }
        })
    }

    /// The keys and tensors of the model as GGUF, without the tensors' data.
    ///
    /// # Errors
    /// Numbers that do not fit the format.
    pub fn gguf_builder(&self, weights: WeightType) -> Result<GgufBuilder> {
        let mut builder = GgufBuilder::new();
        builder.key("general.architecture", ARCHITECTURE)?;
        if let Some(name) = &self.name {
            builder.key("general.name", name.clone())?;
        }
        let embedding = self.tensor("decoder.token_embedding.weight");
        let main = embedding.map_or(DType::F32, |tensor| weights.of(tensor));
        if let Some(ftype) = ftype_of_dtype(main) {
            builder.key("general.file_type", ftype)?;
        }
        if main.is_quantized() {
            builder.key("general.quantization_version", 2u32)?;
        }
        for (key, (name, value)) in config_keys().into_iter().zip(self.config.fields()) {
            let value = u32::try_from(value)
                .map_err(|_| FormatError::invalid(name, format!("{value} exceeds 32 bits")))?;
            builder.key(key, value)?;
        }
        if let Some(heads) = &self.alignment_heads {
            let flat: Vec<u32> = heads.iter().flat_map(|&(layer, head)| [layer, head]).collect();
            builder.key(ALIGNMENT_HEADS, flat)?;
        }
        for (key, ids) in [
            (SUPPRESS_IDS, &self.suppress_ids),
            (SUPPRESS_IDS_BEGIN, &self.suppress_ids_begin),
            (LANGUAGE_IDS, &self.language_ids),
        ] {
            if let Some(ids) = ids {
                builder.key(key, ids.clone())?;
            }
        }
        add_vocabulary(&mut builder, &self.vocabulary)?;
        let shape = Shape::new(&[self.mel_filters.n_bins, self.mel_filters.n_mels])
            .map_err(FormatError::tensor(MEL_FILTERS))?;
        builder.tensor(MEL_FILTERS, DType::F32, shape)?;
        for tensor in &self.tensors {
            builder.tensor(tensor.name(), weights.of(tensor), tensor.shape())?;
        }
        Ok(builder)
    }
}

fn add_vocabulary(builder: &mut GgufBuilder, vocabulary: &WhisperVocabulary) -> Result<()> {
    let strings = |texts: Vec<Text>| Value::Array(Array::String(texts));
    builder.key("tokenizer.ggml.model", "gpt2")?;
    let tokens = vocabulary.tokens.iter().map(|token| token_text(token).into()).collect();
    builder.key("tokenizer.ggml.tokens", strings(tokens))?;
    // 1 is a normal token, 3 a control token.
    let kinds = vocabulary.tokens.iter();
    let kinds: Vec<i32> =
        kinds.map(|token| if WhisperVocabulary::is_special(token) { 3 } else { 1 }).collect();
    builder.key("tokenizer.ggml.token_type", kinds)?;
    if !vocabulary.merges.is_empty() {
        let merges = vocabulary.merges.iter();
        let merges = merges
            .map(|(left, right)| format!("{} {}", token_text(left), token_text(right)).into())
            .collect();
        builder.key("tokenizer.ggml.merges", strings(merges))?;
    }
    for (key, token) in [
        ("tokenizer.ggml.bos_token_id", "<|startoftranscript|>"),
        ("tokenizer.ggml.eos_token_id", "<|endoftext|>"),
    ] {
        if let Some(id) = vocabulary.special_id(token) {
            builder.key(key, id)?;
        }
    }
    Ok(())
}
