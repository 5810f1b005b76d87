//! Speech to text on a tensor runtime in Rust.
//!
//! ```no_run
//! use tensoryard::SpeechModel;
//!
//! let model = SpeechModel::load("tiny.en.gguf")?;
//! let transcript = model.transcriber()?.transcribe_file("talk.mp3")?;
//! println!("{}", transcript.text);
//! # Ok::<(), tensoryard::SpeechError>(())
//! ```
//!
//! [`speech`] is what most programs need. The crates underneath are exported
//! under short names, for programs that build graphs of their own. With the
//! feature `download`, `hub` fetches models by name.

pub mod compare;
mod convert;
pub mod devices;
#[cfg(feature = "download")]
pub mod hub;
pub mod plan_view;
pub mod speech;
pub mod speed;

pub use convert::{
    CONVERSION_REVISION, ConvertOptions, ConvertProgress, ModelFormat, WeightType, convert,
};
/// A short spoken sample, a WAV file: one channel, 16 kHz. Its text stands in `assets/sample.txt`.
pub const SAMPLE_WAV: &[u8] = include_bytes!("../assets/sample.wav");

pub use devices::default_registry;
pub use speech::{SpeechError, SpeechModel, TranscribeOptions, Transcriber, Transcript};

/// Audio: decoding, resampling, spectrograms.
pub use tensoryard_audio as audio;
/// The CPU device.
pub use tensoryard_cpu as cpu;
/// Drivers from shared libraries.
#[cfg(feature = "dynamic")]
pub use tensoryard_dynamic as dynamic;
/// Model files.
pub use tensoryard_formats as formats;
/// Graphs and ops.
pub use tensoryard_graph as graph;
/// Models, tokenizers, decoding, scoring.
pub use tensoryard_models as models;
/// Devices, buffers, planning, execution.
pub use tensoryard_runtime as runtime;
/// Simulated devices.
pub use tensoryard_sim as sim;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example for those who come from ggml.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-ggml.md")]
struct FromGgml;
