//! The ggml Whisper format (`ggml-*.bin`) that whisper.cpp reads.
//!
//! A magic number, eleven hyperparameters, the mel filters, the text tokens as
//! raw bytes, then tensors one after the other until the file ends. Numbers
//! are little-endian and nothing is aligned. Whisper is the only architecture
//! in it; the old llama formats with a similar magic are refused.

mod ftype;
mod read;
mod write;

pub use ftype::{dtype_of_ftype, ftype_of_dtype};
pub use read::GgmlWhisperFile;
pub use write::{GgmlTensor, GgmlWhisperHeader, write_ggml_whisper};

/// The magic number of the format as it is stored.
pub(crate) const MAGIC: u32 = 0x6767_6d6c;

/// The version of the quantised block formats that current files use.
pub(crate) const QUANTIZATION_VERSION: u32 = 2;

/// What the version is multiplied with when it is stored beside the file type.
pub(crate) const QUANTIZATION_FACTOR: u32 = 1000;
