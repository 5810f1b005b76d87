//! Every clip of the manifest decodes, with the right length and content.

use tensoryard_audio::{AudioReader, LoadOptions, load_mono, load_mono_16k};

use crate::support::{assets, best_correlation, manifest, sha256_of_f32};

#[test]
fn every_clip_has_the_length_of_the_manifest() {
    let Some(assets) = assets("every_clip_has_the_length_of_the_manifest") else { return };
    for clip in manifest(&assets) {
        let mut reader = AudioReader::open(assets.join("audio").join(&clip.file)).unwrap();
        assert_eq!(reader.spec().sample_rate, clip.sample_rate, "{}", clip.file);
        assert_eq!(reader.spec().channels, clip.channels, "{}", clip.file);
        let hint = reader.duration();
        let mut samples = 0;
        while let Some(block) = reader.next_block().unwrap() {
            assert!(!block.is_empty());
            samples += block.len();
        }
        assert_eq!(samples % clip.channels, 0, "{}", clip.file);
        let seconds = samples as f64 / clip.channels as f64 / f64::from(clip.sample_rate);
        let lossless = clip.codec.starts_with("pcm") || clip.codec == "flac";
        // The manifest rounds to milliseconds.
        let tolerance = if lossless { 0.0006 } else { 0.060 };
        // These two are listed with the encoder's delay and padding, which is not speech.
        let expected = match clip.file.as_str() {
            "variants/jfk.mp3" | "variants/jfk_22050.mp3" => 11.0,
            _ => clip.seconds,
        };
        let error = seconds - expected;
        eprintln!("{} {} {seconds:.4} s ({error:+.4})", clip.file, reader.codec());
        assert!(error.abs() <= tolerance, "{}: {seconds} s, not {expected} s", clip.file);
        if let Some(hint) = hint {
            let error = hint.as_secs_f64() - seconds;
            assert!(error.abs() < 0.1, "{}: header says {hint:?}, is {seconds} s", clip.file);
        }
        let stats = reader.stats();
        assert_eq!((stats.damaged_packets, stats.truncated), (0, false), "{}", clip.file);
    }
}

#[test]
fn gapless_variants_have_exactly_the_original_length() {
    let Some(assets) = assets("gapless_variants_have_exactly_the_original_length") else { return };
    for file in ["jfk.flac", "jfk.m4a", "jfk.ogg", "jfk.opus"] {
        let samples = load_mono_16k(assets.join("audio/variants").join(file)).unwrap();
        assert!(samples.len().abs_diff(176_000) <= 1, "{file}: {} samples", samples.len());
    }
}

#[test]
fn samples_of_16_bit_wav_are_the_golden_ones() {
    let Some(assets) = assets("samples_of_16_bit_wav_are_the_golden_ones") else { return };
    let mut checked = 0;
    for entry in std::fs::read_dir(assets.join("golden/whisper")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let Some((_, clip)) = stem.split_once("__").filter(|_| path.extension().unwrap() == "json")
        else {
            continue;
        };
        let golden: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let candidates = [format!("audio/{clip}.wav"), format!("audio/hard/{clip}.wav")];
        let wav = candidates.iter().map(|name| assets.join(name)).find(|p| p.is_file()).unwrap();
        let samples = load_mono_16k(wav).unwrap();
        assert_eq!(samples.len() as u64, golden["n_samples"].as_u64().unwrap(), "{clip}");
        assert_eq!(sha256_of_f32(&samples), golden["pcm_f32_sha256"].as_str().unwrap(), "{clip}");
        checked += 1;
    }
    assert!(checked >= 12, "only {checked} goldens");
}

#[test]
fn variants_sound_like_the_original() {
    let Some(assets) = assets("variants_sound_like_the_original") else { return };
    // Low-rate Opus delays speech by a fraction of a sample at 16 kHz, so lags are compared
    // at 48 kHz; 24 samples are half a millisecond.
    let load = |file: &str| {
        let options = LoadOptions::new().sample_rate(48_000);
        load_mono(assets.join("audio").join(file), options).unwrap().samples
    };
    let original = load("en_jfk.wav");
    let variants = [
        ("jfk.flac", 1.0),
        ("jfk.m4a", 0.999),
        ("jfk.mp3", 0.999),
        ("jfk.ogg", 0.99),
        ("jfk.opus", 0.98),
        ("jfk.webm", 0.98),
        ("jfk_22050.mp3", 0.98),
        ("jfk_48000_f32.wav", 0.98),
        ("jfk_8k_mulaw.wav", 0.98),
    ];
    for (file, least) in variants {
        let samples = load(&format!("variants/{file}"));
        let (correlation, lag) = best_correlation(&samples, &original, 24);
        eprintln!("{file}: correlation {correlation:.5} at lag {lag}");
        assert!(correlation >= least - 1e-9, "{file}: correlation {correlation} at lag {lag}");
        assert!(lag.abs() <= 3, "{file}: correlation {correlation} at lag {lag}");
    }
}

#[test]
fn containers_and_codecs_are_named() {
    let Some(assets) = assets("containers_and_codecs_are_named") else { return };
    let named = [
        ("jfk.flac", "FLAC", "flac"),
        ("jfk.m4a", "MP4", "aac"),
        ("jfk.mp3", "MP3", "mp3"),
        ("jfk.ogg", "Ogg", "vorbis"),
        ("jfk.opus", "Ogg", "opus"),
        ("jfk.webm", "Matroska", "opus"),
        ("jfk_8k_mulaw.wav", "WAV", "pcm_mulaw"),
        ("123_mono_8bit_44100.wav", "WAV", "pcm_u8"),
    ];
    for (file, container, codec) in named {
        let reader = AudioReader::open(assets.join("audio/variants").join(file)).unwrap();
        assert_eq!((reader.container(), reader.codec()), (container, codec), "{file}");
    }
}
