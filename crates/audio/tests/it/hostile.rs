//! Cut and damaged files: an error or fewer samples, never a panic, a hang or
//! a large allocation.

use tensoryard_audio::{AudioReader, LoadOptions, load_mono, wav_bytes_mono_s16};

use crate::support::{WavBuilder, assets, noise};

/// Decodes at most a minute; says how many samples there were.
fn try_decode(bytes: Vec<u8>) -> Result<usize, String> {
    let options = LoadOptions::new().max_samples(60 * 16_000);
    load_mono(bytes, options).map(|loaded| loaded.samples.len()).map_err(|error| error.to_string())
}

/// Peak memory of this process in KiB, where the system tells.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

#[test]
fn every_cut_of_a_wav_file_is_an_error_or_a_prefix() {
    let wav = WavBuilder::new()
        .chunk(b"JUNK", &[0; 13])
        .format(1, 2, 22050, 24)
        .chunk(b"LIST", b"INFOISFT\x05\0\0\0Lavf5\0")
        .chunk(b"data", &[0x35; 6 * 40])
        .build();
    let mut longest = 0;
    for len in 0..=wav.len() {
        let samples = try_decode(wav[..len].to_vec()).unwrap_or(0);
        assert!(samples >= longest, "{len} bytes give {samples} samples");
        longest = samples;
    }
    assert_eq!(longest, (40 * 16000usize).div_ceil(22050));
}

#[test]
fn damaged_wav_files_do_no_harm() {
    let wav = wav_bytes_mono_s16(&noise(300, 4), 16000);
    let mut random = Random(1);
    for round in 0..20_000 {
        let mut bytes = wav.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(60);
            bytes[at] = random.below(256) as u8;
        }
        let samples = try_decode(bytes).unwrap_or(0);
        assert!(samples <= 600 * 16, "round {round}: {samples} samples");
    }
}

#[test]
fn cut_and_damaged_clips_do_no_harm() {
    let Some(assets) = assets("cut_and_damaged_clips_do_no_harm") else { return };
    let files = ["jfk.flac", "jfk.m4a", "jfk.mp3", "jfk.ogg", "jfk.opus", "jfk.webm"];
    let rounds: usize =
        std::env::var("TENSORYARD_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    for file in files {
        let whole = std::fs::read(assets.join("audio/variants").join(file)).unwrap();
        let clip = &whole[..whole.len().min(24_000)];
        let mut random = Random(file.len() as u64);
        for round in 0..rounds {
            let len = match round % 3 {
                0 => random.below(2000),
                _ => random.below(clip.len()),
            };
            let _ = try_decode(clip[..len].to_vec());
            let mut bytes = clip.to_vec();
            let reach = if round % 2 == 0 { 1500.min(bytes.len()) } else { bytes.len() };
            for _ in 0..1 + random.below(8) {
                let at = random.below(reach);
                bytes[at] ^= 1 << random.below(8);
            }
            let _ = try_decode(bytes);
        }
    }
    let peak = peak_kib();
    assert!(peak < 700 * 1024, "peak memory {peak} KiB");
}

#[test]
fn damage_in_the_middle_is_skipped() {
    let Some(assets) = assets("damage_in_the_middle_is_skipped") else { return };
    for file in ["jfk.mp3", "jfk.flac", "jfk.ogg", "jfk.opus", "jfk.webm", "jfk.m4a"] {
        let mut bytes = std::fs::read(assets.join("audio/variants").join(file)).unwrap();
        let middle = bytes.len() / 2;
        for (n, byte) in bytes[middle..middle + 1500].iter_mut().enumerate() {
            *byte = (n * 131 % 251) as u8;
        }
        let mut reader = AudioReader::from_bytes(bytes).unwrap();
        let mut frames = 0;
        while let Some(block) = reader.next_block().unwrap() {
            frames += block.len();
        }
        let seconds = frames as f64 / f64::from(reader.spec().sample_rate);
        eprintln!("{file}: {seconds:.2} s, {:?}", reader.stats());
        // The Matroska demuxer does not find its place again after damage between packets.
        let least = if file == "jfk.webm" { 5.5 } else { 9.0 };
        assert!((least..11.3).contains(&seconds), "{file}: {seconds} s");
        // The other demuxers drop broken frames by their checksum, without a word.
        if matches!(file, "jfk.m4a" | "jfk.webm") {
            assert!(reader.stats().damaged_packets > 0, "{file}: {:?}", reader.stats());
        }
    }
}
