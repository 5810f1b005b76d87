//! Whisper speech to text (Radford et al. 2022, "Robust Speech Recognition via
//! Large-Scale Weak Supervision").
//!
//! [`encoder`] and [`decoder`] are the graphs, [`mod@graphs`] lists them for planning, [`model`]
//! loads and runs them.
//! [`special`] and [`language`] describe the vocabulary, [`rules`] the filters on
//! logits, [`decode`] one 30 s window, [`segment`] and [`transcribe`] a whole
//! recording, [`transcript`] and [`write`](mod@write) its result.

pub mod config;
pub mod decode;
pub mod decoder;
pub mod encoder;
mod extras;
pub mod graphs;
pub mod language;
mod layers;
pub mod model;
pub mod rules;
pub mod segment;
pub mod special;
pub mod transcribe;
pub mod transcript;
mod weights;
pub mod write;

pub use extras::{checkpoint_extras, open_checkpoint};
pub use model::{LoadOptions, Timings, WhisperModel, WhisperSession};
