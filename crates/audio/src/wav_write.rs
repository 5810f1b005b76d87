//! A small writer of 16-bit mono WAV files.
//!
//! For samples, tests and saved recordings; nothing else is written here.

use std::io::Write;
use std::path::Path;

use crate::AudioError;

/// The bytes of a 16-bit mono WAV file. Samples are clamped to the 16-bit
/// range after scaling by 32768, so that a decoded file comes back unchanged.
/// At most 2³¹ - 19 samples are kept, the most that the format can hold.
pub fn wav_bytes_mono_s16(samples: &[f32], sample_rate: u32) -> Vec<u8> {
    let samples = &samples[..samples.len().min((u32::MAX as usize - 36) / 2)];
    let data_bytes = samples.len() as u32 * 2;
    let mut out = Vec::with_capacity(44 + samples.len() * 2);
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&(data_bytes + 36).to_le_bytes());
    out.extend_from_slice(b"WAVEfmt ");
    out.extend_from_slice(&16u32.to_le_bytes());
    out.extend_from_slice(&1u16.to_le_bytes());
    out.extend_from_slice(&1u16.to_le_bytes());
    out.extend_from_slice(&sample_rate.to_le_bytes());
    out.extend_from_slice(&sample_rate.wrapping_mul(2).to_le_bytes());
    out.extend_from_slice(&2u16.to_le_bytes());
    out.extend_from_slice(&16u16.to_le_bytes());
    out.extend_from_slice(b"data");
    out.extend_from_slice(&data_bytes.to_le_bytes());
    for &sample in samples {
        // The cast saturates, and makes 0 of what is not a number.
        out.extend_from_slice(&((sample * 32768.0).round() as i16).to_le_bytes());
    }
    out
}

/// Writes a 16-bit mono WAV file.
///
/// # Errors
/// [`AudioError::Write`] if the file cannot be created or written.
pub fn write_wav_mono_s16(
    path: impl AsRef<Path>,
    samples: &[f32],
    sample_rate: u32,
) -> Result<(), AudioError> {
    let path = path.as_ref();
    let bytes = wav_bytes_mono_s16(samples, sample_rate);
    std::fs::File::create(path)
        .and_then(|mut file| file.write_all(&bytes))
        .map_err(|source| AudioError::Write { name: path.display().to_string(), source })
}
