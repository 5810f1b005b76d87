//! The special tokens of a Whisper vocabulary.
//!
//! They follow the ordinary tokens in one fixed order, so the size of the
//! vocabulary decides every id; [`special_tokens`] has the names in that order.
//! English-only vocabularies also have the language tokens, but the models never
//! use them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tensoryard_formats::whisper::{is_multilingual, special_tokens};

use super::language::Language;
use crate::Error;
use crate::tokenizer::Tokenizer;

/// Mel frames between neighbouring timestamps (10 ms each).
pub const FRAMES_PER_TIMESTAMP: usize = 2;

/// What the model is asked to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// The words that are said.
    #[default]
    Transcribe,
    /// Their translation into English.
    Translate,
}

/// Ids of the special tokens of one vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Size of the vocabulary.
    pub n_vocab: u32,
    /// True if the model knows more than English.
    pub multilingual: bool,
    /// Number of language tokens.
    pub n_languages: u32,
    /// `<|endoftext|>`, the first special token; ordinary tokens are below it.
    pub eot: u32,
    /// `<|startoftranscript|>`.
    pub sot: u32,
    /// `<|translate|>`.
    pub translate: u32,
    /// `<|transcribe|>`.
    pub transcribe: u32,
    /// `<|startoflm|>`.
    pub sot_lm: u32,
    /// `<|startofprev|>`.
    pub sot_prev: u32,
    /// `<|nospeech|>` (called `<|nocaptions|>` in some files).
    pub no_speech: u32,
    /// `<|notimestamps|>`.
    pub no_timestamps: u32,
    /// `<|0.00|>`.
    pub timestamp_begin: u32,
}

impl SpecialTokens {
    /// The special tokens of a vocabulary with `n_vocab` tokens.
    ///
    /// # Errors
    /// [`Error::NotWhisperVocabulary`] for a size other than 51864, 51865 and 51866.
    pub fn from_vocab_size(n_vocab: usize) -> Result<Self, Error> {
        let unknown = || Error::NotWhisperVocabulary { n_vocab };
        let names = special_tokens(n_vocab);
        let first = n_vocab.checked_sub(names.len()).ok_or_else(unknown)?;
        let id = |name: &str| {
            let at = names.iter().position(|token| token == name).ok_or_else(unknown)?;
            u32::try_from(first + at).map_err(|_| unknown())
        };
        let sot = id("<|startoftranscript|>")?;
        let translate = id("<|translate|>")?;
        Ok(Self {
            n_vocab: u32::try_from(n_vocab).map_err(|_| unknown())?,
            multilingual: is_multilingual(n_vocab),
            n_languages: translate - sot - 1,
            eot: id("<|endoftext|>")?,
            sot,
            translate,
            transcribe: id("<|transcribe|>")?,
            sot_lm: id("<|startoflm|>")?,
            sot_prev: id("<|startofprev|>")?,
            no_speech: id("<|nospeech|>")?,
            no_timestamps: id("<|notimestamps|>")?,
            timestamp_begin: id("<|0.00|>")?,
        })
    }

    /// As [`SpecialTokens::from_vocab_size`], checked against the names that the tokenizer has.
    ///
    /// # Errors
    /// Also [`Error::Vocabulary`] if a named special token has another id, or if the
    /// tokenizer has too few tokens.
    pub fn for_tokenizer(n_vocab: usize, tokenizer: &Tokenizer) -> Result<Self, Error> {
        let special = Self::from_vocab_size(n_vocab)?;
        let vocabulary = tokenizer.vocabulary();
        if vocabulary.len() < special.eot as usize || vocabulary.len() > n_vocab {
            return Err(Error::vocabulary(format!(
                "the tokenizer has {} tokens, the model {n_vocab}",
                vocabulary.len()
            )));
        }
        for (name, expected) in special.names() {
            match vocabulary.special_id(name) {
                Some(id) if id != expected => {
                    return Err(Error::vocabulary(format!(
                        "{name} has id {id}, expected {expected} in a vocabulary of {n_vocab}"
                    )));
                }
                _ => {}
            }
        }
        Ok(special)
    }

    fn names(&self) -> [(&'static str, u32); 10] {
        [
            ("<|endoftext|>", self.eot),
            ("<|startoftranscript|>", self.sot),
            ("<|translate|>", self.translate),
            ("<|transcribe|>", self.transcribe),
            ("<|startoflm|>", self.sot_lm),
            ("<|startofprev|>", self.sot_prev),
            ("<|nospeech|>", self.no_speech),
            ("<|nocaptions|>", self.no_speech),
            ("<|notimestamps|>", self.no_timestamps),
            ("<|0.00|>", self.timestamp_begin),
        ]
    }

    /// Ids of the language tokens; empty for an English-only model.
    pub fn language_tokens(&self) -> Range<u32> {
        let first = self.sot + 1;
        first..if self.multilingual { first + self.n_languages } else { first }
    }

    /// Token of a language, if this model uses one for it.
    pub fn language_token(&self, language: Language) -> Option<u32> {
        self.language_tokens().nth(language.index())
    }

    /// Language of a token, if it is a language token of this model.
    pub fn language(&self, token: u32) -> Option<Language> {
        let is_language = self.language_tokens().contains(&token);
        if is_language { Language::from_index((token - self.sot - 1) as usize) } else { None }
    }

    /// Token of a task.
    pub fn task_token(&self, task: Task) -> u32 {
        match task {
            Task::Transcribe => self.transcribe,
            Task::Translate => self.translate,
        }
    }

    /// Tokens that open a transcript: start, then language and task if multilingual.
    ///
    /// # Errors
    /// [`Error::EnglishOnly`] or [`Error::LanguageNotInVocabulary`] if the model cannot do it.
    pub fn start_sequence(&self, language: Language, task: Task) -> Result<Vec<u32>, Error> {
        if self.multilingual {
            let language_token = self
                .language_token(language)
                .ok_or(Error::LanguageNotInVocabulary { language: language.name() })?;
            return Ok(vec![self.sot, language_token, self.task_token(task)]);
        }
        if language != Language::ENGLISH {
            return Err(Error::EnglishOnly { asked: format!("transcribe {}", language.title()) });
        }
        match task {
            Task::Transcribe => Ok(vec![self.sot]),
            Task::Translate => Err(Error::EnglishOnly { asked: "translate".to_owned() }),
        }
    }

    /// True for a timestamp token.
    pub fn is_timestamp(&self, token: u32) -> bool {
        token >= self.timestamp_begin
    }

    /// Frames (10 ms) from the start of the window that a timestamp token means.
    pub fn timestamp_frames(&self, token: u32) -> Option<usize> {
        let index = token.checked_sub(self.timestamp_begin)?;
        Some(index as usize * FRAMES_PER_TIMESTAMP)
    }
}
