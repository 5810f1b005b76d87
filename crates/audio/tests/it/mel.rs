//! The log-mel spectrogram against the goldens of the original.

use tensoryard_audio::{
    AudioError, LogMel, MelFilters, MelSpectrogram, N_FFT_BINS, WINDOW_FRAMES, load_mono_16k,
};

use crate::support::{Array, assets, noise, safetensors};

fn log_mel(n_mels: usize) -> LogMel {
    LogMel::new(MelFilters::slaney(n_mels)).unwrap()
}

/// Largest difference to a golden `[n_mels, n_columns]` array, frames fastest.
fn max_error(mel: &MelSpectrogram, golden: &Array, frame_of: impl Fn(usize) -> usize) -> f32 {
    let columns = golden.shape[1];
    let mut worst = 0.0f32;
    for bin in 0..golden.shape[0] {
        for column in 0..columns {
            let ours = mel.frame(frame_of(column))[bin];
            worst = worst.max((ours - golden.data[bin * columns + column]).abs());
        }
    }
    worst
}

#[test]
fn filter_banks_are_the_golden_ones() {
    let Some(assets) = assets("filter_banks_are_the_golden_ones") else { return };
    let (golden, _) = safetensors(&assets.join("golden/whisper/mel_filters.safetensors"));
    for n_mels in [80, 128] {
        let golden = &golden[&format!("mel_{n_mels}")];
        assert_eq!(golden.shape, [n_mels, N_FFT_BINS]);
        let ours = MelFilters::slaney(n_mels);
        let worst = ours.values().iter().zip(&golden.data).map(|(a, b)| (a - b).abs());
        let worst = worst.fold(0.0, f32::max);
        eprintln!("{n_mels} mels: {worst:e}");
        assert!(worst <= 1e-8, "{n_mels} mels: {worst:e}");
    }
}

#[test]
fn window_of_30_s_is_the_golden_one() {
    let Some(assets) = assets("window_of_30_s_is_the_golden_one") else { return };
    let mel = log_mel(80);
    let mut checked = 0;
    for entry in std::fs::read_dir(assets.join("golden/whisper")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let Some((_, clip)) =
            stem.split_once("__").filter(|_| path.extension().unwrap() == "safetensors")
        else {
            continue;
        };
        let candidates = [format!("audio/{clip}.wav"), format!("audio/hard/{clip}.wav")];
        let wav = candidates.iter().map(|name| assets.join(name)).find(|p| p.is_file()).unwrap();
        let ours = mel.window_30s(&load_mono_16k(wav).unwrap(), 1);
        assert_eq!((ours.n_mels(), ours.n_frames()), (80, WINDOW_FRAMES));
        let (golden, metadata) = safetensors(&path);
        let worst = match (golden.get("mel"), golden.get("mel_cols")) {
            (Some(whole), _) => {
                eprintln!("{stem}: metadata {metadata}");
                let last = whole.data[whole.shape[1] - 1];
                for frame in whole.shape[1]..WINDOW_FRAMES {
                    for value in ours.frame(frame) {
                        assert!((value - last).abs() <= 1e-4, "{stem}: frame {frame} is {value}");
                    }
                }
                max_error(&ours, whole, |column| column)
            }
            (None, Some(columns)) => {
                assert_eq!(columns.shape, [80, 120]);
                max_error(&ours, columns, |column| column * 25)
            }
            (None, None) => panic!("{stem}: no mel in the golden"),
        };
        eprintln!("{stem}: {worst:e}");
        assert!(worst <= 1e-4, "{stem}: {worst:e}");
        checked += 1;
    }
    assert!(checked >= 12, "only {checked} goldens");
}

#[test]
fn recording_is_the_window_before_the_silence() {
    let samples: Vec<f32> = noise(50_000, 3).iter().map(|x| x * 0.1).collect();
    let mel = log_mel(80);
    let recording = mel.recording(&samples, 1);
    assert_eq!(recording.n_frames(), 50_000 / 160);
    let window = mel.window_30s(&samples, 1);
    for frame in 0..recording.n_frames() {
        assert_eq!(recording.frame(frame), window.frame(frame), "frame {frame}");
    }
    let cut = recording.window(300, 20);
    assert_eq!(cut.len(), 20 * 80);
    assert_eq!(cut[..80], *recording.frame(300));
    assert!(cut[12 * 80..].iter().all(|&value| value == 0.0));
    assert!(recording.window(1000, 2).iter().all(|&value| value == 0.0));
}

/// The definition, in f64, with a plain Fourier sum.
fn reference(samples: &[f32], padding: usize) -> Vec<f64> {
    let filters = MelFilters::slaney(80);
    let mut audio: Vec<f64> = samples.iter().map(|&x| f64::from(x)).collect();
    audio.resize(samples.len() + padding, 0.0);
    let total = audio.len() as i64;
    let mirrored = |mut at: i64| {
        while at < 0 || at >= total {
            at = if at < 0 { -at } else { 2 * (total - 1) - at };
        }
        audio[at as usize]
    };
    let mut out = Vec::new();
    for frame in 0..audio.len() / 160 {
        let cut: Vec<f64> = (0..400)
            .map(|n| {
                let hann = (std::f64::consts::PI * n as f64 / 400.0).sin().powi(2);
                hann * mirrored(frame as i64 * 160 + n - 200)
            })
            .collect();
        let power: Vec<f64> = (0..201)
            .map(|bin| {
                let (mut re, mut im) = (0.0, 0.0);
                for (n, x) in cut.iter().enumerate() {
                    let phase = std::f64::consts::TAU * ((bin * n) % 400) as f64 / 400.0;
                    re += x * phase.cos();
                    im -= x * phase.sin();
                }
                re * re + im * im
            })
            .collect();
        for row in filters.values().chunks_exact(201) {
            let sum: f64 = row.iter().zip(&power).map(|(&w, p)| f64::from(w) * p).sum();
            out.push(sum.max(1e-10).log10());
        }
    }
    let floor = out.iter().copied().fold(f64::NEG_INFINITY, f64::max) - 8.0;
    out.iter().map(|value| (value.max(floor) + 4.0) / 4.0).collect()
}

#[test]
fn values_follow_the_definition_at_both_edges() {
    let mel = log_mel(80);
    for (len, padding) in [
        (160, 0),
        (201, 0),
        (1000, 0),
        (1000, 160),
        (1000, 399),
        (1000, 400),
        (777, 2000),
        (0, 800),
    ] {
        let samples: Vec<f32> = noise(len, 11).iter().map(|x| x * 0.3).collect();
        let ours = mel.compute(&samples, padding, 1);
        let reference = reference(&samples, padding);
        assert_eq!(ours.data().len(), reference.len(), "{len} + {padding}");
        for (at, (a, b)) in ours.data().iter().zip(&reference).enumerate() {
            let error = (f64::from(*a) - b).abs();
            assert!(error < 2e-5, "{len} + {padding}: value {at} is {a}, not {b}");
        }
    }
}

#[test]
fn short_audio_has_a_defined_spectrogram() {
    let mel = log_mel(80);
    // Power below 1e-10 everywhere gives (-10 + 4) / 4.
    for samples in [&[][..], &[0.0], &[0.0; 1584]] {
        let window = mel.window_30s(samples, 1);
        assert_eq!(window.n_frames(), WINDOW_FRAMES);
        assert!(window.data().iter().all(|&value| value == -1.5), "{} zeros", samples.len());
        assert_eq!(mel.recording(samples, 1).n_frames(), samples.len() / 160);
    }
    assert_eq!(mel.compute(&[], 0, 4).n_frames(), 0);
    assert_eq!(mel.compute(&[0.5], 0, 1).n_frames(), 0);
    let one = mel.window_30s(&[0.5], 1);
    assert!(one.frame(0)[0] > one.frame(3)[0]);
    let short = mel.window_30s(&noise(1584, 5), 1);
    assert!(short.data().iter().all(|value| value.is_finite()));
}

#[test]
fn samples_that_are_not_finite_count_as_silence() {
    let mut samples = noise(16_000, 9);
    let mut clean = samples.clone();
    for (at, value) in [(10, f32::NAN), (8000, f32::INFINITY), (15_999, f32::NEG_INFINITY)] {
        samples[at] = value;
        clean[at] = 0.0;
    }
    let mel = log_mel(80);
    assert_eq!(mel.window_30s(&samples, 1), mel.window_30s(&clean, 1));
}

#[test]
fn threads_do_not_change_the_values() {
    let samples = noise(400_000, 2);
    let mel = log_mel(128);
    let one = mel.recording(&samples, 1);
    for threads in [0, 2, 3, 7, 1000] {
        assert!(mel.recording(&samples, threads) == one, "{threads} threads");
    }
}

#[test]
fn a_bank_of_other_size_is_refused() {
    let bank = MelFilters::from_values(80, 257, vec![0.1; 80 * 257]).unwrap();
    assert!(matches!(LogMel::new(bank), Err(AudioError::MelFilters { .. })));
    let own = MelFilters::slaney(80);
    let copied = MelFilters::from_values(80, N_FFT_BINS, own.values().to_vec()).unwrap();
    let samples = noise(3200, 1);
    let (a, b) = (LogMel::new(own).unwrap(), LogMel::new(copied).unwrap());
    assert_eq!(a.window_30s(&samples, 1), b.window_30s(&samples, 1));
}
