//! Decoding of one 30 s window: from encoded audio to tokens.
//!
//! The decoder asks a [`SpeechModel`] for logits, applies the
//! [rules](super::rules) and lets a [`Strategy`] choose. It knows no graph, no
//! device and no audio. Scores are those of Radford et al. 2022, section 4.5:
//! mean log probability, probability of no speech, and the compression ratio
//! that gives repetition away.

use serde::{Deserialize, Serialize};

use super::language::Language;
use super::rules::{LogitRules, RuleOptions, SuppressionLists, log_sum_exp};
use super::special::{SpecialTokens, Task};
use crate::Error;
use crate::tokenizer::Tokenizer;

/// Mel frames (10 ms each) in one window.
pub const WINDOW_FRAMES: usize = 3000;

/// Sizes of a speech model that decoding depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelDims {
    /// Number of tokens that have a logit.
    pub n_vocab: usize,
    /// Number of decoder positions (448).
    pub n_text_ctx: usize,
    /// Mel bands of a frame (80 or 128).
    pub n_mels: usize,
}

/// An encoder–decoder speech model with the state of one stream.
pub trait SpeechModel {
    /// Its sizes.
    fn dims(&self) -> ModelDims;

    /// The lists of tokens to suppress that came with the model.
    fn suppression(&self) -> SuppressionLists {
        SuppressionLists::default()
    }

    /// Encodes a window of audio; later [`SpeechModel::decode`] calls attend to it.
    ///
    /// `mel` has shape `[n_mels, 3000]`, the mel band fastest.
    ///
    /// # Errors
    /// Whatever keeps the model from running; [`Error::Stopped`] if it was told to stop.
    fn encode(&mut self, mel: &[f32]) -> Result<(), Error>;

    /// Runs the decoder over `tokens`, which stand at `position` and after.
    ///
    /// What was decoded before at `position` and after is forgotten, so that
    /// position 0 starts anew. For each index in `rows` (ascending, into `tokens`)
    /// the raw logits of the token that follows it go to `logits`, replacing its
    /// content: shape `[n_vocab, rows.len()]`.
    ///
    /// # Errors
    /// As [`SpeechModel::encode`].
    fn decode(
        &mut self,
        tokens: &[u32],
        position: usize,
        rows: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), Error>;
}

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// The most probable token, at temperature 0.
    #[default]
    Greedy,
}

/// Options of decoding one window.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Transcribe or translate.
    pub task: Task,
    /// Rules on the logits.
    pub rules: RuleOptions,
    /// How tokens are chosen.
    pub strategy: Strategy,
    /// Most tokens a window may have; `None` for half the decoder's positions.
    pub max_tokens: Option<usize>,
}

/// Why a window's text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model ended it.
    EndOfText,
    /// The limit of tokens was reached.
    Length,
}

/// The text of one window.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedWindow {
    /// Sampled tokens without the end of text: text and timestamps.
    pub tokens: Vec<u32>,
    /// Log probability of each token under the rules; one more if the text was ended.
    pub log_probs: Vec<f32>,
    /// Text without timestamps, trimmed.
    pub text: String,
    /// Mean log probability, the end of text counted as one token.
    pub avg_logprob: f32,
    /// Probability that the window holds no speech.
    pub no_speech_prob: f32,
    /// Bytes of the text over bytes of its zlib compression.
    pub compression_ratio: f32,
    /// Temperature of sampling.
    pub temperature: f32,
    /// Why the text ends.
    pub stop: StopReason,
}

/// Probability of each language, most probable first.
pub type LanguageProbabilities = Vec<(Language, f32)>;

/// Decodes windows for one model, vocabulary and set of options.
#[derive(Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    special: SpecialTokens,
    dims: ModelDims,
    options: DecodeOptions,
    rules: LogitRules,
}

impl<'a> Decoder<'a> {
    /// Prepares decoding for a model that brings no lists of its own.
    ///
    /// # Errors
    /// [`Error::NotWhisperVocabulary`] or [`Error::Vocabulary`] if model and tokenizer do
    /// not fit, [`Error::InvalidOption`] for sizes that cannot be decoded with.
    pub fn new(
        tokenizer: &'a Tokenizer,
        dims: ModelDims,
        options: DecodeOptions,
    ) -> Result<Self, Error> {
        Self::with_lists(tokenizer, dims, &SuppressionLists::default(), options)
    }

    /// Prepares decoding with the sizes and the lists of a model.
    ///
    /// # Errors
    /// As [`Decoder::new`].
    pub fn for_model<M: SpeechModel + ?Sized>(
        tokenizer: &'a Tokenizer,
        model: &M,
        options: DecodeOptions,
    ) -> Result<Self, Error> {
        Self::with_lists(tokenizer, model.dims(), &model.suppression(), options)
    }

    fn with_lists(
        tokenizer: &'a Tokenizer,
        dims: ModelDims,
        lists: &SuppressionLists,
        options: DecodeOptions,
    ) -> Result<Self, Error> {
        let special = SpecialTokens::for_tokenizer(dims.n_vocab, tokenizer)?;
        if dims.n_text_ctx < 16 {
            return Err(Error::InvalidOption {
                name: "n_text_ctx",
                reason: format!("{} decoder positions are too few", dims.n_text_ctx),
            });
        }
        let rules = LogitRules::new(tokenizer, special, lists, &options.rules);
        Ok(Self { tokenizer, special, dims, options, rules })
    }

    /// The special tokens of the vocabulary.
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// The sizes of the model.
    pub fn dims(&self) -> ModelDims {
        self.dims
    }

    /// The options.
    pub fn options(&self) -> &DecodeOptions {
        &self.options
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &'a Tokenizer {
        self.tokenizer
    }

    /// Most tokens of earlier text that a window can be conditioned on.
    pub fn max_prompt_tokens(&self) -> usize {
        self.dims.n_text_ctx / 2 - 1
    }

    /// Tokens of a prompt given as text, as earlier text would be written.
    pub fn encode_prompt(&self, prompt: &str) -> Vec<u32> {
        match prompt.trim() {
            "" => Vec::new(),
            text => self.tokenizer.encode(&format!(" {text}")),
        }
    }

    /// The tokens a window starts with: the last tokens of `prompt` that fit, then
    /// the start sequence.
    ///
    /// # Errors
    /// [`Error::EnglishOnly`] or [`Error::LanguageNotInVocabulary`] if the model cannot do it.
    pub fn initial_tokens(&self, language: Language, prompt: &[u32]) -> Result<Vec<u32>, Error> {
        let mut tokens = Vec::new();
        if !prompt.is_empty() {
            tokens.push(self.special.sot_prev);
            let first = prompt.len().saturating_sub(self.max_prompt_tokens());
            tokens.extend_from_slice(&prompt[first..]);
        }
        tokens.extend(self.special.start_sequence(language, self.options.task)?);
        if !self.options.rules.timestamps {
            tokens.push(self.special.no_timestamps);
        }
        Ok(tokens)
    }

    /// Probability of each language for the window that the model has encoded.
    ///
    /// # Errors
    /// [`Error::EnglishOnly`] for an English-only model, else what the model reports.
    pub fn detect_language<M: SpeechModel + ?Sized>(
        &self,
        model: &mut M,
    ) -> Result<LanguageProbabilities, Error> {
        if !self.special.multilingual {
            return Err(Error::EnglishOnly { asked: "detect languages".to_owned() });
        }
        let mut logits = Vec::new();
        self.run(model, &[self.special.sot], 0, &[0], 0, &mut logits)?;
        let first = self.special.sot as usize + 1;
        let languages = &logits[first..first + self.special.n_languages as usize];
        let total = log_sum_exp(languages);
        let mut probabilities: LanguageProbabilities = Language::all()
            .zip(languages)
            .map(|(language, &logit)| {
                (language, ((f64::from(logit) - total).exp() as f32).max(0.0))
            })
            .collect();
        probabilities.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(probabilities)
    }

    /// Decodes the window that the model has encoded.
    ///
    /// `prompt` is earlier text or a hint; only its last
    /// [`Decoder::max_prompt_tokens`] count. `should_stop` is asked before each step.
    ///
    /// # Errors
    /// [`Error::Stopped`] if asked to stop, [`Error::BadLogits`] if no token can be chosen,
    /// else what the model reports.
    pub fn decode<M: SpeechModel + ?Sized>(
        &self,
        model: &mut M,
        language: Language,
        prompt: &[u32],
        should_stop: &mut dyn FnMut() -> bool,
    ) -> Result<DecodedWindow, Error> {
        let initial = self.initial_tokens(language, prompt)?;
        match self.options.strategy {
            Strategy::Greedy => self.decode_greedy(model, &initial, should_stop),
        }
    }

    fn decode_greedy<M: SpeechModel + ?Sized>(
        &self,
        model: &mut M,
        initial: &[u32],
        should_stop: &mut dyn FnMut() -> bool,
    ) -> Result<DecodedWindow, Error> {
        let n_vocab = self.dims.n_vocab;
        if should_stop() {
            return Err(Error::Stopped);
        }
        let mut logits = Vec::new();
        let no_speech_prob = self.prefill(model, initial, &mut logits)?;

        let limit = self.options.max_tokens.unwrap_or(self.dims.n_text_ctx / 2);
        let mut tokens = Vec::new();
        let mut log_probs = Vec::new();
        let mut stop = StopReason::Length;
        for step in 0..limit {
            self.rules.apply(&mut logits, &tokens);
            let (token, log_prob) = most_probable(&logits)
                .ok_or(Error::BadLogits { step, reason: "the rules leave no token" })?;
            log_probs.push(log_prob);
            if token == self.special.eot {
                stop = StopReason::EndOfText;
                break;
            }
            tokens.push(token);
            let position = initial.len() + step;
            if step + 1 == limit || position >= self.dims.n_text_ctx {
                break;
            }
            if should_stop() {
                return Err(Error::Stopped);
            }
            self.run(model, &[token], position, &[0], step + 1, &mut logits)?;
            debug_assert_eq!(logits.len(), n_vocab);
        }

        let text = self.tokenizer.decode_text(&self.text_tokens(&tokens));
        let text = text.trim().to_owned();
        let sum: f64 = log_probs.iter().map(|&p| f64::from(p)).sum();
        Ok(DecodedWindow {
            avg_logprob: (sum / (tokens.len() + 1) as f64) as f32,
            no_speech_prob,
            compression_ratio: compression_ratio(&text),
            temperature: 0.0,
            tokens,
            log_probs,
            text,
            stop,
        })
    }

    /// Runs the initial tokens; leaves the logits of the first sampled token in
    /// `logits` and returns the probability of no speech at the start token.
    fn prefill<M: SpeechModel + ?Sized>(
        &self,
        model: &mut M,
        initial: &[u32],
        logits: &mut Vec<f32>,
    ) -> Result<f32, Error> {
        let n_vocab = self.dims.n_vocab;
        let last = initial.len() - 1;
        let sot = initial.iter().position(|&t| t == self.special.sot).unwrap_or(last);
        let rows: &[usize] = if sot == last { &[last] } else { &[sot, last] };
        self.run(model, initial, 0, rows, 0, logits)?;

        let at_sot = &logits[..n_vocab];
        let no_speech = f64::from(at_sot[self.special.no_speech as usize]);
        let no_speech_prob = (no_speech - log_sum_exp(at_sot)).exp() as f32;
        logits.drain(..logits.len() - n_vocab);
        Ok(no_speech_prob)
    }

    /// Calls the model and checks what it wrote.
    fn run<M: SpeechModel + ?Sized>(
        &self,
        model: &mut M,
        tokens: &[u32],
        position: usize,
        rows: &[usize],
        step: usize,
        logits: &mut Vec<f32>,
    ) -> Result<(), Error> {
        model.decode(tokens, position, rows, logits)?;
        let expected = rows.len() * self.dims.n_vocab;
        if logits.len() != expected {
            return Err(Error::WrongSize { what: "logits", expected, got: logits.len() });
        }
        let is_unusable = |x: &f32| x.is_nan() || *x == f32::INFINITY;
        if logits.iter().any(is_unusable) {
            return Err(Error::BadLogits { step, reason: "some are NaN or infinite" });
        }
        let is_dead = |row: &[f32]| row.iter().all(|&x| x == f32::NEG_INFINITY);
        if logits.chunks(self.dims.n_vocab).any(is_dead) {
            return Err(Error::BadLogits { step, reason: "no token has any probability" });
        }
        Ok(())
    }

    /// The tokens below the end of text.
    pub fn text_tokens(&self, tokens: &[u32]) -> Vec<u32> {
        tokens.iter().copied().filter(|&token| token < self.special.eot).collect()
    }
}

/// The token with the highest logit (the first of equals) and its log probability.
fn most_probable(logits: &[f32]) -> Option<(u32, f32)> {
    let mut best = (0, f32::NEG_INFINITY);
    for (token, &logit) in (0..).zip(logits) {
        if logit > best.1 {
            best = (token, logit);
        }
    }
    let log_prob = f64::from(best.1) - log_sum_exp(logits);
    (best.1 > f32::NEG_INFINITY).then_some((best.0, log_prob as f32))
}

/// Bytes of a text over bytes of its zlib compression; 0 for an empty text.
///
/// Repetitive text compresses well: above about 2.4 a transcript is most likely
/// stuck in a loop. Compressors differ by some bytes, which shows in short texts.
pub fn compression_ratio(text: &str) -> f32 {
    const LEVEL: u8 = 6;
    let compressed = miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), LEVEL);
    text.len() as f32 / compressed.len().max(1) as f32
}
