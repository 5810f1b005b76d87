//! The hyperparameters and the mel filters of a Whisper model.

use super::is_multilingual;
use crate::error::{FormatError, Result};

/// The ten numbers that fix the shape of a Whisper model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs, reason = "the fields have the names of the original's hyperparameters")]
pub struct WhisperConfig {
    pub n_vocab: usize,
    pub n_audio_ctx: usize,
    pub n_audio_state: usize,
    pub n_audio_head: usize,
    pub n_audio_layer: usize,
    pub n_text_ctx: usize,
    pub n_text_state: usize,
    pub n_text_head: usize,
    pub n_text_layer: usize,
    pub n_mels: usize,
}

impl WhisperConfig {
    /// Names and values in the order of the ggml format.
    pub fn fields(&self) -> [(&'static str, usize); 10] {
        let mut copy = *self;
        copy.fields_mut().map(|(name, value)| (name, *value))
    }

    pub(crate) fn fields_mut(&mut self) -> [(&'static str, &mut usize); 10] {
        [
            ("n_vocab", &mut self.n_vocab),
            ("n_audio_ctx", &mut self.n_audio_ctx),
            ("n_audio_state", &mut self.n_audio_state),
            ("n_audio_head", &mut self.n_audio_head),
            ("n_audio_layer", &mut self.n_audio_layer),
            ("n_text_ctx", &mut self.n_text_ctx),
            ("n_text_state", &mut self.n_text_state),
            ("n_text_head", &mut self.n_text_head),
            ("n_text_layer", &mut self.n_text_layer),
            ("n_mels", &mut self.n_mels),
        ]
    }

    /// Checks that the numbers can belong to a Whisper model.
    ///
    /// # Errors
    /// A number that is 0 or absurdly large, heads that do not divide the
    /// state, or encoder and decoder states that differ.
    pub fn check(&self) -> Result<()> {
        for (name, value) in self.fields() {
            let limit = match name {
                "n_vocab" | "n_audio_ctx" | "n_text_ctx" => 1 << 20,
                "n_audio_state" | "n_text_state" => 1 << 16,
                "n_audio_layer" | "n_text_layer" => 256,
                _ => 4096,
            };
            if value == 0 || value > limit {
                return Err(FormatError::invalid(name, format!("is {value}, not in 1..={limit}")));
            }
        }
        for (what, state, heads) in [
            ("n_audio_state", self.n_audio_state, self.n_audio_head),
            ("n_text_state", self.n_text_state, self.n_text_head),
        ] {
            if !state.is_multiple_of(heads) {
                return Err(FormatError::invalid(what, format!("{state} by {heads} heads")));
            }
        }
        if self.n_audio_state != self.n_text_state {
            let problem = format!("{}, n_audio_state is {}", self.n_text_state, self.n_audio_state);
            return Err(FormatError::invalid("n_text_state", problem));
        }
        Ok(())
    }

    /// How many tensors a model with these numbers has.
    pub fn n_tensors(&self) -> usize {
        let blocks = self.n_audio_layer.saturating_mul(15);
        blocks.saturating_add(self.n_text_layer.saturating_mul(24)).saturating_add(11)
    }

    /// Whether the vocabulary is one of the multilingual models.
    pub fn is_multilingual(&self) -> bool {
        is_multilingual(self.n_vocab)
    }
}

/// Triangular filters that turn a power spectrum into mel bands.
#[derive(Debug, Clone, PartialEq)]
pub struct MelFilters {
    /// Number of bands: 80, or 128 for large-v3.
    pub n_mels: usize,
    /// Number of frequency bins of the spectrum; Whisper has 201.
    pub n_bins: usize,
    /// The weights, shape `[n_bins, n_mels]`.
    pub values: Vec<f32>,
}

impl MelFilters {
    /// Filters from their weights, shape `[n_bins, n_mels]`.
    ///
    /// # Errors
    /// Another number of weights than the sizes need.
    pub fn new(n_mels: usize, n_bins: usize, values: Vec<f32>) -> Result<Self> {
        if n_mels.checked_mul(n_bins) == Some(values.len()) {
            return Ok(Self { n_mels, n_bins, values });
        }
        let problem = format!("{} values for {n_mels} filters of {n_bins} bins", values.len());
        Err(FormatError::invalid("mel filters", problem))
    }
}
