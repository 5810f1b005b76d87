//! From one model file to another, by way of the checkpoint form.
//!
//! Only Whisper models are converted so far. Tensors are streamed one after
//! the other, and the pages of those that are done are let go.

use std::path::Path;

use crate::detect::Format;
use crate::error::{FormatError, Result};
use crate::file::OpenOptions;
use crate::whisper::{CheckpointExtras, Progress, WeightType, WhisperCheckpoint};

/// What a conversion needs to know beyond its two paths.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// The format to write; `None` goes by the output's name: `.gguf` is GGUF,
    /// `.bin` is ggml Whisper.
    pub format: Option<Format>,
    /// The type of the matrices.
    pub weights: WeightType,
    /// How to open the input.
    pub open: OpenOptions,
    /// What a CTranslate2 input does not hold itself.
    pub extras: Option<CheckpointExtras>,
}

/// Converts the Whisper model at `input` to the file `output`, which appears
/// only when it is complete. `progress` is called after each tensor, and stops
/// the conversion by returning `false`; nothing is left behind then.
///
/// # Errors
/// The input cannot be read, the output's format is unknown or cannot be
/// written, or cannot hold the model; [`FormatError::Stopped`].
pub fn convert(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(Progress<'_>) -> bool,
) -> Result<()> {
    let output = output.as_ref();
    let format = match options.format {
        Some(format) => format,
        None => format_of_name(output)?,
    };
    let checkpoint = WhisperCheckpoint::open(input, options.open, options.extras.as_ref())?;
    match format {
        Format::Gguf => checkpoint.write_gguf(output, options.weights, progress),
        Format::GgmlWhisper => checkpoint.write_ggml(output, options.weights, progress),
        Format::CTranslate2 | Format::SafeTensors => {
            Err(FormatError::invalid("output format", format!("{format} cannot be written"))
                .in_file(output))
        }
    }
}

fn format_of_name(path: &Path) -> Result<Format> {
    let extension = path.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("gguf") => Ok(Format::Gguf),
        Some("bin") => Ok(Format::GgmlWhisper),
        _ => Err(FormatError::invalid(
            "output format",
            "the name ends in neither .gguf nor .bin and no format was given",
        )
        .in_file(path)),
    }
}
