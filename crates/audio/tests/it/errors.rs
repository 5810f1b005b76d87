//! What a caller is told about a file that cannot be transcribed.

use std::io::{self, Read};

use tensoryard_audio::{
    AudioError, AudioReader, LoadOptions, load_mono, load_mono_16k, wav_bytes_mono_s16,
};

use crate::support::{assets, noise};

fn error_of(bytes: &[u8]) -> AudioError {
    match AudioReader::from_bytes(bytes.to_vec()) {
        Ok(_) => panic!("accepted {} bytes", bytes.len()),
        Err(error) => error,
    }
}

#[test]
fn files_that_are_not_audio_are_named() {
    assert!(matches!(error_of(b""), AudioError::Empty { .. }));
    let html = b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>";
    assert!(error_of(html).to_string().contains("an HTML page"));
    assert!(
        error_of("Ein Text f\u{fc}r alle F\u{e4}lle.".as_bytes())
            .to_string()
            .contains("a text file")
    );
    assert!(error_of(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").to_string().contains("a PNG image"));
    assert!(error_of(b"PK\x03\x04\x14\0\0\0").to_string().contains("a ZIP archive"));
    assert!(matches!(error_of(&[0; 4096]), AudioError::UnknownFormat { .. }));
    assert!(matches!(error_of(b"\0\x01"), AudioError::UnknownFormat { .. }));
}

#[test]
fn paths_are_named() {
    let Err(error) = AudioReader::open("/nonexistent/speech.wav") else { panic!("accepted") };
    assert!(error.to_string().starts_with("/nonexistent/speech.wav: cannot open"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let Err(error) = AudioReader::open(dir.path()) else { panic!("accepted") };
    assert!(error.to_string().contains("a directory"), "{error}");
}

#[test]
fn headers_without_audio_are_errors() {
    let Some(assets) = assets("headers_without_audio_are_errors") else { return };
    for (file, keep) in [
        ("jfk.flac", 100),
        ("jfk.ogg", 4300),
        ("jfk.opus", 700),
        ("jfk.webm", 400),
        ("jfk.m4a", 2000),
    ] {
        let bytes = std::fs::read(assets.join("audio/variants").join(file)).unwrap();
        let error = match load_mono_16k(bytes[..keep].to_vec()) {
            Err(error) => error.to_string(),
            // A few packets may fit.
            Ok(samples) => {
                assert!(samples.len() < 16000, "{file}: {} samples", samples.len());
                continue;
            }
        };
        eprintln!("{file} cut at {keep}: {error}");
        assert!(error.starts_with("memory: "), "{error}");
    }
}

/// Gives some bytes and then fails.
struct Broken(io::Cursor<Vec<u8>>);

impl Read for Broken {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(io::Error::new(io::ErrorKind::ConnectionReset, "the line is dead")),
            n => Ok(n),
        }
    }
}

#[test]
fn a_reader_that_fails_is_not_taken_for_a_short_file() {
    let bytes = wav_bytes_mono_s16(&noise(16000, 1), 16000);
    let result =
        AudioReader::from_reader(Broken(io::Cursor::new(bytes[..2000].to_vec())), "line 1");
    let Err(AudioError::Read { name, source }) = result.map(|_| ()) else {
        panic!("no read error")
    };
    assert_eq!((name.as_str(), source.kind()), ("line 1", io::ErrorKind::ConnectionReset));

    let Some(assets) = assets("a_reader_that_fails_is_not_taken_for_a_short_file") else { return };
    for file in ["jfk.flac", "jfk.mp3", "jfk.ogg", "jfk.opus", "jfk.webm", "jfk.m4a"] {
        let bytes = std::fs::read(assets.join("audio/variants").join(file)).unwrap();
        let source = Broken(io::Cursor::new(bytes[..20_000].to_vec()));
        let result = load_mono_16k(tensoryard_audio::AudioSource::stream("line 2", source));
        assert!(matches!(result, Err(AudioError::Read { .. })), "{file}: {result:?}");
    }
}

#[test]
fn the_limit_of_samples_is_kept() {
    let bytes = wav_bytes_mono_s16(&vec![0.1; 16000], 8000);
    let within = load_mono(bytes.clone(), LoadOptions::new().max_samples(32_000)).unwrap();
    assert_eq!(within.samples.len(), 32_000);
    let beyond = load_mono(bytes, LoadOptions::new().max_samples(31_999));
    assert!(matches!(beyond, Err(AudioError::TooLong { limit: 31_999, rate: 16_000, .. })));
}

#[test]
fn an_endless_stream_ends_at_the_limit() {
    let mut header = wav_bytes_mono_s16(&[], 16_000);
    header[40..44].fill(0xff);
    let endless = io::Cursor::new(header).chain(io::repeat(0));
    let source = tensoryard_audio::AudioSource::stream("radio", endless);
    let error = load_mono(source, LoadOptions::new().max_samples(100_000)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "radio: the audio is longer than the limit of 100000 samples, 6.2 s at 16000 Hz"
    );
    // The limit of callers who set none: a day.
    assert_eq!(LoadOptions::default().max_samples, Some(24 * 3600 * 16_000));
    assert_eq!(LoadOptions::new().without_limit().max_samples, None);
}

#[test]
fn a_rate_that_cannot_be_converted_to_is_refused_before_anything_is_read() {
    let bytes = wav_bytes_mono_s16(&[0.0; 10], 8000);
    for rate in [0, 999, u32::MAX] {
        let error = load_mono(bytes.clone(), LoadOptions::new().sample_rate(rate));
        assert!(matches!(error, Err(AudioError::SampleRate { .. })), "{rate}: {error:?}");
    }
}
