//! What a CTranslate2 model keeps in files beside `model.bin`: vocabulary,
//! merges and the lists of `config.json`.

use std::path::Path;

use serde::Deserialize;
use tensoryard_audio::MelFilters;
use tensoryard_formats::ctranslate2::{CTranslate2File, read_vocabulary};
use tensoryard_formats::whisper::{
    self, CheckpointExtras, WhisperCheckpoint, WhisperVocabulary, token_bytes,
};
use tensoryard_formats::{Format, ModelFile, OpenOptions, detect};

use crate::Error;
use crate::tokenizer::hugging_face_merges;

/// The part of `config.json` that Whisper decoding uses.
#[derive(Debug, Default, Deserialize)]
struct ConfigFile {
    alignment_heads: Option<Vec<(u32, u32)>>,
    lang_ids: Option<Vec<i64>>,
    suppress_ids: Option<Vec<i64>>,
    suppress_ids_begin: Option<Vec<i64>>,
}

/// Some configurations pad their lists with negative ids, which name no token.
fn token_ids(ids: Option<Vec<i64>>) -> Option<Vec<u32>> {
    Some(ids?.into_iter().filter_map(|id| u32::try_from(id).ok()).collect())
}

/// Opens a Whisper model of any format, with its side files where the format has such.
///
/// # Errors
/// A file that is no Whisper model or is damaged; side files that are missing or wrong.
pub fn open_checkpoint(path: &Path, options: OpenOptions) -> Result<WhisperCheckpoint, Error> {
    let is_ctranslate2 = detect(path).map_err(Error::model)? == Format::CTranslate2;
    let extras = is_ctranslate2.then(|| checkpoint_extras(path, options)).transpose()?;
    WhisperCheckpoint::open(path, options, extras.as_ref()).map_err(Error::model)
}

/// Reads the files beside a CTranslate2 Whisper model.
///
/// # Errors
/// A vocabulary that is missing; files that cannot be read or parsed.
pub fn checkpoint_extras(path: &Path, options: OpenOptions) -> Result<CheckpointExtras, Error> {
    let file = CTranslate2File::open(path, options).map_err(Error::model)?;
    let read = |name: &str| -> Result<Option<String>, Error> {
        let Some(path) = file.side_file(name) else { return Ok(None) };
        let text = std::fs::read_to_string(&path);
        text.map(Some).map_err(|error| Error::vocabulary(format!("{}: {error}", path.display())))
    };
    let config = match read("config.json")? {
        Some(text) => serde_json::from_str(&text)
            .map_err(|error| Error::vocabulary(format!("config.json: {error}")))?,
        None => ConfigFile::default(),
    };
    let tokens = match read("vocabulary.json")? {
        Some(text) => serde_json::from_str::<Vec<String>>(&text)
            .map_err(|error| Error::vocabulary(format!("vocabulary.json: {error}")))?
            .iter()
            .map(|token| token_bytes(token))
            .collect(),
        None => match file.side_file("vocabulary.txt") {
            Some(path) => read_vocabulary(path).map_err(Error::model)?,
            None => {
                let place = path.display();
                let wanted = "vocabulary.txt and vocabulary.json";
                return Err(Error::vocabulary(format!("{place}: {wanted} are both missing")));
            }
        },
    };
    let merges = read("tokenizer.json")?.as_deref().map(hugging_face_merges).transpose()?;
    // The first convolution is [kernel, n_mels, n_audio_state] in this format.
    let n_mels = file.tensor("encoder/conv1/weight").map_or(0, |info| info.shape[1]);
    if !matches!(n_mels, 80 | 128) {
        let place = path.display();
        return Err(Error::vocabulary(format!("{place}: {n_mels} mel bands, wanted 80 or 128")));
    }
    let mel_filters = MelFilters::slaney(n_mels);
    Ok(CheckpointExtras {
        name: model_name(path),
        vocabulary: WhisperVocabulary { tokens, merges: merges.unwrap_or_default() },
        mel_filters: whisper::MelFilters::new(
            mel_filters.n_mels(),
            mel_filters.n_fft_bins(),
            mel_filters.values().to_vec(),
        )
        .map_err(Error::model)?,
        alignment_heads: config.alignment_heads,
        suppress_ids: token_ids(config.suppress_ids),
        suppress_ids_begin: token_ids(config.suppress_ids_begin),
        language_ids: token_ids(config.lang_ids),
    })
}

/// The name of the folder, which is what such models are known by.
fn model_name(path: &Path) -> Option<String> {
    let folder = if path.is_dir() { path } else { path.parent()? };
    Some(folder.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_configuration_are_read() {
        let text = r#"{"alignment_heads": [[1, 0], [2, 5]], "suppress_ids": [-1, 1, 50363],
            "lang_ids": null, "other": {}}"#;
        let config: ConfigFile = serde_json::from_str(text).unwrap();
        assert_eq!(config.alignment_heads, Some(vec![(1, 0), (2, 5)]));
        assert_eq!(token_ids(config.suppress_ids), Some(vec![1, 50_363]));
        assert_eq!(token_ids(config.lang_ids), None);
        for wrong in [r#"{"suppress_ids": 3}"#, r#"{"alignment_heads": [[1]]}"#] {
            assert!(serde_json::from_str::<ConfigFile>(wrong).is_err());
        }
    }
}
