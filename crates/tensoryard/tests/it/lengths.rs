//! Recordings of awkward lengths and content.

use std::path::Path;

use tensoryard::speech::Transcript;

use crate::support::{assets, samples, speech_model};

/// Speech repeated or cut to a number of samples.
fn speech(assets: &Path, n_samples: usize) -> Vec<f32> {
    samples(assets, "en_jfk.wav").into_iter().cycle().take(n_samples).collect()
}

fn assert_in_order(transcript: &Transcript) {
    let mut last = 0.0;
    for (id, segment) in transcript.segments.iter().enumerate() {
        assert_eq!(segment.id, id);
        assert!(segment.start >= last - 1e-9 && segment.start < segment.end, "{segment:?}");
        assert!(segment.end <= transcript.duration_seconds + 1e-9, "{segment:?}");
        last = segment.end;
    }
    assert_eq!(transcript.processed_seconds, transcript.duration_seconds);
}

#[test]
fn less_than_a_tenth_of_a_second_gives_no_text() {
    let test = "less_than_a_tenth_of_a_second_gives_no_text";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    for n_samples in [0, 1, 159, 160, 1584] {
        let transcript = transcriber.transcribe(&speech(&assets, n_samples)).unwrap();
        assert_eq!((transcript.text.as_str(), transcript.segments.len()), ("", 0), "{n_samples}");
        assert_eq!(transcript.duration_seconds, (n_samples / 160) as f64 / 100.0);
        assert_in_order(&transcript);
    }
}

#[test]
fn short_recordings_are_transcribed() {
    let test = "short_recordings_are_transcribed";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    for n_samples in [1600, 12_800] {
        let transcript = transcriber.transcribe(&speech(&assets, n_samples)).unwrap();
        assert_eq!(transcript.duration_seconds, n_samples as f64 / 16_000.0);
        assert_in_order(&transcript);
    }
}

#[test]
fn the_length_of_a_window_is_no_edge() {
    let test = "the_length_of_a_window_is_no_edge";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    for n_samples in [478_400, 480_000, 481_600] {
        let transcript = transcriber.transcribe(&speech(&assets, n_samples)).unwrap();
        assert_eq!(transcript.duration_seconds, n_samples as f64 / 16_000.0);
        let heard = transcript.text.matches("fellow Americans").count();
        assert_eq!(heard, 3, "{n_samples}: {}", transcript.text);
        assert_in_order(&transcript);
    }
}

#[test]
fn silence_and_faint_noise_give_no_words() {
    let test = "silence_and_faint_noise_give_no_words";
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    let mut seed = 1_u32;
    let noise: Vec<f32> = (0..160_000)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Uniform with a root mean square of 1e-3, which is -60 dB.
            (seed as f32 / u32::MAX as f32 - 0.5) * 12_f32.sqrt() * 1e-3
        })
        .collect();
    for (name, samples) in [
        ("1.2 s of zeros", vec![0.0; 19_200]),
        ("12 s of zeros", vec![0.0; 192_000]),
        ("noise of -60 dB", noise),
    ] {
        let transcript = transcriber.transcribe(&samples).unwrap();
        // The model takes faint noise for a row of full stops and is sure of it, so that the
        // rule of no speech keeps them.
        let is_word = |c: char| c.is_alphanumeric();
        assert!(!transcript.text.contains(is_word), "{name}: {}", transcript.text);
        assert!(name.starts_with("noise") || transcript.text.is_empty(), "{name}");
        assert_in_order(&transcript);
    }
}

#[test]
fn samples_that_are_no_numbers_count_as_silence() {
    let test = "samples_that_are_no_numbers_count_as_silence";
    let Some(assets) = assets(test) else { return };
    let Some(model) = speech_model(test) else { return };
    let mut transcriber = model.transcriber().unwrap();
    let mut samples = speech(&assets, 176_000);
    samples.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY].iter().cycle().take(16_000));
    let transcript = transcriber.transcribe(&samples).unwrap();
    assert!(transcript.text.contains("fellow Americans"), "{}", transcript.text);
    assert_in_order(&transcript);
}
