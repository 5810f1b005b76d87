//! The same samples from a path, from memory and from a pipe.

use std::io::{self, Read};

use tensoryard_audio::{AudioReader, AudioSource, load_mono_16k};

use crate::support::assets;

/// A reader that gives few bytes at a time and is interrupted now and then.
struct Trickle {
    bytes: io::Cursor<Vec<u8>>,
    calls: usize,
}

impl Read for Trickle {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls.is_multiple_of(7) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = buf.len().min(1 + self.calls * 37 % 701);
        self.bytes.read(&mut buf[..len])
    }
}

#[test]
fn a_pipe_gives_the_samples_of_the_file() {
    let Some(assets) = assets("a_pipe_gives_the_samples_of_the_file") else { return };
    let files = [
        "123_stereo_24bit_44100.wav",
        "jfk.flac",
        "jfk.m4a",
        "jfk.mp3",
        "jfk.ogg",
        "jfk.opus",
        "jfk.webm",
    ];
    for file in files {
        let path = assets.join("audio/variants").join(file);
        let from_path = load_mono_16k(path.as_path()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let from_memory = load_mono_16k(bytes.clone()).unwrap();
        let trickle = Trickle { bytes: io::Cursor::new(bytes), calls: 0 };
        let from_pipe = load_mono_16k(AudioSource::stream("standard input", trickle)).unwrap();
        assert!(from_path == from_memory, "{file}: memory differs");
        assert_eq!(from_path.len(), from_pipe.len(), "{file}: pipe");
        assert!(from_path == from_pipe, "{file}: pipe differs");
    }
}

#[test]
fn two_hours_of_wav_stream_in_blocks() {
    // The header of two hours at 48 kHz, then the samples from a generator.
    let frames = 2 * 3600 * 48_000u64;
    let header = tensoryard_audio::wav_bytes_mono_s16(&[], 48_000);
    let mut header = header[..40].to_vec();
    header.extend_from_slice(&((frames * 2) as u32).to_le_bytes());
    let body = io::repeat(0x10).take(frames * 2);
    let mut reader =
        AudioReader::from_reader(io::Cursor::new(header).chain(body), "generator").unwrap();
    let mut samples = 0;
    let mut largest = 0;
    while let Some(block) = reader.next_block().unwrap() {
        samples += block.len() as u64;
        largest = largest.max(block.len());
    }
    assert_eq!(samples, frames);
    assert!(largest <= 65_536, "a block of {largest} samples");
}
