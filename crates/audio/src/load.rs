//! From a source to mono samples at one rate: decode, mix, resample.
//!
//! Blocks pass through one at a time, so memory stays near the size of the
//! result, which has a limit unless the caller lifts it. Channels are averaged
//! with equal weight.

use crate::resample::check_rate;
use crate::{AudioError, AudioReader, AudioSource, DecodeStats, Resampler, SPEECH_RATE};

/// Most samples that are reserved on the word of a header: ten minutes at 16 kHz.
const MAX_RESERVED_SAMPLES: f64 = 600.0 * SPEECH_RATE as f64;

/// How [`load_mono`] loads.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Rate of the result in Hz.
    pub sample_rate: u32,
    /// Most samples of the result; more is [`AudioError::TooLong`].
    pub max_samples: Option<u64>,
}

impl LoadOptions {
    /// The limit unless another one is set: 24 hours at 16 kHz, 5.5 GB. It is
    /// above any recording that is one file, a day at a microphone included.
    pub const DEFAULT_MAX_SAMPLES: u64 = 24 * 3600 * SPEECH_RATE as u64;

    /// 16 kHz, at most [`LoadOptions::DEFAULT_MAX_SAMPLES`].
    pub fn new() -> Self {
        Self { sample_rate: SPEECH_RATE, max_samples: Some(Self::DEFAULT_MAX_SAMPLES) }
    }

    /// Sets the rate of the result in Hz.
    #[must_use]
    pub fn sample_rate(mut self, rate: u32) -> Self {
        self.sample_rate = rate;
        self
    }

    /// Limits the number of samples of the result. A compressed file of a few
    /// megabytes can hold days, so a program that serves others sets this lower.
    #[must_use]
    pub fn max_samples(mut self, samples: u64) -> Self {
        self.max_samples = Some(samples);
        self
    }

    /// Takes the limit away: the result may grow until memory ends.
    #[must_use]
    pub fn without_limit(mut self) -> Self {
        self.max_samples = None;
        self
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Mono audio and how its decoding went.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// Mono samples at the asked rate.
    pub samples: Vec<f32>,
    /// Damage that was skipped.
    pub stats: DecodeStats,
}

/// Loads a source as mono samples at 16 kHz.
///
/// A 16-bit mono WAV file at 16 kHz gives exactly `sample / 32768`.
///
/// # Errors
/// See [`AudioReader::open`]; also a sample rate that cannot be converted, and
/// more than [`LoadOptions::DEFAULT_MAX_SAMPLES`].
pub fn load_mono_16k(source: impl Into<AudioSource>) -> Result<Vec<f32>, AudioError> {
    Ok(load_mono(source, LoadOptions::new())?.samples)
}

/// Loads a source as mono samples.
///
/// # Errors
/// See [`AudioReader::open`]; also a sample rate that cannot be converted, and
/// more samples than the limit.
pub fn load_mono(
    source: impl Into<AudioSource>,
    options: LoadOptions,
) -> Result<Loaded, AudioError> {
    let target = options.sample_rate;
    check_rate(target)?;
    let mut reader = AudioReader::from_source(source.into())?;
    let mut out = Vec::new();
    if let Some(duration) = reader.duration() {
        let samples = duration.as_secs_f64() * f64::from(target);
        out.reserve(samples.min(MAX_RESERVED_SAMPLES) as usize + 1);
    }
    let mut mono = Vec::new();
    let mut resampler: Option<Resampler> = None;
    while let Some(block) = reader.next_block()? {
        mono.clear();
        mono.extend_from_slice(block);
        let spec = reader.spec();
        mix_down(&mut mono, spec.channels);
        if resampler.as_ref().is_none_or(|r| r.from_rate() != spec.sample_rate) {
            if let Some(finished) = resampler.take() {
                finished.finish(&mut out)?;
            }
            resampler = Some(Resampler::new(spec.sample_rate, target)?);
        }
        if let Some(resampler) = &mut resampler {
            resampler.push(&mono, &mut out)?;
        }
        check_limit(&reader, &out, options)?;
    }
    if let Some(resampler) = resampler {
        resampler.finish(&mut out)?;
    }
    check_limit(&reader, &out, options)?;
    out.shrink_to_fit();
    Ok(Loaded { samples: out, stats: reader.stats() })
}

/// Replaces interleaved frames by the mean of their channels.
fn mix_down(samples: &mut Vec<f32>, channels: usize) {
    if channels <= 1 {
        return;
    }
    let scale = 1.0 / channels as f32;
    let frames = samples.len() / channels;
    for frame in 0..frames {
        let sum: f32 = samples[frame * channels..][..channels].iter().sum();
        samples[frame] = sum * scale;
    }
    samples.truncate(frames);
}

fn check_limit(reader: &AudioReader, out: &[f32], options: LoadOptions) -> Result<(), AudioError> {
    match options.max_samples {
        Some(limit) if out.len() as u64 > limit => Err(AudioError::TooLong {
            name: reader.name().to_owned(),
            limit,
            rate: options.sample_rate,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::mix_down;

    #[test]
    fn channels_are_averaged() {
        let mut stereo = vec![1.0, 0.0, -0.5, 0.25, 0.5, 0.5];
        mix_down(&mut stereo, 2);
        assert_eq!(stereo, [0.5, -0.125, 0.5]);
        let mut mono = vec![0.3, 0.4];
        mix_down(&mut mono, 1);
        assert_eq!(mono, [0.3, 0.4]);
    }
}
