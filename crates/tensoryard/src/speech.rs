//! Speech to text: models, transcribers and their options.
//!
//! A [`SpeechModel`] is loaded once and shared; each [`Transcriber`] is one
//! stream through it, with caches of its own and nothing kept between calls.

use std::path::Path;
use std::sync::Arc;

use tensoryard_audio::{
    AudioError, AudioSource, HOP_SAMPLES, LogMel, MelSpectrogram, WINDOW_FRAMES, WINDOW_SAMPLES,
    load_mono_16k,
};
use tensoryard_models::whisper::transcribe::MelSource;
use tensoryard_models::whisper::{LoadOptions, WhisperModel, WhisperSession, transcribe};
use tensoryard_runtime::{AbortSignal, DeviceKind, Registry, RegistryError, Selected};

use crate::default_registry;

pub use tensoryard_models::whisper::language::Language;
pub use tensoryard_models::whisper::special::Task;
pub use tensoryard_models::whisper::transcribe::{Observer, TranscribeOptions};
pub use tensoryard_models::whisper::transcript::{Segment, Transcript, Warning};

/// Threads beyond which spectrograms gain nothing that a user would notice.
const MAX_MEL_THREADS: usize = 2;

/// What can go wrong between a file and its transcript.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeechError {
    /// The audio cannot be read.
    #[error(transparent)]
    Audio(#[from] AudioError),
    /// The model cannot be loaded or run, or the work was stopped.
    #[error(transparent)]
    Model(#[from] tensoryard_models::Error),
    /// A device that does not exist.
    #[error(transparent)]
    Device(#[from] RegistryError),
}

impl SpeechError {
    /// Whether the work ended because somebody asked for it.
    pub fn is_stopped(&self) -> bool {
        use tensoryard_models::Error;
        matches!(self, SpeechError::Model(Error::Stopped | Error::Cancelled { .. }))
    }
}

/// How a model is loaded and where it runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelOptions {
    /// Devices in order of priority, such as `cpu` or `cpu:threads=4`; each text may name
    /// several, separated by commas.
    pub devices: Vec<String>,
    /// Where devices are looked up; without one, in [`default_registry`].
    pub registry: Option<Arc<Registry>>,
    /// Threads of the CPU where its device says nothing else; 0 uses all processors.
    pub threads: usize,
    /// How weights are loaded.
    pub load: LoadOptions,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            devices: vec!["cpu".to_owned()],
            registry: None,
            threads: 0,
            load: LoadOptions::default(),
        }
    }
}

impl ModelOptions {
    /// The devices asked for, those of the CPU with the threads asked for.
    ///
    /// # Errors
    /// A device that does not exist, or whose parameters do not do.
    pub fn select(&self) -> Result<Vec<Selected>, RegistryError> {
        let registry = self.registry.as_deref().unwrap_or_else(|| default_registry());
        let mut devices = Vec::new();
        for specs in &self.devices {
            devices.extend(registry.select_list(specs)?);
        }
        for selected in &mut devices {
            let is_cpu = selected.device.info().kind == DeviceKind::Cpu;
            if is_cpu && selected.options.threads == 0 {
                selected.options.threads = self.threads;
            }
        }
        Ok(devices)
    }
}

/// A speech model in memory, shared by any number of transcribers.
#[derive(Debug, Clone)]
pub struct SpeechModel {
    whisper: Arc<WhisperModel>,
    mel_threads: usize,
}

impl SpeechModel {
    /// Loads a Whisper model from a GGUF file, a ggml Whisper `.bin` file or a CTranslate2 folder.
    ///
    /// # Errors
    /// A file that is no Whisper model, or is damaged; memory that cannot be had.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SpeechError> {
        Self::load_with(path, &ModelOptions::default(), |_, _| true)
    }

    /// As [`SpeechModel::load`], with options. `progress` is told bytes loaded and bytes in all,
    /// and stops the loading by returning `false`.
    ///
    /// # Errors
    /// As [`SpeechModel::load`]; a device that does not exist.
    pub fn load_with(
        path: impl AsRef<Path>,
        options: &ModelOptions,
        progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Self, SpeechError> {
        Self::load_on(path, &options.select()?, &options.load, progress)
    }

    /// As [`SpeechModel::load_with`], on devices that the caller has.
    ///
    /// # Errors
    /// As [`SpeechModel::load`].
    pub fn load_on(
        path: impl AsRef<Path>,
        devices: &[Selected],
        options: &LoadOptions,
        progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Self, SpeechError> {
        let mel_threads = mel_threads(devices);
        let model = WhisperModel::load(path, devices, options, progress)?;
        Ok(Self { whisper: Arc::new(model), mel_threads })
    }

    /// The model behind it, for sizes, tokenizer and graphs.
    pub fn whisper(&self) -> &Arc<WhisperModel> {
        &self.whisper
    }

    /// Opens a stream through the model.
    ///
    /// # Errors
    /// A device that cannot be opened; memory that cannot be had.
    pub fn transcriber(&self) -> Result<Transcriber, SpeechError> {
        Ok(Transcriber {
            session: self.whisper.session()?,
            options: TranscribeOptions::default(),
            mel_threads: self.mel_threads,
        })
    }
}

/// Threads for spectrograms: as many as the devices may use, up to
/// [`MAX_MEL_THREADS`]. A device without a number of its own uses all processors.
fn mel_threads(devices: &[Selected]) -> usize {
    let stated = devices.iter().map(|device| device.options.threads).filter(|&n| n > 0).max();
    let threads =
        stated.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    threads.min(MAX_MEL_THREADS)
}

/// One stream through a model.
#[derive(Debug)]
pub struct Transcriber {
    session: WhisperSession,
    options: TranscribeOptions,
    mel_threads: usize,
}

/// Frames of a recording, as the decoding loop asks for them.
struct Frames {
    /// The recording and 30 s of silence behind it.
    mel: MelSpectrogram,
    n_frames: usize,
}

impl Frames {
    fn new(log_mel: &LogMel, samples: &[f32], threads: usize) -> Self {
        let mel = log_mel.compute(samples, WINDOW_SAMPLES, threads);
        Self { mel, n_frames: samples.len() / HOP_SAMPLES }
    }
}

impl MelSource for Frames {
    fn n_frames(&self) -> usize {
        self.n_frames
    }

    fn window(&self, first: usize, n: usize) -> Vec<f32> {
        self.mel.window(first, n)
    }

    fn window_with_silence(&self) -> Option<Vec<f32>> {
        (self.n_frames < WINDOW_FRAMES).then(|| self.mel.window(0, WINDOW_FRAMES))
    }
}

impl Transcriber {
    /// Uses other options from now on.
    #[must_use]
    pub fn with_options(mut self, options: TranscribeOptions) -> Self {
        self.options = options;
        self
    }

    /// The options.
    pub fn options_mut(&mut self) -> &mut TranscribeOptions {
        &mut self.options
    }

    /// The signal that stops the work from another thread, inside a computation.
    pub fn abort_signal(&self) -> AbortSignal {
        self.session.abort_signal()
    }

    /// The session behind it, for plans and memory figures.
    pub fn session(&mut self) -> &mut WhisperSession {
        &mut self.session
    }

    /// Transcribes an audio file: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A, WebM or AIFF.
    ///
    /// # Errors
    /// Audio that cannot be read; what the model reports.
    pub fn transcribe_file(&mut self, path: impl AsRef<Path>) -> Result<Transcript, SpeechError> {
        self.transcribe_source(path.as_ref())
    }

    /// Transcribes audio from a path, from memory or from a stream.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe_file`].
    pub fn transcribe_source(
        &mut self,
        source: impl Into<AudioSource>,
    ) -> Result<Transcript, SpeechError> {
        let samples = load_mono_16k(source)?;
        self.transcribe(&samples)
    }

    /// Transcribes samples: one channel, 16 kHz, values from −1 to 1.
    ///
    /// # Errors
    /// What the model reports.
    pub fn transcribe(&mut self, samples: &[f32]) -> Result<Transcript, SpeechError> {
        self.transcribe_observed(samples, &mut ())
    }

    /// As [`Transcriber::transcribe`]; `observer` is told segments and progress as they come.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`].
    pub fn transcribe_observed(
        &mut self,
        samples: &[f32],
        observer: &mut dyn Observer,
    ) -> Result<Transcript, SpeechError> {
        let model = Arc::clone(self.session.model());
        let mel = Frames::new(model.log_mel(), samples, self.mel_threads);
        let tokenizer = model.tokenizer();
        let session = &mut self.session;
        Ok(transcribe::transcribe(session, &mel, tokenizer, &self.options, observer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spectrograms_use_no_more_threads_than_the_devices() {
        let registry = default_registry();
        let threads = |specs: &[&str]| {
            let devices: Vec<_> = specs.iter().map(|spec| registry.select(spec).unwrap()).collect();
            mel_threads(&devices)
        };
        assert_eq!(threads(&["cpu:threads=1"]), 1);
        assert_eq!(threads(&["cpu:threads=2"]), 2);
        assert_eq!(threads(&["cpu:threads=64"]), MAX_MEL_THREADS);
        assert!((1..=MAX_MEL_THREADS).contains(&threads(&["cpu"])));
    }

    #[test]
    fn devices_are_lists_and_threads_are_for_the_cpu() {
        let mut options = ModelOptions { threads: 3, ..ModelOptions::default() };
        options.devices = vec!["cpu:threads=2, cpu".to_owned(), "cpu:0".to_owned()];
        let threads = |options: &ModelOptions| -> Vec<usize> {
            options.select().unwrap().iter().map(|selected| selected.options.threads).collect()
        };
        assert_eq!(threads(&options), [2, 3, 3]);
        options.devices = vec!["sim".to_owned()];
        assert_eq!(threads(&options), [0], "threads are no matter of simulated devices");
        options.registry = Some(Arc::new(Registry::new()));
        let error = options.select().unwrap_err().to_string();
        assert_eq!(error, r#"no device "sim"; there are: none"#);
    }
}
