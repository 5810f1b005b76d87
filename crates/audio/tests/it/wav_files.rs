//! WAV files that other programs write, and some that none should.

use tensoryard_audio::{
    AudioError, AudioReader, load_mono_16k, wav_bytes_mono_s16, write_wav_mono_s16,
};

use crate::support::{WavBuilder, format_body};

fn decode(bytes: Vec<u8>) -> (Vec<f32>, AudioReader) {
    let mut reader = AudioReader::from_bytes(bytes).unwrap();
    let mut out = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        out.extend_from_slice(block);
    }
    (out, reader)
}

fn s16(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|s| s.to_le_bytes()).collect()
}

const RAMP: [i16; 5] = [0, 16384, -16384, 32767, -32768];
const RAMP_F32: [f32; 5] = [0.0, 0.5, -0.5, 32767.0 / 32768.0, -1.0];

#[test]
fn every_sample_format_decodes_to_its_value() {
    let f32s: Vec<u8> = RAMP_F32.iter().flat_map(|x| x.to_le_bytes()).collect();
    let f64s: Vec<u8> = RAMP_F32.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
    let s24: Vec<u8> = RAMP.iter().flat_map(|&s| [0, s as u8, (s >> 8) as u8]).collect();
    let s32: Vec<u8> = RAMP.iter().flat_map(|&s| (i32::from(s) << 16).to_le_bytes()).collect();
    for (tag, bits, body) in
        [(1, 16, s16(&RAMP)), (1, 24, s24), (1, 32, s32), (3, 32, f32s), (3, 64, f64s)]
    {
        let wav = WavBuilder::new().format(tag, 1, 16000, bits).chunk(b"data", &body).build();
        assert_eq!(decode(wav).0, RAMP_F32, "tag {tag}, {bits} bits");
    }
    let wav = WavBuilder::new().format(1, 1, 16000, 8).chunk(b"data", &[0, 64, 128, 192]).build();
    assert_eq!(decode(wav).0, [-1.0, -0.5, 0.0, 0.5]);
    let wav = WavBuilder::new().format(7, 1, 8000, 8).chunk(b"data", &[0x00, 0xff]).build();
    assert_eq!(decode(wav).0, [-32124.0 / 32768.0, 0.0]);
    let wav = WavBuilder::new().format(6, 1, 8000, 8).chunk(b"data", &[0xaa, 0x55]).build();
    assert_eq!(decode(wav).0, [32256.0 / 32768.0, -8.0 / 32768.0]);
}

#[test]
fn extensible_headers_give_the_sub_format() {
    let guid_tail = b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71";
    for (sub, bits, body) in [
        (1u16, 16u16, s16(&RAMP)),
        (3, 32, RAMP_F32.iter().flat_map(|x| x.to_le_bytes()).collect()),
    ] {
        let mut format = format_body(0xfffe, 1, 16000, bits);
        format.extend_from_slice(&22u16.to_le_bytes());
        format.extend_from_slice(&bits.to_le_bytes());
        format.extend_from_slice(&4u32.to_le_bytes());
        format.extend_from_slice(&sub.to_le_bytes());
        format.extend_from_slice(guid_tail);
        assert_eq!(format.len(), 40);
        let wav = WavBuilder::new().chunk(b"fmt ", &format).chunk(b"data", &body).build();
        assert_eq!(decode(wav).0, RAMP_F32, "sub-format {sub}");
    }
}

#[test]
fn chunks_before_format_and_data_are_skipped_with_their_pad_byte() {
    let wav = WavBuilder::new()
        .chunk(b"JUNK", &[7; 29])
        .format(1, 1, 16000, 16)
        .chunk(b"LIST", b"INFOISFT\x05\0\0\0Lavf5")
        .chunk(b"odd ", b"x")
        .chunk(b"data", &s16(&RAMP))
        .chunk(b"LIST", b"INFO")
        .build();
    let (samples, reader) = decode(wav);
    assert_eq!(samples, RAMP_F32);
    assert!(!reader.stats().truncated);
}

#[test]
fn sizes_left_open_by_a_pipe_mean_up_to_the_end() {
    let body = s16(&RAMP);
    for (riff, data) in [
        (0, 0),
        (0xffff_ffff, 0xffff_ffff),
        (36, 0),
        (0x7fff_ffff, 0x7fff_ffff - 36),
        (0, 0xffff_ffff),
    ] {
        let wav = WavBuilder::new().format(1, 1, 16000, 16).data_declared(data, &body);
        let (samples, reader) = decode(wav.build_with_riff_size(riff));
        assert_eq!(samples, RAMP_F32, "RIFF size {riff:#x}, data size {data:#x}");
        assert!(!reader.stats().truncated);
    }
}

#[test]
fn rf64_files_take_the_wide_size() {
    let mut ds64 = vec![0; 28];
    ds64[8..16].copy_from_slice(&10u64.to_le_bytes());
    let mut wav = WavBuilder::new()
        .chunk(b"ds64", &ds64)
        .format(1, 1, 16000, 16)
        .data_declared(u32::MAX, &s16(&RAMP))
        .chunk(b"LIST", b"INFO")
        .build_with_riff_size(u32::MAX);
    wav[..4].copy_from_slice(b"RF64");
    assert_eq!(decode(wav).0, RAMP_F32);
}

#[test]
fn a_file_cut_inside_a_frame_gives_the_whole_frames() {
    let body = s16(&[1, 2, 3, 4, 5, 6]);
    let wav = WavBuilder::new().format(1, 2, 16000, 16).chunk(b"data", &body).build();
    let (samples, reader) = decode(wav[..wav.len() - 3].to_vec());
    assert_eq!(samples.len(), 4);
    assert!(reader.stats().truncated);
}

#[test]
fn no_samples_is_empty_audio() {
    let wav = WavBuilder::new().format(1, 1, 16000, 16).chunk(b"data", &[]).build();
    assert!(load_mono_16k(wav).unwrap().is_empty());
    let wav = WavBuilder::new().format(1, 2, 44100, 16).chunk(b"data", &[]).chunk(b"LIST", b"INFO");
    assert!(load_mono_16k(wav.build()).unwrap().is_empty());
}

#[test]
fn channels_are_mixed_and_rates_converted() {
    // Eight channels: the mean of 1/8 .. 8/8 of 0.5 is 0.28125.
    let frame: Vec<i16> = (1..=8).map(|c| 2048 * c).collect();
    let body = s16(&frame.repeat(4800));
    let wav = WavBuilder::new().format(1, 8, 48000, 16).chunk(b"data", &body).build();
    let samples = load_mono_16k(wav).unwrap();
    assert_eq!(samples.len(), 1600);
    for (n, sample) in samples[200..1400].iter().enumerate() {
        assert!((sample - 0.28125).abs() < 1e-5, "sample {n} is {sample}");
    }
}

#[test]
fn values_that_are_not_finite_become_silence() {
    let values = [f32::NAN, f32::INFINITY, 0.25, f32::NEG_INFINITY];
    let body: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let wav = WavBuilder::new().format(3, 1, 16000, 32).chunk(b"data", &body).build();
    assert_eq!(decode(wav).0, [0.0, 0.0, 0.25, 0.0]);
}

#[test]
fn broken_headers_say_what_is_wrong() {
    let message = |wav: Vec<u8>| match AudioReader::from_bytes(wav) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    let body = s16(&RAMP);
    let zero_channels = WavBuilder::new().format(1, 0, 16000, 16).chunk(b"data", &body).build();
    assert!(message(zero_channels).contains("0 channels"));
    let zero_rate = WavBuilder::new().format(1, 1, 0, 16).chunk(b"data", &body).build();
    assert!(message(zero_rate).contains("0 Hz"));
    let no_format = WavBuilder::new().chunk(b"data", &body).build();
    assert!(message(no_format).contains("no fmt chunk"));
    let no_data = WavBuilder::new().format(1, 1, 16000, 16).build();
    assert!(message(no_data).contains("no data chunk"));
    let gsm = WavBuilder::new().format(0x31, 1, 8000, 0).chunk(b"data", &body).build();
    assert!(message(gsm).contains("GSM"));
    let wide = WavBuilder::new().format(1, 1, 16000, 64).chunk(b"data", &body).build();
    assert!(message(wide).contains("64 bits"));
    let slow = WavBuilder::new().format(1, 1, 1, 16).chunk(b"data", &body).build();
    assert!(matches!(load_mono_16k(slow), Err(AudioError::SampleRate { rate: 1, .. })));
}

#[test]
fn many_channels_decode() {
    let channels = 0x7fff;
    let body = s16(&vec![100; channels * 2]);
    let wav = WavBuilder::new().format(1, channels as u16, 16000, 16).chunk(b"data", &body);
    assert_eq!(load_mono_16k(wav.build()).unwrap().len(), 2);
}

#[test]
fn an_adpcm_file_is_decoded() {
    // One IMA block of 36 bytes: a predictor of 1000, step index 0, then 64 nibbles of 0,
    // each of which adds step / 8 = 0 at the smallest step.
    let mut format = format_body(0x11, 1, 8000, 4);
    format[12..14].copy_from_slice(&36u16.to_le_bytes());
    format.extend_from_slice(&[2, 0, 65, 0]);
    let mut block = vec![0; 36];
    block[..2].copy_from_slice(&1000i16.to_le_bytes());
    let wav = WavBuilder::new().chunk(b"fmt ", &format).chunk(b"data", &block).build();
    let (samples, reader) = decode(wav.clone());
    assert_eq!(samples.len(), 65);
    assert!(samples.iter().all(|&x| (x - 1000.0 / 32768.0).abs() < 1e-6), "{samples:?}");
    assert_eq!(reader.container(), "WAV");
    let piped = AudioReader::from_reader(std::io::Cursor::new(wav), "a pipe").unwrap();
    assert_eq!(piped.spec().sample_rate, 8000);
}

#[test]
fn written_files_come_back_unchanged() {
    let samples: Vec<f32> = (-4..4).map(|n| n as f32 / 4.0).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.wav");
    write_wav_mono_s16(&path, &samples, 16000).unwrap();
    assert_eq!(load_mono_16k(path).unwrap(), samples);
    let loud = load_mono_16k(wav_bytes_mono_s16(&[2.0, -2.0, f32::NAN], 16000)).unwrap();
    assert_eq!(loud, [32767.0 / 32768.0, -1.0, 0.0]);
}

#[test]
fn a_length_beyond_all_time_is_no_length() {
    let mut ds64 = vec![0; 28];
    ds64[8..16].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
    let mut wav = WavBuilder::new()
        .chunk(b"ds64", &ds64)
        .format(1, 1, 1, 8)
        .data_declared(u32::MAX, &[128; 10])
        .build_with_riff_size(u32::MAX);
    wav[..4].copy_from_slice(b"RF64");
    let mut reader = AudioReader::from_reader(std::io::Cursor::new(wav), "a pipe").unwrap();
    assert_eq!(reader.duration(), None);
    assert_eq!(reader.next_block().unwrap().map(<[f32]>::len), Some(10));
}
