//! Any bytes as an audio file, in memory and as a stream: an error or blocks of
//! whole frames with finite samples, and never more than the limit.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use tensoryard_audio::{AudioReader, AudioSource, LoadOptions, load_mono};

/// One minute at 16 kHz.
const LIMIT: u64 = 60 * 16_000;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut reader) = AudioReader::from_bytes(bytes.to_vec()) {
        let _ = (reader.duration(), reader.container(), reader.codec().len());
        let mut samples = 0;
        while let Ok(Some(block)) = reader.next_block() {
            assert!(!block.is_empty() && block.iter().all(|sample| sample.is_finite()));
            let len = block.len();
            assert!(len.is_multiple_of(reader.spec().channels));
            samples += len as u64;
            if samples > LIMIT {
                break;
            }
        }
        let stats = reader.stats();
        assert!(samples == 0 || stats.decoded_packets > 0);
    }
    let stream = AudioSource::stream("fuzz", Cursor::new(bytes.to_vec()));
    if let Ok(loaded) = load_mono(stream, LoadOptions::new().max_samples(LIMIT)) {
        assert!(loaded.samples.len() as u64 <= LIMIT);
        assert!(loaded.samples.iter().all(|sample| sample.is_finite()));
    }
});
