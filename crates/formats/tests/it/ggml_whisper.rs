//! The ggml Whisper format, and files of it that break the rules.

use tensoryard_formats::ggml_whisper::{GgmlWhisperFile, dtype_of_ftype, ftype_of_dtype};
use tensoryard_formats::whisper::WhisperCheckpoint;
use tensoryard_formats::{FormatError, ModelFile};
use tensoryard_tensor::DType;

use crate::alloc::peak_bytes;
use crate::support::{Bytes, TINY, check_values, extras, ggml_header, ggml_with, tiny_ggml};

fn refused(bytes: &[u8]) -> FormatError {
    let copy = bytes.to_vec();
    let (result, peak) = peak_bytes(|| GgmlWhisperFile::from_bytes(copy));
    assert!(peak < 16 * bytes.len() + 200_000, "{peak} bytes for a file of {}", bytes.len());
    result.map(|file| file.tensors().len()).unwrap_err()
}

#[track_caller]
fn refused_with(bytes: Bytes, parts: &[&str]) {
    let error = refused(&bytes.0).to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn a_whole_model_is_read() {
    let file = GgmlWhisperFile::from_bytes(tiny_ggml()).unwrap();
    assert_eq!(*file.config(), TINY);
    assert_eq!(file.matrix_type(), DType::F16);
    assert_eq!(file.tokens(), extras().vocabulary.tokens);
    assert_eq!(*file.mel_filters(), extras().mel_filters);
    check_values(&WhisperCheckpoint::from_ggml(&file).unwrap());
}

#[test]
fn a_file_cut_at_any_byte() {
    let whole = tiny_ggml();
    for len in 0..whole.len() {
        refused(&whole[..len]);
    }
}

#[test]
fn tiny_files() {
    refused_with(Bytes(b"lmgg\x01\0\0\0".to_vec()), &["n_audio_ctx", "cut short"]);
    refused_with(Bytes(b"lmgg".to_vec()), &["n_vocab"]);
    refused_with(Bytes(b"\0\0\0\0\0\0\0\0".to_vec()), &["4 bytes"]);
}

#[test]
fn file_types_that_name_nothing() {
    for ftype in [4, 5, 6, 27, 28, 999, 2005, 2027] {
        refused_with(ggml_header(ftype), &["ftype", &ftype.to_string()]);
    }
    refused_with(ggml_header(u32::MAX), &["ftype", "-1"]);
    // Block formats of an earlier version.
    for ftype in [2, 1008, 3008] {
        refused_with(ggml_header(ftype), &["ftype", "version"]);
    }
    // Right so far; the tensors are missing.
    for ftype in [0, 1, 2002, 2008, 24] {
        refused_with(ggml_header(ftype), &["tensors that the hyperparameters demand"]);
    }
}

#[test]
fn file_type_numbers() {
    for (number, dtype) in
        [(0, DType::F32), (1, DType::F16), (7, DType::Q8_0), (8, DType::Q5_0), (12, DType::Q4K)]
    {
        assert_eq!(dtype_of_ftype(number), Some(dtype));
        assert_eq!(ftype_of_dtype(dtype), Some(number));
    }
    assert_eq!(ftype_of_dtype(DType::I8), None);
}

#[test]
fn dimension_counts() {
    for rank in [0, 5, 20, 64] {
        let bytes = ggml_with(|bytes| bytes.u32(rank).u32(1).u32(0).raw(&[1; 400]));
        refused_with(Bytes(bytes), &["dimension count", &rank.to_string()]);
    }
    let bytes = ggml_with(|bytes| bytes.u32(u32::MAX).u32(1).u32(0).raw(&[1; 400]));
    refused_with(Bytes(bytes), &["dimension count", "-1"]);
}

#[test]
fn mel_filters_that_overflow() {
    let head = || {
        let mut bytes = Bytes::default().u32(0x6767_6d6c);
        for (_, value) in TINY.fields() {
            bytes = bytes.u32(value as u32);
        }
        bytes.u32(1)
    };
    refused_with(head().u32(2).u32(0x7fff_ffff).raw(&[0; 64]), &["mel filters", "cut short"]);
    refused_with(head().u32(0x7fff_ffff).u32(0x7fff_ffff).raw(&[0; 64]), &["mel filters"]);
    refused_with(head().u32(2).u32(0x8000_0001), &["mel filter"]);
    refused_with(head().u32(3).u32(1).raw(&[0; 64]), &["3 of 1", "2 mels"]);
}

#[test]
fn hyperparameters_out_of_range() {
    for field in 0..10 {
        let name = TINY.fields()[field].0;
        for value in [0u32, u32::MAX, 0x7fff_ffff] {
            let mut bytes = tiny_ggml();
            bytes[4 + 4 * field..8 + 4 * field].copy_from_slice(&value.to_le_bytes());
            refused_with(Bytes(bytes), &[name]);
        }
    }
}

#[test]
fn token_counts_and_lengths() {
    let before = ggml_header(1).0.len()
        - 4
        - extras().vocabulary.tokens.iter().fold(0, |sum, token| sum + 4 + token.len());
    for count in [7u32, 0x7fff_ffff, u32::MAX] {
        let mut bytes = tiny_ggml();
        bytes[before..before + 4].copy_from_slice(&count.to_le_bytes());
        refused_with(Bytes(bytes), &["number of tokens"]);
    }
    let mut bytes = tiny_ggml();
    bytes[before + 4..before + 8].copy_from_slice(&u32::MAX.to_le_bytes());
    refused_with(Bytes(bytes), &["token 0"]);
}

#[test]
fn a_missing_tensor_is_named() {
    let whole = tiny_ggml();
    let last = b"decoder.ln.bias".len() + 4 * 4 + 4 * 4;
    refused_with(Bytes(whole[..whole.len() - last].to_vec()), &["\"decoder.ln.bias\" is missing"]);
}

#[test]
fn tensors_twice_unknown_or_of_removed_types() {
    let again = |name: &'static str, number: u32| {
        Bytes(ggml_with(|bytes| {
            bytes
                .u32(1)
                .u32(name.len() as u32)
                .u32(number)
                .u32(4)
                .raw(name.as_bytes())
                .raw(&[0; 16])
        }))
    };
    refused_with(again("decoder.ln.bias", 0), &["two tensors", "decoder.ln.bias"]);
    refused_with(again("decoder.ln.bios", 0), &["decoder.ln.bios", "not part"]);
    refused_with(again("decoder.ln.bias", 5), &["q4_3"]);
    refused_with(again("decoder.ln.bias", 99), &["99"]);
}
