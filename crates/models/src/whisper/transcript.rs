//! The result of a transcription.
//!
//! Times are seconds from the start of the recording, exact to 0.01 s, and lie
//! inside it. The types serialise to the JSON that Whisper tools share.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::language::Language;
use super::special::Task;

/// The text of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// All segments' text joined and trimmed.
    pub text: String,
    /// Language that was spoken; `None` if there was nothing to tell it from.
    pub language: Option<Language>,
    /// Probability of the language, if it was detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language_probability: Option<f32>,
    /// Transcription or translation.
    pub task: Task,
    /// Length of the recording in seconds.
    pub duration_seconds: f64,
    /// How much of it is covered; less than the length if cancelled.
    pub processed_seconds: f64,
    /// The segments in order.
    pub segments: Vec<Segment>,
    /// What the user should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// A stretch of speech.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Number of the segment, from 0 and without gaps.
    pub id: usize,
    /// First frame (10 ms) of the window it was decoded in.
    pub seek: usize,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds, after the start.
    pub end: f64,
    /// Text, as a rule with a leading space.
    pub text: String,
    /// Its tokens, timestamps included.
    pub tokens: Vec<u32>,
    /// Temperature that its window was sampled at.
    pub temperature: f32,
    /// Mean log probability of its window.
    pub avg_logprob: f32,
    /// Compression ratio of its window's text.
    pub compression_ratio: f32,
    /// Probability that its window holds no speech.
    pub no_speech_prob: f32,
}

/// Something that was done differently from what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// The initial prompt was too long; its end was used.
    PromptTrimmed {
        /// Tokens of the prompt.
        given_tokens: usize,
        /// Tokens used.
        kept_tokens: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PromptTrimmed { given_tokens, kept_tokens } => write!(
                f,
                "the initial prompt has {given_tokens} tokens; only the last {kept_tokens} are used"
            ),
        }
    }
}
