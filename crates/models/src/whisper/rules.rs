//! Filters on the logits of the next token.
//!
//! Each rule sets the logits of tokens that may not come next to −∞. The rules
//! and their constants are those of Radford et al. 2022, section 4.5, as the
//! openai-whisper decoder applies them by default. All are pure functions of the
//! logits and of the tokens sampled so far; ids beyond the logits are ignored.
//!
//! Which marks are never said is data of openai-whisper (`whisper/tokenizer.py`,
//! MIT licence; the notice is in `src/text/data/README.md`).

use std::ops::Range;

use super::special::{FRAMES_PER_TIMESTAMP, SpecialTokens};
use crate::tokenizer::Tokenizer;

/// Marks that are never said; each is suppressed where it is one token.
const UNSPOKEN: &[&str] = &[
    "\"",
    "#",
    "(",
    ")",
    "*",
    "+",
    "/",
    ":",
    ";",
    "<",
    "=",
    ">",
    "@",
    "[",
    "\\",
    "]",
    "^",
    "_",
    "`",
    "{",
    "|",
    "}",
    "~",
    "「",
    "」",
    "『",
    "』",
    "<<",
    ">>",
    "<<<",
    ">>>",
    "--",
    "---",
    "-(",
    "-[",
    "('",
    "(\"",
    "((",
    "))",
    "(((",
    ")))",
    "[[",
    "]]",
    "{{",
    "}}",
    "♪♪",
    "♪♪♪",
];

/// Music signs: the first of their tokens is suppressed even where they are several.
const MUSIC_SIGNS: &[&str] = &["♩", "♪", "♫", "♬", "♭", "♮", "♯"];

/// Tokens of speaker marks, sound annotations and music signs, in ascending order.
///
/// Apostrophe and hyphen may occur inside words; only their forms that open a
/// word are listed.
pub fn non_speech_tokens(tokenizer: &Tokenizer) -> Vec<u32> {
    let mut tokens: Vec<u32> =
        [" -", " '"].iter().filter_map(|mark| tokenizer.encode(mark).first().copied()).collect();
    for (marks, even_if_several) in [(UNSPOKEN, false), (MUSIC_SIGNS, true)] {
        let spellings = marks.iter().flat_map(|mark| [(*mark).to_owned(), format!(" {mark}")]);
        for ids in spellings.map(|text| tokenizer.encode(&text)) {
            if ids.len() == 1 || even_if_several {
                tokens.extend(ids.first());
            }
        }
    }
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// Rule "suppress tokens": these tokens never come next.
pub fn suppress_tokens(logits: &mut [f32], tokens: &[u32]) {
    for &token in tokens {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

fn suppress_range(logits: &mut [f32], tokens: Range<u32>) {
    let end = logits.len().min(tokens.end as usize);
    let start = end.min(tokens.start as usize);
    logits[start..end].fill(f32::NEG_INFINITY);
}

/// Rule "suppress blank": a transcript does not open with these tokens, as a rule a space
/// and the end of text.
pub fn suppress_blank(logits: &mut [f32], sampled: &[u32], blank: &[u32]) {
    if sampled.is_empty() {
        suppress_tokens(logits, blank);
    }
}

/// Rule "timestamps come in pairs": a segment's end is followed by the next
/// segment's start or by the end of text, a start by text.
pub fn pair_timestamps(logits: &mut [f32], sampled: &[u32], special: &SpecialTokens) {
    let is_timestamp = |back: usize| {
        let at = sampled.len().checked_sub(back)?;
        sampled.get(at).map(|&token| special.is_timestamp(token))
    };
    if is_timestamp(1) != Some(true) {
        return;
    }
    if is_timestamp(2).unwrap_or(true) {
        suppress_range(logits, special.timestamp_begin..u32::MAX);
    } else {
        suppress_range(logits, 0..special.eot);
    }
}

/// Rule "timestamps do not decrease": an end lies after its start, a start not
/// before the last end. So no segment is empty and decoding cannot stand still.
pub fn order_timestamps(logits: &mut [f32], sampled: &[u32], special: &SpecialTokens) {
    let Some(&last) = sampled.iter().rfind(|&&token| special.is_timestamp(token)) else { return };
    let may_repeat = match *sampled {
        [.., before, newest] => special.is_timestamp(newest) && !special.is_timestamp(before),
        _ => false,
    };
    let first_allowed = if may_repeat { last } else { last.saturating_add(1) };
    suppress_range(logits, special.timestamp_begin..first_allowed);
}

/// Rule "open with a timestamp": the first token is a timestamp, at most
/// `max_initial_frames` (10 ms each) into the window.
pub fn open_with_timestamp(
    logits: &mut [f32],
    sampled: &[u32],
    max_initial_frames: Option<usize>,
    special: &SpecialTokens,
) {
    if !sampled.is_empty() {
        return;
    }
    suppress_range(logits, 0..special.timestamp_begin);
    if let Some(frames) = max_initial_frames {
        let index = u32::try_from(frames / FRAMES_PER_TIMESTAMP).unwrap_or(u32::MAX);
        let last_allowed = special.timestamp_begin.saturating_add(index);
        suppress_range(logits, last_allowed.saturating_add(1)..u32::MAX);
    }
}

/// Rule "timestamps in sum": if all timestamps together are more probable than
/// the most probable other token, a timestamp comes next.
pub fn prefer_timestamps_in_sum(logits: &mut [f32], special: &SpecialTokens) {
    let split = logits.len().min(special.timestamp_begin as usize);
    let (others, timestamps) = logits.split_at_mut(split);
    let best_other = others.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if log_sum_exp(timestamps) > f64::from(best_other) {
        others.fill(f32::NEG_INFINITY);
    }
}

/// `ln Σ exp(x)` in f64; −∞ where every value is −∞.
pub fn log_sum_exp(values: &[f32]) -> f64 {
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return f64::NEG_INFINITY;
    }
    let max = f64::from(max);
    max + values.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

/// Lists of tokens that a model's file brings; an empty list suppresses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SuppressionLists {
    /// Tokens that never come next; `None` for the [`non_speech_tokens`].
    pub always: Option<Vec<u32>>,
    /// Tokens that do not come first; `None` for a space and the end of text.
    pub first: Option<Vec<u32>>,
}

/// Which rules apply.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleOptions {
    /// Write timestamps.
    pub timestamps: bool,
    /// Suppress the tokens that the model's file lists, else the non-speech tokens.
    pub suppress_non_speech: bool,
    /// Further tokens that never come.
    pub suppress_tokens: Vec<u32>,
    /// Latest first timestamp in frames of 10 ms; `None` for no limit.
    pub max_initial_frames: Option<usize>,
}

impl Default for RuleOptions {
    /// Timestamps, non-speech tokens suppressed, first timestamp within 1.0 s.
    fn default() -> Self {
        Self {
            timestamps: true,
            suppress_non_speech: true,
            suppress_tokens: Vec::new(),
            max_initial_frames: Some(100),
        }
    }
}

/// The rules of one decoding, ready to apply.
#[derive(Debug, Clone)]
pub struct LogitRules {
    special: SpecialTokens,
    suppressed: Vec<u32>,
    blank: Vec<u32>,
    timestamps: bool,
    max_initial_frames: Option<usize>,
}

impl LogitRules {
    /// Prepares the rules for a vocabulary and the lists of a model.
    ///
    /// Tokens that steer the decoder (start, tasks, previous text, no speech) are
    /// always suppressed.
    pub fn new(
        tokenizer: &Tokenizer,
        special: SpecialTokens,
        lists: &SuppressionLists,
        options: &RuleOptions,
    ) -> Self {
        let mut suppressed = options.suppress_tokens.clone();
        if options.suppress_non_speech {
            match &lists.always {
                Some(tokens) => suppressed.extend(tokens),
                None => suppressed.extend(non_speech_tokens(tokenizer)),
            }
        }
        suppressed.extend([
            special.sot,
            special.translate,
            special.transcribe,
            special.sot_lm,
            special.sot_prev,
            special.no_speech,
        ]);
        suppressed.sort_unstable();
        suppressed.dedup();
        let blank = lists.first.clone().unwrap_or_else(|| {
            let mut tokens = tokenizer.encode(" ");
            tokens.push(special.eot);
            tokens
        });
        Self {
            special,
            suppressed,
            blank,
            timestamps: options.timestamps,
            max_initial_frames: options.max_initial_frames,
        }
    }

    /// Applies all rules to the logits of the token that follows `sampled`.
    ///
    /// `sampled` are the tokens of this window after the start sequence.
    pub fn apply(&self, logits: &mut [f32], sampled: &[u32]) {
        let special = &self.special;
        suppress_blank(logits, sampled, &self.blank);
        suppress_tokens(logits, &self.suppressed);
        if self.timestamps {
            suppress_tokens(logits, &[special.no_timestamps]);
            pair_timestamps(logits, sampled, special);
            order_timestamps(logits, sampled, special);
            open_with_timestamp(logits, sampled, self.max_initial_frames, special);
            prefer_timestamps_in_sum(logits, special);
        }
    }

    /// The tokens that never come next, in ascending order.
    pub fn suppressed(&self) -> &[u32] {
        &self.suppressed
    }

    /// The tokens that do not come first.
    pub fn suppressed_first(&self) -> &[u32] {
        &self.blank
    }
}
