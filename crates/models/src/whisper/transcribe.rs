//! Transcription of a whole recording, window by window.
//!
//! Each window of 30 s is encoded and decoded; the timestamps say where its
//! segments end and where the next window starts. Earlier text is the prompt of
//! the next window. A window that the model calls silent, and is unsure about,
//! gives nothing (Radford et al. 2022, section 4.5).
//!
//! The spectrogram of the last window is filled up with zeros, not with the
//! spectrogram of silence: that is what the original's `transcribe` does.

use super::decode::{
    DecodeOptions, DecodedWindow, Decoder, LanguageProbabilities, SpeechModel, WINDOW_FRAMES,
};
use super::language::Language;
use super::segment::{MIN_FRAMES, WindowSpan, cut_window, whole_window};
use super::transcript::{Segment, Transcript, Warning};
use crate::Error;
use crate::tokenizer::{Tokenizer, Utf8Joiner};

/// Frames of 10 ms per second.
const FRAMES_PER_SECOND: f64 = 100.0;

/// Above this temperature a window's text is too random to condition the next on.
const MAX_PROMPT_TEMPERATURE: f32 = 0.5;

/// The log-mel spectrogram of a recording.
pub trait MelSource {
    /// Number of frames of 10 ms, without padding.
    fn n_frames(&self) -> usize;

    /// Frames `first..first + n`, shape `[n_mels, n]`, the mel band fastest.
    ///
    /// Only asked for frames that exist.
    fn window(&self, first: usize, n: usize) -> Vec<f32>;

    /// The first window of a recording shorter than 30 s with the spectrogram of the silence
    /// that follows, shape `[n_mels, 3000]`; `None` for a longer recording. Languages are told
    /// from it, as the original does.
    fn window_with_silence(&self) -> Option<Vec<f32>> {
        None
    }
}

/// Options of a transcription. The defaults are those of the original at temperature 0.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TranscribeOptions {
    /// Options of each window.
    pub decode: DecodeOptions,
    /// Language; `None` detects it in the first window.
    pub language: Option<Language>,
    /// Text that the first window is conditioned on, such as names that will occur.
    pub initial_prompt: Option<String>,
    /// Condition each window on the text before it.
    pub condition_on_previous_text: bool,
    /// Skip windows whose probability of no speech is above this; `None` keeps all.
    pub no_speech_threshold: Option<f32>,
    /// But keep a window whose mean log probability is above this.
    pub logprob_threshold: Option<f32>,
}

impl Default for TranscribeOptions {
    fn default() -> Self {
        Self {
            decode: DecodeOptions::default(),
            language: None,
            initial_prompt: None,
            condition_on_previous_text: true,
            no_speech_threshold: Some(0.6),
            logprob_threshold: Some(-1.0),
        }
    }
}

/// Who watches a transcription.
///
/// All methods are called on the thread that transcribes, between steps of the model, so
/// time spent in them delays it. By default they do nothing.
pub trait Observer {
    /// Asked before each step of the model; `true` stops the transcription.
    ///
    /// The time from a `true` to the end is one encoder pass or one decoder step.
    fn should_stop(&mut self) -> bool {
        false
    }

    /// Frames (10 ms) done: told before each window and at the end.
    ///
    /// Never decreases, and ends at `total_frames` unless the transcription is stopped or fails.
    fn progress(&mut self, done_frames: usize, total_frames: usize) {
        let _ = (done_frames, total_frames);
    }

    /// The language was detected; not called where it was given or the model is English only.
    fn language_detected(&mut self, probabilities: &LanguageProbabilities) {
        let _ = probabilities;
    }

    /// A segment is final. Segments come in order, once each, after their window is decoded.
    fn segment(&mut self, segment: &Segment) {
        let _ = segment;
    }
}

/// Watches nothing.
impl Observer for () {}

/// Transcribes a recording.
///
/// A recording of less than 0.1 s gives no segments and does not run the model.
///
/// # Errors
/// [`Error::Cancelled`] with what was done so far if the observer said stop;
/// [`Error::Vocabulary`], [`Error::NotWhisperVocabulary`] if model and tokenizer do not
/// fit; [`Error::EnglishOnly`], [`Error::LanguageNotInVocabulary`] if the model cannot do
/// what is asked; [`Error::WrongSize`] for a bad spectrogram; else what the model reports.
pub fn transcribe<M: SpeechModel + ?Sized>(
    model: &mut M,
    mel: &dyn MelSource,
    tokenizer: &Tokenizer,
    options: &TranscribeOptions,
    observer: &mut dyn Observer,
) -> Result<Transcript, Error> {
    let decoder = Decoder::for_model(tokenizer, model, options.decode.clone())?;
    let mut run = Run::new(&decoder, mel, options, observer)?;
    match run.all_windows(model) {
        Ok(()) => Ok(run.finish()),
        Err(Error::Stopped) => Err(Error::Cancelled { partial: Box::new(run.finish()) }),
        Err(error) => Err(error),
    }
}

/// The state of one transcription.
struct Run<'a> {
    decoder: &'a Decoder<'a>,
    mel: &'a dyn MelSource,
    options: &'a TranscribeOptions,
    observer: &'a mut dyn Observer,
    total_frames: usize,
    done_frames: usize,
    language: Option<Language>,
    language_probability: Option<f32>,
    segments: Vec<Segment>,
    /// Initial prompt and all text so far.
    history: Vec<u32>,
    /// Tokens of the history that no longer condition the next window.
    forgotten: usize,
    warnings: Vec<Warning>,
}

impl<'a> Run<'a> {
    fn new(
        decoder: &'a Decoder<'a>,
        mel: &'a dyn MelSource,
        options: &'a TranscribeOptions,
        observer: &'a mut dyn Observer,
    ) -> Result<Self, Error> {
        let english_only = (!decoder.special().multilingual).then_some(Language::ENGLISH);
        let language = options.language.or(english_only);
        // An impossible request fails before any work is done.
        decoder.initial_tokens(language.unwrap_or(Language::ENGLISH), &[])?;

        let history = decoder.encode_prompt(options.initial_prompt.as_deref().unwrap_or_default());
        let kept_tokens = decoder.max_prompt_tokens();
        let mut warnings = Vec::new();
        if history.len() > kept_tokens {
            warnings.push(Warning::PromptTrimmed { given_tokens: history.len(), kept_tokens });
        }
        Ok(Self {
            decoder,
            mel,
            options,
            observer,
            total_frames: mel.n_frames(),
            done_frames: 0,
            language,
            language_probability: None,
            segments: Vec::new(),
            history,
            forgotten: 0,
            warnings,
        })
    }

    fn all_windows<M: SpeechModel + ?Sized>(&mut self, model: &mut M) -> Result<(), Error> {
        while self.total_frames - self.done_frames >= MIN_FRAMES {
            self.observer.progress(self.done_frames, self.total_frames);
            let span = WindowSpan {
                first: self.done_frames,
                frames: WINDOW_FRAMES.min(self.total_frames - self.done_frames),
            };
            let mut is_encoded = false;
            let language = match self.language {
                Some(language) => language,
                None => {
                    is_encoded = self.encode_for_detection(model, span)?;
                    self.detect_language(model)?
                }
            };
            if !is_encoded {
                self.encode(model, span)?;
            }
            let prompt = &self.history[self.forgotten..];
            let observer = &mut *self.observer;
            let window =
                self.decoder.decode(model, language, prompt, &mut || observer.should_stop())?;
            self.done_frames = self.take(window, span);
        }
        self.done_frames = self.total_frames;
        self.observer.progress(self.total_frames, self.total_frames);
        Ok(())
    }

    fn encode<M: SpeechModel + ?Sized>(
        &mut self,
        model: &mut M,
        span: WindowSpan,
    ) -> Result<(), Error> {
        if self.observer.should_stop() {
            return Err(Error::Stopped);
        }
        let n_mels = self.decoder.dims().n_mels;
        let mut window = self.mel.window(span.first, span.frames);
        let expected = span.frames * n_mels;
        if window.len() != expected {
            return Err(Error::WrongSize { what: "mel window", expected, got: window.len() });
        }
        window.resize(WINDOW_FRAMES * n_mels, 0.0);
        model.encode(&window)
    }

    /// Encodes the window that the language is told from; whether that is the window itself.
    fn encode_for_detection<M: SpeechModel + ?Sized>(
        &mut self,
        model: &mut M,
        span: WindowSpan,
    ) -> Result<bool, Error> {
        let Some(window) = self.mel.window_with_silence() else {
            return self.encode(model, span).map(|()| true);
        };
        if self.observer.should_stop() {
            return Err(Error::Stopped);
        }
        model.encode(&window).map(|()| false)
    }

    fn detect_language<M: SpeechModel + ?Sized>(
        &mut self,
        model: &mut M,
    ) -> Result<Language, Error> {
        if self.observer.should_stop() {
            return Err(Error::Stopped);
        }
        let probabilities = self.decoder.detect_language(model)?;
        self.observer.language_detected(&probabilities);
        let (language, probability) =
            probabilities.first().copied().unwrap_or((Language::ENGLISH, 0.0));
        self.language = Some(language);
        self.language_probability = Some(probability);
        Ok(language)
    }

    /// Takes a window's text in and returns the first frame of the next window.
    fn take(&mut self, window: DecodedWindow, span: WindowSpan) -> usize {
        if self.is_silence(&window) {
            tracing::debug!(
                first_frame = span.first,
                no_speech_prob = window.no_speech_prob,
                avg_logprob = window.avg_logprob,
                "a window is left out as silent"
            );
            return span.first + span.frames;
        }
        let timestamps = self.options.decode.rules.timestamps;
        let cut = if timestamps {
            cut_window(&window.tokens, self.decoder.special(), span)
        } else {
            whole_window(&window.tokens, span)
        };

        let mut joiner = Utf8Joiner::new();
        for (at, piece) in cut.segments.iter().enumerate() {
            let tokens = &window.tokens[piece.tokens.clone()];
            let mut text = joiner.push(&self.text_bytes(tokens));
            let next = cut.segments.get(at + 1).map(|next| &window.tokens[next.tokens.clone()]);
            // A character that the timestamp cut in two belongs to the segment that ends it.
            if !next.is_some_and(|tokens| continues_character(&self.text_bytes(tokens))) {
                text.push_str(&joiner.finish());
            }
            if text.trim().is_empty() || piece.frames.is_empty() {
                continue;
            }
            let segment = Segment {
                id: self.segments.len(),
                seek: span.first,
                start: piece.frames.start as f64 / FRAMES_PER_SECOND,
                end: piece.frames.end as f64 / FRAMES_PER_SECOND,
                text,
                tokens: tokens.to_vec(),
                temperature: window.temperature,
                avg_logprob: window.avg_logprob,
                compression_ratio: window.compression_ratio,
                no_speech_prob: window.no_speech_prob,
            };
            self.history.extend_from_slice(tokens);
            self.observer.segment(&segment);
            self.segments.push(segment);
        }

        let may_condition =
            self.options.condition_on_previous_text && window.temperature <= MAX_PROMPT_TEMPERATURE;
        if !may_condition {
            self.forgotten = self.history.len();
        }
        cut.next_frame
    }

    fn is_silence(&self, window: &DecodedWindow) -> bool {
        let Some(no_speech_threshold) = self.options.no_speech_threshold else { return false };
        let is_sure = self.options.logprob_threshold.is_some_and(|t| window.avg_logprob > t);
        window.no_speech_prob > no_speech_threshold && !is_sure
    }

    fn text_bytes(&self, tokens: &[u32]) -> Vec<u8> {
        let decoder = self.decoder;
        decoder.tokenizer().ordinary_bytes(&decoder.text_tokens(tokens))
    }

    fn finish(&mut self) -> Transcript {
        let joined: String = self.segments.iter().map(|segment| segment.text.as_str()).collect();
        Transcript {
            text: joined.trim().to_owned(),
            language: self.language,
            language_probability: self.language_probability,
            task: self.options.decode.task,
            duration_seconds: self.total_frames as f64 / FRAMES_PER_SECOND,
            processed_seconds: self.done_frames as f64 / FRAMES_PER_SECOND,
            segments: std::mem::take(&mut self.segments),
            warnings: std::mem::take(&mut self.warnings),
        }
    }
}

/// True if the bytes start inside a UTF-8 character.
fn continues_character(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| byte & 0xc0 == 0x80)
}
