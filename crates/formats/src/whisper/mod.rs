//! Whisper models in a form that is no file format: what every format is read
//! into and written from.
//!
//! Names of tensors are those of the original release
//! (`encoder.blocks.0.attn.query.weight`). Tensors stay in their file until
//! they are streamed; a checkpoint holds no weights itself.
//!
//! Convolution weights are `[in_channels, kernel, out_channels]` here and in
//! our GGUF files, channel fastest, as the runtime wants them. The original,
//! CTranslate2 and ggml files have `[kernel, in_channels, out_channels]`;
//! reading and writing those formats turns them around on the way.

mod checkpoint;
mod config;
mod from_ctranslate2;
mod from_ggml;
mod from_gguf;
mod languages;
mod specs;
mod tensor;
mod to_ggml;
mod to_gguf;
mod vocabulary;

pub use checkpoint::{CheckpointExtras, Progress, WeightType, WhisperCheckpoint};
pub use config::{MelFilters, WhisperConfig};
pub use languages::LANGUAGES;
pub use specs::{TensorRole, TensorSpec, tensor_specs};
pub use tensor::{ConvOrder, WhisperTensor};
pub use vocabulary::{WhisperVocabulary, is_multilingual, special_tokens, token_bytes, token_text};

pub(crate) use checkpoint::conv_shape_in;
