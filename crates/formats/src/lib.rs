//! Model files: GGUF, the ggml Whisper `.bin` format and CTranslate2.
//!
//! Every reader checks a whole header before it returns, takes memory only in
//! proportion to the file, and leaves tensor data in the file until it is
//! asked for: borrowed from a memory map, or read on demand. Nothing here
//! knows graphs or devices, parses JSON, or holds the weights of a model.
//!
//! - [`detect()`] tells formats apart, [`inspect()`] lists what is inside.
//! - [`gguf`], [`ggml_whisper`], [`ctranslate2`] are the formats; what they
//!   share is [`ModelFile`].
//! - [`whisper`] is the form of a Whisper model that is no format;
//!   [`convert()`] goes from file to file by way of it.

mod atomic;
mod convert;
pub mod ctranslate2;
mod detect;
mod error;
mod file;
pub mod ggml_whisper;
pub mod gguf;
mod inspect;
mod map;
mod reader;
mod value;
pub mod whisper;

pub use atomic::AtomicFile;
pub use convert::{ConvertOptions, convert};
pub use detect::{Format, detect, detect_bytes};
pub use error::{FormatError, Result};
pub use file::{ByteOrder, FileData, ModelFile, OpenOptions, TensorInfo, tensor_size_bytes};
pub use inspect::{Inspection, inspect};
pub use value::{Array, Text, Value, ValueType};
