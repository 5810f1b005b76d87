//! Containers and streams that the clips do not cover, made here.

use opus_pure::{Application, MAX_PACKET_BYTES, OggOpusWriter, OpusEncoder, OpusHead};
use tensoryard_audio::{AudioError, AudioReader, load_mono_16k};

use crate::support::{WavBuilder, assets, best_correlation, format_body, noise};

/// An AIFF or AIFC file: `kind` is the compression of an AIFC file.
fn aiff(kind: Option<&[u8; 4]>, channels: u16, bits: u16, frames: u32, data: &[u8]) -> Vec<u8> {
    let chunk = |id: &[u8; 4], body: &[u8]| {
        let mut out = id.to_vec();
        out.extend_from_slice(&(body.len() as u32).to_be_bytes());
        out.extend_from_slice(body);
        out.resize(out.len().next_multiple_of(2), 0);
        out
    };
    let mut common = channels.to_be_bytes().to_vec();
    common.extend_from_slice(&frames.to_be_bytes());
    common.extend_from_slice(&bits.to_be_bytes());
    // 16000 as an 80-bit float: 2^13 times 1.953125.
    common.extend_from_slice(&[0x40, 0x0c, 0xfa, 0, 0, 0, 0, 0, 0, 0]);
    if let Some(kind) = kind {
        common.extend_from_slice(kind);
        common.extend_from_slice(&[0, 0]);
    }
    let sound = [&[0; 8], data].concat();
    let form = if kind.is_some() { b"AIFC" } else { b"AIFF" };
    chunk(b"FORM", &[form.to_vec(), chunk(b"COMM", &common), chunk(b"SSND", &sound)].concat())
}

#[test]
fn aiff_files_decode() {
    let data: Vec<u8> = [16384i16, 0, -32768, 16384].iter().flat_map(|s| s.to_be_bytes()).collect();
    assert_eq!(load_mono_16k(aiff(None, 2, 16, 2, &data)).unwrap(), [0.25, -0.25]);
    let data: Vec<u8> = [0.5f32, -0.25].iter().flat_map(|s| s.to_be_bytes()).collect();
    assert_eq!(load_mono_16k(aiff(Some(b"fl32"), 1, 32, 2, &data)).unwrap(), [0.5, -0.25]);
    let reader = AudioReader::from_bytes(aiff(None, 1, 16, 1, &[1, 0])).unwrap();
    assert_eq!((reader.container(), reader.codec()), ("AIFF", "pcm_s16be"));
    assert!(load_mono_16k(aiff(None, 1, 16, 0, &[])).unwrap().is_empty());
}

/// An Opus file that holds exactly `pcm`, after RFC 7845 §4.4.
fn opus_file(pcm: &[f32], channels: usize) -> Vec<u8> {
    let mut encoder = OpusEncoder::new(48_000, channels, Application::Audio).unwrap();
    encoder.bitrate_bps = 96_000 * channels as i32;
    let head = OpusHead::for_encoder(&encoder, 48_000);
    let pre_skip = u64::from(head.pre_skip);
    let mut writer = OggOpusWriter::new(Vec::new(), head).unwrap();
    let final_granule = pre_skip + (pcm.len() / channels) as u64;
    let frames = final_granule.div_ceil(960) as usize;
    let mut padded = pcm.to_vec();
    padded.resize(frames * 960 * channels, 0.0);
    let mut packet = vec![0; MAX_PACKET_BYTES];
    for (at, block) in padded.chunks_exact(960 * channels).enumerate() {
        let n = encoder.encode(block, 960, &mut packet).unwrap();
        if at + 1 == frames {
            let duration = final_granule - writer.granule() as u64;
            writer.write_packet_with_duration(&packet[..n], duration as u32).unwrap();
        } else {
            writer.write_packet(&packet[..n]).unwrap();
        }
    }
    writer.finish().unwrap()
}

fn decode(bytes: Vec<u8>) -> (Vec<f32>, AudioReader) {
    let mut reader = AudioReader::from_bytes(bytes).unwrap();
    let mut out = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        out.extend_from_slice(block);
    }
    (out, reader)
}

/// A sweep over the voice band, different in each channel.
fn sweep(frames: usize, channels: usize) -> Vec<f32> {
    let value = |frame: usize, channel: usize| {
        let t = frame as f32 / 48_000.0;
        0.4 * (std::f32::consts::TAU * (200.0 + 500.0 * t) * t * (channel + 1) as f32).sin()
    };
    (0..frames * channels).map(|at| value(at / channels, at % channels)).collect()
}

#[test]
fn opus_length_is_that_of_the_granule_position() {
    for (frames, channels) in [(1, 1), (500, 1), (960, 2), (48_000, 2), (50_001, 1)] {
        let pcm = sweep(frames, channels);
        let (samples, reader) = decode(opus_file(&pcm, channels));
        assert_eq!(reader.spec().channels, channels);
        assert_eq!(samples.len(), pcm.len(), "{frames} frames of {channels} channels");
        if frames > 40_000 {
            let (correlation, lag) = best_correlation(&samples, &pcm, 8 * channels as i64);
            assert!(correlation > 0.99 && lag == 0, "correlation {correlation} at lag {lag}");
        }
    }
}

#[test]
fn chained_streams_follow_one_another() {
    let first = opus_file(&sweep(10_000, 1), 1);
    let second = opus_file(&sweep(4_800, 2), 2);
    let chained = [first, second].concat();
    let mut reader = AudioReader::from_bytes(chained.clone()).unwrap();
    let mut frames = [0, 0];
    while let Some(block) = reader.next_block().unwrap() {
        let len = block.len();
        let channels = reader.spec().channels;
        frames[channels - 1] += len / channels;
    }
    assert_eq!(frames, [10_000, 4_800]);
    assert_eq!(load_mono_16k(chained).unwrap().len(), 14_800usize.div_ceil(3));
}

#[test]
fn an_mp3_stream_in_a_wav_file_is_decoded() {
    let Some(assets) = assets("an_mp3_stream_in_a_wav_file_is_decoded") else { return };
    let mp3 = std::fs::read(assets.join("audio/variants/jfk.mp3")).unwrap();
    let mut format = format_body(0x55, 1, 16000, 0);
    format.extend_from_slice(&[12, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let wav = WavBuilder::new().chunk(b"fmt ", &format).chunk(b"data", &mp3).build();
    let from_wav = load_mono_16k(wav).unwrap();
    assert!(from_wav == load_mono_16k(mp3).unwrap());
}

#[test]
fn noise_and_zeros_are_no_audio() {
    let bytes: Vec<u8> = noise(600_000, 42).iter().map(|x| (x * 128.0) as i8 as u8).collect();
    for seed in 0..4 {
        let bytes = bytes[seed * 1000..].to_vec();
        match load_mono_16k(bytes) {
            Err(AudioError::UnknownFormat { .. } | AudioError::NothingDecodable { .. }) => {}
            other => panic!("noise {seed}: {:?}", other.map(|samples| samples.len())),
        }
    }
    assert!(matches!(load_mono_16k(vec![0; 3 << 20]), Err(AudioError::UnknownFormat { .. })));
}
