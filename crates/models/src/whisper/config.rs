//! The hyperparameters of a model together with what its graphs need to know
//! of the types in memory.

use tensoryard_formats::whisper::WhisperConfig;
use tensoryard_graph::DType;

/// Sizes and types of the graphs of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphConfig {
    /// The hyperparameters.
    pub sizes: WhisperConfig,
    /// Type of matrices and convolutions.
    pub matrix: DType,
    /// Type of the key-value caches.
    pub cache: DType,
}

impl GraphConfig {
    /// Mel frames that one run of the encoder takes.
    pub fn n_frames(&self) -> usize {
        2 * self.sizes.n_audio_ctx
    }

    /// Elements of one attention head of the decoder.
    pub fn head_dim(&self) -> usize {
        self.sizes.n_text_state / self.sizes.n_text_head
    }
}
