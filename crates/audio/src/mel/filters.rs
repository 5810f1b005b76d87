//! The mel filter bank: triangles that sum power bins into mel bins.
//!
//! Slaney's mel scale ("Auditory Toolbox", 1998): linear up to 1 kHz, then
//! logarithmic, each triangle scaled to unit area. Model files carry their own
//! bank, which [`MelFilters::from_values`] takes as it is.

use super::{N_FFT, N_FFT_BINS};
use crate::AudioError;

const RATE: f64 = 16_000.0;
const LINEAR_HZ_PER_MEL: f64 = 200.0 / 3.0;
const BREAK_HZ: f64 = 1000.0;
const BREAK_MEL: f64 = BREAK_HZ / LINEAR_HZ_PER_MEL;
/// Above the break, 27 mels multiply the frequency by 6.4.
const LOG_STEP: f64 = 1.856_297_990_365_626_3 / 27.0;

/// A mel filter bank of `n_mels` rows over `n_fft_bins` power bins.
#[derive(Clone, Debug)]
pub struct MelFilters {
    n_mels: usize,
    n_fft_bins: usize,
    values: Vec<f32>,
    /// First bin and end of the weights of each row that are not 0.
    spans: Vec<(usize, usize)>,
}

impl MelFilters {
    /// The bank of Whisper models for audio at 16 kHz and frames of 400
    /// samples, from 0 to 8 kHz; `n_mels` is 80, or 128 for large-v3.
    pub fn slaney(n_mels: usize) -> Self {
        let top = hz_to_mel(RATE / 2.0);
        let edge = |i: usize| mel_to_hz(top * i as f64 / (n_mels + 1) as f64);
        let mut values = Vec::with_capacity(n_mels * N_FFT_BINS);
        for mel in 0..n_mels {
            let (low, centre, high) = (edge(mel), edge(mel + 1), edge(mel + 2));
            for bin in 0..N_FFT_BINS {
                let hz = bin as f64 * RATE / N_FFT as f64;
                let rising = (hz - low) / (centre - low);
                let falling = (high - hz) / (high - centre);
                let weight = rising.min(falling).max(0.0) * 2.0 / (high - low);
                values.push(weight as f32);
            }
        }
        let spans = spans_of(&values, N_FFT_BINS);
        Self { n_mels, n_fft_bins: N_FFT_BINS, values, spans }
    }

    /// A bank from its weights, `values[mel * n_fft_bins + bin]`.
    ///
    /// # Errors
    /// [`AudioError::MelFilters`] if a dimension is 0, the number of values is
    /// not their product, or a value is not finite.
    pub fn from_values(
        n_mels: usize,
        n_fft_bins: usize,
        values: Vec<f32>,
    ) -> Result<Self, AudioError> {
        if n_mels == 0 || n_fft_bins == 0 || n_mels.checked_mul(n_fft_bins) != Some(values.len()) {
            let len = values.len();
            let what =
                format!("{n_mels} mel bins by {n_fft_bins} frequency bins, but {len} values");
            return Err(AudioError::MelFilters { what });
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let (mel, bin) = (at / n_fft_bins, at % n_fft_bins);
            let what = format!("the weight of mel bin {mel}, frequency bin {bin} is not finite");
            return Err(AudioError::MelFilters { what });
        }
        let spans = spans_of(&values, n_fft_bins);
        Ok(Self { n_mels, n_fft_bins, values, spans })
    }

    /// Number of mel bins.
    pub fn n_mels(&self) -> usize {
        self.n_mels
    }

    /// Number of power bins that a row weighs.
    pub fn n_fft_bins(&self) -> usize {
        self.n_fft_bins
    }

    /// The weights, `[n_fft_bins, n_mels]` with the bins fastest.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Weighs the power bins of one frame into `out`, one value a mel bin.
    pub(super) fn apply(&self, power: &[f32], out: &mut [f32]) {
        let rows = self.values.chunks_exact(self.n_fft_bins);
        for ((out, row), &(from, to)) in out.iter_mut().zip(rows).zip(&self.spans) {
            *out = row[from..to].iter().zip(&power[from..to]).map(|(w, p)| w * p).sum();
        }
    }
}

fn spans_of(values: &[f32], n_fft_bins: usize) -> Vec<(usize, usize)> {
    values
        .chunks_exact(n_fft_bins)
        .map(|row| {
            let from = row.iter().position(|&weight| weight != 0.0).unwrap_or(0);
            let to = row.iter().rposition(|&weight| weight != 0.0).map_or(from, |last| last + 1);
            (from, to)
        })
        .collect()
}

fn hz_to_mel(hz: f64) -> f64 {
    if hz < BREAK_HZ { hz / LINEAR_HZ_PER_MEL } else { BREAK_MEL + (hz / BREAK_HZ).ln() / LOG_STEP }
}

fn mel_to_hz(mel: f64) -> f64 {
    if mel < BREAK_MEL {
        mel * LINEAR_HZ_PER_MEL
    } else {
        BREAK_HZ * ((mel - BREAK_MEL) * LOG_STEP).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_step_is_a_27th_of_ln_6_4() {
        assert_eq!(LOG_STEP, 6.4f64.ln() / 27.0);
    }

    #[test]
    fn wrong_banks_are_refused() {
        assert!(MelFilters::from_values(80, 201, vec![0.0; 80 * 200]).is_err());
        assert!(MelFilters::from_values(0, 201, vec![]).is_err());
        assert!(MelFilters::from_values(usize::MAX, 2, vec![0.0; 2]).is_err());
        assert!(MelFilters::from_values(1, 2, vec![0.0, f32::NAN]).is_err());
        assert!(MelFilters::from_values(1, 2, vec![0.0, 1.0]).is_ok());
    }
}
