//! The resampler against ideal sines.

use std::f64::consts::TAU;

use tensoryard_audio::{AudioError, Resampler};

use crate::support::noise;

fn sine(hz: f64, rate: u32, seconds: f64) -> Vec<f32> {
    let n = (f64::from(rate) * seconds) as usize;
    (0..n).map(|k| (0.5 * (TAU * hz * k as f64 / f64::from(rate)).sin()) as f32).collect()
}

fn convert(input: &[f32], from: u32, to: u32, block: usize) -> Vec<f32> {
    let mut resampler = Resampler::new(from, to).unwrap();
    let mut out = Vec::new();
    for block in input.chunks(block) {
        resampler.push(block, &mut out).unwrap();
    }
    resampler.finish(&mut out).unwrap();
    out
}

/// Signal to noise against the ideal sine, in dB, 50 ms away from the edges.
fn snr(out: &[f32], hz: f64, rate: u32) -> f64 {
    let edge = rate as usize / 20;
    let (mut signal, mut error) = (0.0, 0.0);
    for (k, &x) in out.iter().enumerate().take(out.len() - edge).skip(edge) {
        let ideal = 0.5 * (TAU * hz * k as f64 / f64::from(rate)).sin();
        signal += ideal * ideal;
        error += (f64::from(x) - ideal).powi(2);
    }
    10.0 * (signal / error.max(1e-30)).log10()
}

#[test]
fn sines_keep_their_phase_and_amplitude() {
    let rates = [8000, 11025, 12000, 22050, 24000, 32000, 44100, 48000, 88200, 96000, 192_000];
    for rate in rates {
        for hz in [100.0, 1000.0, 3400.0] {
            let out = convert(&sine(hz, rate, 0.5), rate, 16000, 1000);
            assert_eq!(out.len(), 8000, "{rate} Hz");
            let snr = snr(&out, hz, 16000);
            eprintln!("{hz} Hz at {rate} Hz: {snr:.1} dB");
            assert!(snr > 90.0, "{hz} Hz at {rate} Hz: {snr:.1} dB");
        }
    }
}

#[test]
fn unusual_rates_are_close_enough() {
    for rate in [7919, 44099, 47999] {
        let out = convert(&sine(1000.0, rate, 0.5), rate, 16000, 777);
        let snr = snr(&out, 1000.0, 16000);
        eprintln!("{rate} Hz: {snr:.1} dB");
        assert!(snr > 60.0, "{rate} Hz: {snr:.1} dB");
    }
    let out = convert(&sine(1000.0, 16000, 0.5), 16000, 44100, 777);
    assert!(snr(&out, 1000.0, 44100) > 90.0);
}

#[test]
fn tones_above_half_the_output_rate_vanish() {
    for (hz, rate) in
        [(10_000.0, 48000), (9000.0, 48000), (12_000.0, 44100), (8300.0, 22050), (20_000.0, 96000)]
    {
        let out = convert(&sine(hz, rate, 0.5), rate, 16000, 4096);
        let middle = &out[800..7200];
        let power = middle.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / middle.len() as f64;
        let db = 10.0 * (power / 0.125).max(1e-30).log10();
        eprintln!("{hz} Hz at {rate} Hz: {db:.1} dB");
        assert!(db < -90.0, "{hz} Hz at {rate} Hz leaves {db:.1} dB");
    }
}

#[test]
fn speech_band_passes_flat() {
    for rate in [22050, 44100, 48000] {
        let out = convert(&sine(7000.0, rate, 0.5), rate, 16000, 4096);
        assert!(snr(&out, 7000.0, 16000) > 60.0, "7 kHz at {rate} Hz");
    }
}

#[test]
fn length_is_exact_and_does_not_depend_on_blocks() {
    for (from, to) in
        [(48000, 16000), (44100, 16000), (8000, 16000), (22050, 16000), (16000, 16000)]
    {
        for n in [0, 1, 2, 3, 159, 1023, 1024, 1025, 5000] {
            let input = noise(n, 7);
            let expected = (n * to as usize).div_ceil(from as usize);
            let whole = convert(&input, from, to, n.max(1));
            assert_eq!(whole.len(), expected, "{n} samples from {from} Hz");
            assert_eq!(whole, convert(&input, from, to, 61), "{n} samples from {from} Hz");
        }
    }
}

#[test]
fn an_impulse_stays_where_it_is() {
    for rate in [8000, 44100, 48000] {
        let mut input = vec![0.0; rate as usize];
        input[rate as usize / 2] = 1.0;
        let out = convert(&input, rate, 16000, 1024);
        let peak = (0..out.len()).max_by(|&a, &b| out[a].abs().total_cmp(&out[b].abs()));
        assert_eq!(peak, Some(8000), "{rate} Hz");
    }
}

#[test]
fn rates_out_of_range_are_errors() {
    for rate in [0, 999, 1_536_001, u32::MAX] {
        assert!(matches!(Resampler::new(rate, 16000), Err(AudioError::SampleRate { .. })));
        assert!(matches!(Resampler::new(16000, rate), Err(AudioError::SampleRate { .. })));
    }
}
