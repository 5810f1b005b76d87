//! The error type of this crate.

use std::path::{Path, PathBuf};

use crate::whisper::transcript::Transcript;

/// What a file, a caller, a model or a user's cancellation can cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A vocabulary or tokenizer file cannot be used.
    #[error("vocabulary: {reason}")]
    Vocabulary {
        /// What is wrong, with the token or line concerned.
        reason: String,
    },

    /// A file of a model cannot be read, or does not say what it must.
    #[error("{}: {reason}", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The number of tokens is not one of a Whisper model.
    #[error(
        "a vocabulary of {n_vocab} tokens is no Whisper vocabulary \
         (51864 English-only, 51865 or 51866 multilingual)"
    )]
    NotWhisperVocabulary {
        /// Number of tokens found.
        n_vocab: usize,
    },

    /// A language name or code that is not known.
    #[error("unknown language {given:?}{}", near_names(near))]
    UnknownLanguage {
        /// What was asked for.
        given: String,
        /// Known names and codes that look alike, nearest first.
        near: Vec<&'static str>,
    },

    /// An English-only model was asked for another language or for translation.
    #[error(
        "this model knows English only and cannot {asked}; use a multilingual one, such as base"
    )]
    EnglishOnly {
        /// What was asked for, as a verb phrase.
        asked: String,
    },

    /// A language that this vocabulary has no token for.
    #[error("this model's vocabulary has no token for {language}")]
    LanguageNotInVocabulary {
        /// English name of the language.
        language: &'static str,
    },

    /// An option value that cannot be used.
    #[error("option {name}: {reason}")]
    InvalidOption {
        /// Name of the option.
        name: &'static str,
        /// What is wrong with its value.
        reason: String,
    },

    /// A caller's input has the wrong size.
    #[error("{what}: expected {expected} values, got {got}")]
    WrongSize {
        /// Which input.
        what: &'static str,
        /// Number of values needed.
        expected: usize,
        /// Number of values given.
        got: usize,
    },

    /// The model gave logits that no token can be chosen from.
    #[error("unusable logits at step {step}: {reason}")]
    BadLogits {
        /// Decoder step, counted from 0 in its window.
        step: usize,
        /// What is wrong.
        reason: &'static str,
    },

    /// The model could not run.
    #[error(transparent)]
    Model(Box<dyn std::error::Error + Send + Sync>),

    /// Work stopped because the caller asked, before there was any result.
    #[error("stopped on request")]
    Stopped,

    /// Transcription stopped because the caller asked.
    #[error(
        "cancelled on request after {} of {} s",
        partial.processed_seconds, partial.duration_seconds
    )]
    Cancelled {
        /// Everything transcribed before the window that was interrupted.
        partial: Box<Transcript>,
    },
}

impl Error {
    pub(crate) fn model(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Model(Box::new(error))
    }

    pub(crate) fn model_file(path: &Path, reason: impl ToString) -> Self {
        Self::ModelFile { path: path.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn vocabulary(reason: impl Into<String>) -> Self {
        Self::Vocabulary { reason: reason.into() }
    }
}

fn near_names(near: &[&str]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}
