//! GGUF files, versions 2 and 3, both byte orders.
//!
//! The layout is that of the published format description: a header, keys
//! with typed values, tensor descriptions, then the tensors' data at aligned
//! offsets. The reader is stricter than the description where files in the
//! wild have done harm: it refuses duplicate names, names with zero bytes,
//! absurd alignments, and tensors that overlap or leave the file.
//! See <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod metadata;
mod read;
mod write;

pub use metadata::Metadata;
pub use read::GgufFile;
pub(crate) use read::tensor_type;
pub use write::{GgufBuilder, TensorSink};

/// Alignment of tensor data when `general.alignment` does not say otherwise.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// The largest alignment that is believed.
pub const MAX_ALIGNMENT: u32 = 1 << 20;

/// The longest name of a tensor or key, in bytes.
pub const MAX_NAME_BYTES: usize = 65535;

/// How deep arrays may nest.
pub(crate) const MAX_ARRAY_DEPTH: usize = 4;

pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
