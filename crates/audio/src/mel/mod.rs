//! Whisper's log-mel spectrogram.
//!
//! Frames of 400 samples every 160 (25 ms every 10 ms at 16 kHz), centred with
//! reflected edges, Hann window, power spectrum, mel filter bank, base-10
//! logarithm, all of it limited to 8 below its largest value and scaled by
//! `(x + 4) / 4` (Radford et al. 2022, "Robust Speech Recognition via
//! Large-Scale Weak Supervision", §2.2). Silence that is only appended is
//! never transformed: its frames are known.

mod filters;
mod spectrogram;

use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};

pub use filters::MelFilters;
pub use spectrogram::MelSpectrogram;

use crate::AudioError;

/// Samples in a frame.
pub const N_FFT: usize = 400;
/// Frequency bins of a frame, `N_FFT / 2 + 1`.
pub const N_FFT_BINS: usize = N_FFT / 2 + 1;
/// Samples between the starts of two frames.
pub const HOP_SAMPLES: usize = 160;
/// Samples of the 30 s window that the model reads.
pub const WINDOW_SAMPLES: usize = 30 * 16_000;
/// Frames of the 30 s window.
pub const WINDOW_FRAMES: usize = WINDOW_SAMPLES / HOP_SAMPLES;

const REFLECT: usize = N_FFT / 2;
/// log10 of the smallest power that is told apart from silence.
const LOG_FLOOR: f32 = -10.0;

/// Computes log-mel spectrograms of mono audio at 16 kHz.
pub struct LogMel {
    filters: MelFilters,
    window: [f32; N_FFT],
    fft: Arc<dyn RealToComplex<f32>>,
}

impl LogMel {
    /// A spectrogram with this filter bank.
    ///
    /// # Errors
    /// [`AudioError::MelFilters`] if the bank is not made for 201 bins.
    pub fn new(filters: MelFilters) -> Result<Self, AudioError> {
        if filters.n_fft_bins() != N_FFT_BINS {
            let bins = filters.n_fft_bins();
            let what = format!("made for {bins} frequency bins, expected {N_FFT_BINS}");
            return Err(AudioError::MelFilters { what });
        }
        let window = std::array::from_fn(|n| {
            let phase = std::f64::consts::TAU * n as f64 / N_FFT as f64;
            (0.5 - 0.5 * phase.cos()) as f32
        });
        let fft = RealFftPlanner::new().plan_fft_forward(N_FFT);
        Ok(Self { filters, window, fft })
    }

    /// Number of mel bins.
    pub fn n_mels(&self) -> usize {
        self.filters.n_mels()
    }

    /// The spectrogram of one 30 s window, `[n_mels, 3000]`: `samples` is cut
    /// or filled up with silence to 480,000 before the transform. `threads`
    /// of 0 or 1 uses the calling thread alone.
    pub fn window_30s(&self, samples: &[f32], threads: usize) -> MelSpectrogram {
        let samples = &samples[..samples.len().min(WINDOW_SAMPLES)];
        self.compute(samples, WINDOW_SAMPLES - samples.len(), threads)
    }

    /// The spectrogram of a whole recording, `[n_mels, samples.len() / 160]`.
    ///
    /// It is computed as if 30 s of silence followed, and the frames of that
    /// silence are left out. Take windows of it with
    /// [`MelSpectrogram::window`], which fills up with 0.0 in mel space.
    pub fn recording(&self, samples: &[f32], threads: usize) -> MelSpectrogram {
        let mut mel = self.compute(samples, WINDOW_SAMPLES, threads);
        mel.truncate(samples.len() / HOP_SAMPLES);
        mel
    }

    /// The spectrogram of `samples` followed by `padding` zeros,
    /// `[n_mels, (samples.len() + padding) / 160]`.
    ///
    /// The lower limit follows from the largest value of all frames. Samples
    /// that are not finite count as 0.
    pub fn compute(&self, samples: &[f32], padding: usize, threads: usize) -> MelSpectrogram {
        let n_mels = self.n_mels();
        let total = samples.len() + padding;
        let n_frames = total / HOP_SAMPLES;
        // Frame f covers the samples 160 f - 200 .. 160 f + 200, and none but
        // the last two can reach reflected samples at the end.
        let sounding = samples.len().saturating_add(REFLECT).div_ceil(HOP_SAMPLES).min(n_frames);
        let sounding = if padding < N_FFT { n_frames } else { sounding };
        let mut data = vec![LOG_FLOOR; n_mels * n_frames];
        let busy = &mut data[..n_mels * sounding];
        let threads = threads.clamp(1, 64).min(sounding.div_ceil(256).max(1));
        let per_thread = sounding.div_ceil(threads).max(1);
        if threads == 1 {
            self.fill(samples, total, 0, busy);
        } else {
            std::thread::scope(|scope| {
                for (part, rows) in busy.chunks_mut(per_thread * n_mels).enumerate() {
                    scope.spawn(move || self.fill(samples, total, part * per_thread, rows));
                }
            });
        }
        let largest = data.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let floor = largest - 8.0;
        for value in &mut data {
            *value = (value.max(floor) + 4.0) / 4.0;
        }
        MelSpectrogram::new(n_mels, n_frames, data)
    }

    /// Writes the logarithms of the frames from `first` on into `rows`.
    fn fill(&self, samples: &[f32], total: usize, first: usize, rows: &mut [f32]) {
        let mut frame = self.fft.make_input_vec();
        let mut spectrum = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        let mut power = [0.0; N_FFT_BINS];
        for (at, row) in rows.chunks_exact_mut(self.n_mels()).enumerate() {
            let start = (first + at) * HOP_SAMPLES;
            self.cut_frame(samples, total, start, &mut frame);
            // The three buffers come from the plan, so their lengths are right.
            let done = self.fft.process_with_scratch(&mut frame, &mut spectrum, &mut scratch);
            debug_assert!(done.is_ok());
            for (power, bin) in power.iter_mut().zip(&spectrum) {
                *power = bin.norm_sqr();
            }
            self.filters.apply(&power, row);
            for value in row {
                *value = value.max(1e-10).log10();
            }
        }
    }

    /// Windows the frame that is centred on sample `start`.
    fn cut_frame(&self, samples: &[f32], total: usize, start: usize, frame: &mut [f32]) {
        let inner = start.checked_sub(REFLECT).and_then(|from| samples.get(from..from + N_FFT));
        match inner {
            Some(inner) => {
                for ((out, &sample), &weight) in frame.iter_mut().zip(inner).zip(&self.window) {
                    *out = sample * weight;
                }
            }
            None => {
                for (n, (out, &weight)) in frame.iter_mut().zip(&self.window).enumerate() {
                    let at = reflected(start as i64 + n as i64 - REFLECT as i64, total as i64);
                    *out = samples.get(at).copied().unwrap_or(0.0) * weight;
                }
            }
        }
        for sample in frame {
            if !sample.is_finite() {
                *sample = 0.0;
            }
        }
    }
}

/// Mirrors an index into `0..total` without repeating the edge sample. Audio
/// shorter than the reflected part is mirrored more than once.
fn reflected(mut at: i64, total: i64) -> usize {
    if total <= 1 {
        return 0;
    }
    while at < 0 || at >= total {
        at = if at < 0 { -at } else { 2 * (total - 1) - at };
    }
    at as usize
}
