//! What a model file says about itself, for programs that print it.

use std::path::{Path, PathBuf};

use crate::ctranslate2::CTranslate2File;
use crate::detect::{Format, detect};
use crate::error::{FormatError, Result};
use crate::file::{ByteOrder, ModelFile, OpenOptions, TensorInfo};
use crate::ggml_whisper::GgmlWhisperFile;
use crate::gguf::GgufFile;
use crate::value::Value;

/// Everything in a model file but the tensors' data.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// The path as the caller gave it.
    pub path: PathBuf,
    /// The format of the file.
    pub format: Format,
    /// Version of the format, where it has one.
    pub version: Option<u32>,
    /// The order of the bytes inside elements.
    pub byte_order: ByteOrder,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Bytes of tensor data.
    pub tensor_bytes: u64,
    /// Number of elements in all tensors.
    pub parameters: u64,
    /// Keys and values in the order of the file.
    pub metadata: Vec<(String, Value)>,
    /// Tensors in the order of the file.
    pub tensors: Vec<TensorInfo>,
}

/// Reads the header of the model file at `path`, of any format.
///
/// # Errors
/// The path is no model file, or its header is broken.
pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection> {
    let path = path.as_ref();
    let options = OpenOptions::new().mmap(false);
    match detect(path)? {
        Format::Gguf => {
            let file = GgufFile::open(path, options)?;
            Ok(describe(path, &file, Some(file.version())))
        }
        Format::GgmlWhisper => Ok(describe(path, &GgmlWhisperFile::open(path, options)?, None)),
        Format::CTranslate2 => Ok(describe(path, &CTranslate2File::open(path, options)?, Some(6))),
        Format::SafeTensors => Err(FormatError::WrongFormat {
            wanted: "GGUF, ggml Whisper or CTranslate2",
            found: Format::SafeTensors.name().into(),
        }
        .in_file(path)),
    }
}

fn describe(path: &Path, file: &dyn ModelFile, version: Option<u32>) -> Inspection {
    let tensors = file.tensors().to_vec();
    Inspection {
        path: path.to_owned(),
        format: file.format(),
        version,
        byte_order: file.byte_order(),
        file_bytes: file.data().len(),
        tensor_bytes: tensors.iter().map(TensorInfo::size_bytes).sum(),
        parameters: tensors.iter().map(|info| info.shape.elements() as u64).sum(),
        metadata: file.metadata().into_owned(),
        tensors,
    }
}
