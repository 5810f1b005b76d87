//! Conversion of published model files, with what lies beside them.
//!
//! The file formats crate parses no JSON and computes no filters; this module
//! adds both, so that a CTranslate2 folder converts like any other model.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tensoryard_audio::MelFilters as ComputedFilters;
use tensoryard_formats::ctranslate2::{CTranslate2File, read_vocabulary};
use tensoryard_formats::whisper::{CheckpointExtras, MelFilters, WhisperVocabulary, token_bytes};
use tensoryard_formats::{Format, ModelFile, Result, detect};

pub use tensoryard_formats::whisper::{Progress as ConvertProgress, WeightType};
pub use tensoryard_formats::{ConvertOptions, Format as ModelFormat, FormatError};

/// Revision of what [`convert`] writes into a GGUF file. It rises when models
/// that were converted earlier must be converted again.
pub const CONVERSION_REVISION: u32 = 1;

/// Converts the Whisper model at `input`, a file or a CTranslate2 folder, to
/// the file `output`, which appears only when it is complete.
///
/// The extras of `options` are filled in from the files beside a CTranslate2
/// model when they are absent; `name` is then the name it gets. `progress` is
/// called after each tensor.
///
/// # Errors
/// The input or a file beside it cannot be read, or the output's format is
/// unknown, cannot be written or cannot hold the model.
pub fn convert(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    name: Option<&str>,
    mut options: ConvertOptions,
    progress: &mut dyn FnMut(ConvertProgress<'_>),
) -> Result<()> {
    let input = input.as_ref();
    if options.extras.is_none() && detect(input)? == Format::CTranslate2 {
        let file = CTranslate2File::open(input, options.open)?;
        options.extras = Some(ctranslate2_extras(&file, input, name)?);
    }
    tensoryard_formats::convert(input, output, &options, progress)
}

/// What a CTranslate2 model does not hold itself, from the files beside it.
fn ctranslate2_extras(
    file: &CTranslate2File,
    path: &Path,
    name: Option<&str>,
) -> Result<CheckpointExtras> {
    let n_mels = match file.tensor("encoder/conv1/weight").map(|info| info.shape.dims()) {
        Some([_, n_mels @ (80 | 128), ..]) => n_mels,
        _ => {
            return Err(
                invalid("encoder/conv1/weight", "takes neither 80 nor 128 mel bands").in_file(path)
            );
        }
    };
    let filters = ComputedFilters::slaney(n_mels);
    let mel_filters = MelFilters::new(n_mels, filters.n_fft_bins(), filters.values().to_vec())?;
    let config = match file.side_file("config.json") {
        Some(config_path) => read_json(&config_path)?,
        None => Value::Null,
    };
    let ids = |key: &str| id_list(&config, key).map_err(|error| error.in_file(path));
    Ok(CheckpointExtras {
        name: name.map(str::to_owned),
        vocabulary: WhisperVocabulary { tokens: vocabulary(file, path)?, merges: Vec::new() },
        mel_filters,
        alignment_heads: alignment_heads(&config).map_err(|error| error.in_file(path))?,
        suppress_ids: ids("suppress_ids")?,
        suppress_ids_begin: ids("suppress_ids_begin")?,
        language_ids: ids("lang_ids")?,
    })
}

fn vocabulary(file: &CTranslate2File, path: &Path) -> Result<Vec<Vec<u8>>> {
    if let Some(text) = file.side_file("vocabulary.txt") {
        return read_vocabulary(text);
    }
    let Some(json) = file.side_file("vocabulary.json") else {
        let problem = "neither vocabulary.txt nor vocabulary.json lies beside the model";
        return Err(invalid("vocabulary", problem).in_file(path));
    };
    let tokens: Option<Vec<Vec<u8>>> = read_json(&json)?
        .as_array()
        .and_then(|tokens| tokens.iter().map(|token| token.as_str().map(token_bytes)).collect());
    tokens.ok_or_else(|| invalid("vocabulary", "is not an array of strings").in_file(&json))
}

fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path)
        .map_err(|error| invalid("file beside the model", &error.to_string()).in_file(path))?;
    serde_json::from_str(&text).map_err(|error| invalid("JSON", &error.to_string()).in_file(path))
}

/// The list of token ids under a key; `None` when the key is absent.
///
/// Some configurations pad such lists with negative ids, which name no token.
fn id_list(config: &Value, key: &str) -> Result<Option<Vec<u32>>> {
    let Some(value) = config.get(key).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let wrong = || invalid(&format!("config.json {key}"), "is not a list of token ids");
    let mut ids = Vec::new();
    for id in value.as_array().ok_or_else(wrong)? {
        let id = id.as_i64().ok_or_else(wrong)?;
        if id >= 0 {
            ids.push(u32::try_from(id).map_err(|_| wrong())?);
        }
    }
    Ok(Some(ids))
}

fn alignment_heads(config: &Value) -> Result<Option<Vec<(u32, u32)>>> {
    let Some(value) = config.get("alignment_heads").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([layer, head]) => Some((number(layer)?, number(head)?)),
        _ => None,
    };
    let pairs: Option<Vec<_>> = value.as_array().and_then(|pairs| pairs.iter().map(pair).collect());
    pairs.map(Some).ok_or_else(|| {
        invalid("config.json alignment_heads", "is not a list of pairs of layer and head")
    })
}

fn invalid(what: &str, problem: &str) -> FormatError {
    FormatError::Invalid { what: what.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_lists_of_ids_and_heads() {
        let config = json!({
            "alignment_heads": [[1, 0], [2, 5]],
            "suppress_ids": [-1, 1, 2, 50_363],
            "lang_ids": null,
        });
        assert_eq!(id_list(&config, "suppress_ids").unwrap(), Some(vec![1, 2, 50_363]));
        assert_eq!(id_list(&config, "lang_ids").unwrap(), None);
        assert_eq!(alignment_heads(&config).unwrap(), Some(vec![(1, 0), (2, 5)]));
        assert_eq!(alignment_heads(&Value::Null).unwrap(), None);
    }

    #[test]
    fn wrong_lists_are_errors() {
        for config in [json!({"suppress_ids": 3}), json!({"suppress_ids": ["a"]})] {
            let message = id_list(&config, "suppress_ids").unwrap_err().to_string();
            assert_eq!(message, "config.json suppress_ids: is not a list of token ids");
        }
        for heads in [json!([[1]]), json!([[1, -2]]), json!("x")] {
            assert!(alignment_heads(&json!({"alignment_heads": heads})).is_err());
        }
    }
}
