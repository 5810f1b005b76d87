//! Conversion of model files, with what lies beside them.

use std::path::Path;

use tensoryard_formats::{Format, FormatError, detect};
use tensoryard_models::Error;
use tensoryard_models::whisper::checkpoint_extras;

pub use tensoryard_formats::whisper::{Progress as ConvertProgress, WeightType};
pub use tensoryard_formats::{ConvertOptions, Format as ModelFormat};

/// Revision of what [`convert`] writes into a GGUF file. It rises when models
/// that were converted earlier must be converted again.
pub const CONVERSION_REVISION: u32 = 1;

/// Converts the Whisper model at `input`, a file or a CTranslate2 folder, to
/// the file `output`, which appears only when it is complete.
///
/// The extras of `options` are filled in from the files beside a CTranslate2
/// model when they are absent; `name`, if given, is then the name it gets.
/// `progress` is called after each tensor, and stops the conversion by
/// returning `false`; nothing is left behind then.
///
/// # Errors
/// The input or a file beside it cannot be read, or the output's format is
/// unknown, cannot be written or cannot hold the model; [`Error::Stopped`].
pub fn convert(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    name: Option<&str>,
    mut options: ConvertOptions,
    progress: &mut dyn FnMut(ConvertProgress<'_>) -> bool,
) -> Result<(), Error> {
    let input = input.as_ref();
    let file_error = |error: FormatError| match error.root() {
        FormatError::Stopped => Error::Stopped,
        _ => Error::Model(Box::new(error)),
    };
    if options.extras.is_none() && detect(input).map_err(file_error)? == Format::CTranslate2 {
        let mut extras = checkpoint_extras(input, options.open)?;
        extras.name = name.map(str::to_owned).or(extras.name);
        options.extras = Some(extras);
    }
    tensoryard_formats::convert(input, output, &options, progress).map_err(file_error)
}
