//! What a CTranslate2 model keeps in files beside `model.bin`: vocabulary,
//! merges and the lists of `config.json`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tensoryard_audio::MelFilters;
use tensoryard_formats::ctranslate2::{CTranslate2File, read_vocabulary};
use tensoryard_formats::whisper::{
    self, CheckpointExtras, WhisperCheckpoint, WhisperVocabulary, token_bytes,
};
use tensoryard_formats::{Format, ModelFile, OpenOptions, detect};

use crate::Error;
use crate::tokenizer::hugging_face_merges;

/// Real files have at most some megabytes.
const MAX_SIDE_FILE_BYTES: u64 = 64 << 20;

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
/// [`Error::ModelFile`] for a missing vocabulary, a file that cannot be read or parsed, or a
/// number of mel bands that Whisper does not have; [`Error::Model`] for the model itself.
pub fn checkpoint_extras(path: &Path, options: OpenOptions) -> Result<CheckpointExtras, Error> {
    let file = CTranslate2File::open(path, options).map_err(Error::model)?;
    let config = parse_side_file(&file, "config.json", json::<ConfigFile>)?.unwrap_or_default();
    let tokens = match parse_side_file(&file, "vocabulary.json", json::<Vec<String>>)? {
        Some(tokens) => tokens.iter().map(|token| token_bytes(token)).collect(),
        None => match file.side_file("vocabulary.txt") {
            Some(path) => read_vocabulary(path).map_err(Error::model)?,
            None => {
                let reason = "vocabulary.txt and vocabulary.json are both missing beside it";
                return Err(Error::model_file(path, reason));
            }
        },
    };
    let merges = parse_side_file(&file, "tokenizer.json", hugging_face_merges)?;
    // The first convolution is [kernel, n_mels, n_audio_state] in this format.
    let n_mels = file.tensor("encoder/conv1/weight").map_or(0, |info| info.shape[1]);
    if !matches!(n_mels, 80 | 128) {
        return Err(Error::model_file(path, format!("{n_mels} mel bands, wanted 80 or 128")));
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

/// Reads and parses a file beside the model; `None` if there is no such file.
fn parse_side_file<T>(
    model: &CTranslate2File,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Error> {
    let Some(path) = model.side_file(name) else { return Ok(None) };
    let fault = |reason: String| Error::model_file(&path, reason);
    let file = File::open(&path).map_err(|error| fault(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(MAX_SIDE_FILE_BYTES + 1).read_to_string(&mut text);
    let read = read.map_err(|error| fault(error.to_string()))?;
    if read as u64 > MAX_SIDE_FILE_BYTES {
        return Err(fault(format!("longer than {MAX_SIDE_FILE_BYTES} bytes")));
    }
    parse(&text).map(Some).map_err(fault)
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The name of the folder, which is what such models are known by.
fn model_name(path: &Path) -> Option<String> {
    let folder = if path.is_dir() { path } else { path.parent()? };
    Some(folder.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CTranslate2 file of a Whisper without any variable.
    fn empty_model() -> Vec<u8> {
        let mut bytes = 6_u32.to_le_bytes().to_vec();
        bytes.extend(12_u16.to_le_bytes());
        bytes.extend(b"WhisperSpec\0");
        // Revision, number of variables, number of aliases.
        bytes.extend([3_u32, 0, 0].map(u32::to_le_bytes).concat());
        bytes
    }

    #[test]
    fn faults_of_files_beside_the_model_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
        let fault = || {
            let error = checkpoint_extras(folder.path(), OpenOptions::new()).unwrap_err();
            let Error::ModelFile { path, reason } = error else { panic!("{error}") };
            (path.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned(), reason)
        };
        std::fs::write(folder.path().join("model.bin"), empty_model()).unwrap();
        let (file, reason) = fault();
        assert_eq!((file.as_str(), reason.contains("both missing")), ("", true), "{reason}");
        write("vocabulary.json", r#"["a", 1]"#).unwrap();
        assert_eq!(fault().0, "vocabulary.json");
        write("vocabulary.json", r#"["a"]"#).unwrap();
        assert_eq!(fault().1, "0 mel bands, wanted 80 or 128");
        write("tokenizer.json", r#"{"model": {"vocab": {}, "merges": ["ab"]}}"#).unwrap();
        assert_eq!(fault(), ("tokenizer.json".into(), "merge 0 (\"ab\") is not two tokens".into()));
        write("config.json", "{").unwrap();
        assert_eq!(fault().0, "config.json");
    }

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
