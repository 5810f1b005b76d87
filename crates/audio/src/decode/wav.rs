//! Samples of a WAV file, as a stream of interleaved `f32`.
//!
//! Integers become `x / 2^(bits-1)`, so 16-bit samples are exactly
//! `sample / 32768`. A file that ends early gives the whole frames it has.
//! A-law and mu-law follow ITU-T G.711.

use std::time::Duration;

use super::source::{ByteStream, read_full};
use super::wav_header::{Encoding, WavHeader};
use super::{AudioSpec, DecodeStats};
use crate::AudioError;

const BLOCK_BYTES: usize = 64 * 1024;

/// Reads the data chunk of a WAV file.
pub(super) struct WavReader {
    name: String,
    stream: ByteStream,
    encoding: Encoding,
    spec: AudioSpec,
    frame_bytes: usize,
    /// Bytes of audio left; `None` means up to the end of the file.
    left_bytes: Option<u64>,
    total_bytes: Option<u64>,
    open_ended: bool,
    stats: DecodeStats,
    raw: Vec<u8>,
}

impl WavReader {
    /// `stream` stands at the first byte of audio, `data_start` bytes into the file.
    pub(super) fn new(
        name: String,
        stream: ByteStream,
        header: &WavHeader,
        encoding: Encoding,
        data_start: u64,
    ) -> Self {
        let frame_bytes = encoding.bytes() * usize::from(header.channels);
        let in_file = stream.len().map(|len| len.saturating_sub(data_start));
        let total_bytes = match (header.data_bytes, in_file) {
            (Some(declared), Some(present)) => Some(declared.min(present)),
            (declared, present) => declared.or(present),
        };
        let total_bytes = total_bytes.filter(|_| !header.open_ended || in_file.is_some());
        let spec =
            AudioSpec { sample_rate: header.sample_rate, channels: usize::from(header.channels) };
        Self {
            name,
            stream,
            encoding,
            spec,
            frame_bytes,
            left_bytes: header.data_bytes,
            total_bytes,
            open_ended: header.open_ended,
            stats: DecodeStats::default(),
            raw: Vec::new(),
        }
    }

    pub(super) fn spec(&self) -> AudioSpec {
        self.spec
    }

    pub(super) fn stats(&self) -> DecodeStats {
        self.stats
    }

    pub(super) fn codec(&self) -> &'static str {
        self.encoding.name()
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        let frames = self.total_bytes? / self.frame_bytes as u64;
        Duration::try_from_secs_f64(frames as f64 / f64::from(self.spec.sample_rate)).ok()
    }

    /// Replaces `out` with the next block; `false` at the end.
    pub(super) fn next_block(&mut self, out: &mut Vec<f32>) -> Result<bool, AudioError> {
        out.clear();
        let frames = (BLOCK_BYTES / self.frame_bytes).max(1);
        let mut wanted = frames * self.frame_bytes;
        if let Some(left) = self.left_bytes {
            wanted = wanted.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        self.raw.resize(wanted, 0);
        let filled = read_full(&mut self.stream, &mut self.raw)
            .map_err(|source| AudioError::Read { name: self.name.clone(), source })?;
        let ended = filled < wanted;
        if let Some(left) = self.left_bytes {
            let left = left - filled as u64;
            self.left_bytes = Some(if ended { 0 } else { left });
            if ended && !self.open_ended {
                self.note_truncated(left);
            }
        }
        let whole = filled - filled % self.frame_bytes;
        if whole < filled {
            self.note_truncated((self.frame_bytes - filled % self.frame_bytes) as u64);
        }
        self.raw.truncate(whole);
        decode_samples(self.encoding, &self.raw, out);
        self.stats.decoded_packets += u64::from(whole > 0);
        Ok(whole > 0)
    }

    fn note_truncated(&mut self, missing_bytes: u64) {
        if !self.stats.truncated {
            tracing::warn!(name = %self.name, missing_bytes, "WAV file ends early");
        }
        self.stats.truncated = true;
    }
}

fn decode_samples(encoding: Encoding, raw: &[u8], out: &mut Vec<f32>) {
    match encoding {
        Encoding::U8 => out.extend(raw.iter().map(|&b| (f32::from(b) - 128.0) / 128.0)),
        Encoding::ALaw => out.extend(raw.iter().map(|&b| f32::from(expand_a_law(b)) / 32768.0)),
        Encoding::MuLaw => out.extend(raw.iter().map(|&b| f32::from(expand_mu_law(b)) / 32768.0)),
        Encoding::S16 => {
            out.extend(
                raw.as_chunks().0.iter().map(|&b| f32::from(i16::from_le_bytes(b)) / 32768.0),
            );
        }
        Encoding::S24 => out.extend(raw.as_chunks::<3>().0.iter().map(|b| {
            let sample = i32::from_le_bytes([0, b[0], b[1], b[2]]) >> 8;
            sample as f32 / 8_388_608.0
        })),
        Encoding::S32 => out.extend(
            raw.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b) as f32 / 2_147_483_648.0),
        ),
        Encoding::F32 => out.extend(raw.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
        Encoding::F64 => {
            out.extend(raw.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b) as f32));
        }
    }
}

/// Expands a mu-law byte to the 16-bit scale.
fn expand_mu_law(byte: u8) -> i16 {
    let byte = !byte;
    let magnitude = ((i16::from(byte & 0x0f) << 3) + 0x84) << ((byte >> 4) & 7);
    if byte & 0x80 == 0 { magnitude - 0x84 } else { 0x84 - magnitude }
}

/// Expands an A-law byte to the 16-bit scale.
fn expand_a_law(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let segment = (byte >> 4) & 7;
    let mantissa = i16::from(byte & 0x0f) << 4;
    let magnitude = if segment == 0 { mantissa + 8 } else { (mantissa + 0x108) << (segment - 1) };
    if byte & 0x80 == 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companded_bytes_expand_to_the_g711_table() {
        let mu = [(0x00, -32124), (0x80, 32124), (0xff, 0), (0x7f, 0), (0xfe, 8), (0x8f, 16764)];
        for (byte, sample) in mu {
            assert_eq!(expand_mu_law(byte), sample, "mu-law {byte:#04x}");
        }
        let a = [(0xd5, 8), (0x55, -8), (0xaa, 32256), (0x2a, -32256), (0xd4, 24), (0xc5, 264)];
        for (byte, sample) in a {
            assert_eq!(expand_a_law(byte), sample, "A-law {byte:#04x}");
        }
    }

    #[test]
    fn integers_scale_by_powers_of_two() {
        let mut out = Vec::new();
        decode_samples(Encoding::S16, &[0x00, 0x80, 0xff, 0x7f, 0x01, 0x00], &mut out);
        assert_eq!(out, [-1.0, 32767.0 / 32768.0, 1.0 / 32768.0]);
        out.clear();
        decode_samples(Encoding::S24, &[0x00, 0x00, 0x80, 0xff, 0xff, 0xff], &mut out);
        assert_eq!(out, [-1.0, -1.0 / 8_388_608.0]);
        out.clear();
        decode_samples(Encoding::U8, &[0, 128, 255], &mut out);
        assert_eq!(out, [-1.0, 0.0, 127.0 / 128.0]);
    }
}
