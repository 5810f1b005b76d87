//! Audio decoding, resampling and log-mel spectrograms.
//!
//! Three stages from a file to what a Whisper model reads, each usable alone:
//! [`AudioReader`] decodes, [`Resampler`] converts the rate, [`LogMel`]
//! computes the spectrogram. [`load_mono_16k`] joins the first two. All of it
//! works on streams and in memory near the size of its output. Hostile input
//! gives an [`AudioError`], never a panic.
//!
//! ```
//! use tensoryard_audio::{LogMel, MelFilters, load_mono_16k, wav_bytes_mono_s16};
//!
//! let tone: Vec<f32> = (0..8000).map(|n| (n as f32 * 0.3).sin() * 0.5).collect();
//! let samples = load_mono_16k(wav_bytes_mono_s16(&tone, 8000))?;
//! assert_eq!(samples.len(), 16_000);
//!
//! let mel = LogMel::new(MelFilters::slaney(80))?;
//! let window = mel.window_30s(&samples, 1);
//! assert_eq!((window.n_mels(), window.n_frames()), (80, 3000));
//! # Ok::<(), tensoryard_audio::AudioError>(())
//! ```

mod decode;
mod error;
mod load;
mod mel;
mod resample;
mod wav_write;

pub use decode::{AudioReader, AudioSource, AudioSpec, DecodeStats};
pub use error::AudioError;
pub use load::{LoadOptions, Loaded, load_mono, load_mono_16k};
pub use mel::{
    HOP_SAMPLES, LogMel, MelFilters, MelSpectrogram, N_FFT, N_FFT_BINS, WINDOW_FRAMES,
    WINDOW_SAMPLES,
};
pub use resample::Resampler;
pub use wav_write::{wav_bytes_mono_s16, write_wav_mono_s16};

/// The sample rate of speech models, in Hz.
pub const SPEECH_RATE: u32 = 16_000;
