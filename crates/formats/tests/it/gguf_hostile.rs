//! GGUF files that break the rules: each is refused by name, in little memory.

use tensoryard_formats::gguf::{GgufBuilder, GgufFile};
use tensoryard_formats::{Array, FormatError, ModelFile};
use tensoryard_tensor::{DType, Shape};

use crate::alloc::peak_bytes;
use crate::gguf::{one_key, small_file, values};
use crate::support::{Bytes, gguf};

/// The error of a file, which must be found in memory of a few times its size.
fn refused(bytes: &[u8]) -> FormatError {
    let copy = bytes.to_vec();
    let (result, peak) = peak_bytes(|| GgufFile::from_bytes(copy));
    // The reader's buffer of 64 KiB comes on top.
    assert!(peak < 16 * bytes.len() + 100_000, "{peak} bytes for a file of {}", bytes.len());
    match result {
        Err(error) => error,
        Ok(file) => panic!("accepted with {} tensors", file.tensors().len()),
    }
}

#[track_caller]
fn refused_with(bytes: Bytes, parts: &[&str]) {
    let error = refused(&bytes.0).to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

struct Tensor {
    name: &'static [u8],
    dims: Vec<u64>,
    number: u32,
    offset: u64,
}

fn tensor(name: &'static [u8], dims: &[u64], number: u32, offset: u64) -> Tensor {
    Tensor { name, dims: dims.to_vec(), number, offset }
}

fn with_tensors(tensors: &[Tensor], data_bytes: usize) -> Bytes {
    let mut bytes = gguf(3, tensors.len() as u64, 0);
    for tensor in tensors {
        bytes = bytes.string(tensor.name).u32(tensor.dims.len() as u32);
        for &dim in &tensor.dims {
            bytes = bytes.u64(dim);
        }
        bytes = bytes.u32(tensor.number).u64(tensor.offset);
    }
    bytes.pad(32).raw(&vec![0; data_bytes])
}

#[test]
fn a_file_cut_at_any_byte() {
    let whole = small_file();
    for len in 0..whole.len() {
        refused(&whole[..len]);
    }
    assert_eq!(GgufFile::from_bytes(whole).unwrap().tensors().len(), 2);
}

#[test]
fn keys_without_a_name_for_every_value_type() {
    for (value, _) in values() {
        assert!(matches!(refused(&one_key(b"", &value)), FormatError::Name { .. }));
    }
}

#[test]
fn names_with_zero_bytes() {
    let value = Bytes::default().u32(4).u32(0);
    assert!(matches!(refused(&one_key(b"a\0b", &value)), FormatError::Name { .. }));
    refused_with(with_tensors(&[tensor(b"a\0b", &[1], 0, 0)], 32), &["tensor 0", "zero byte"]);
    refused_with(with_tensors(&[tensor(b"", &[1], 0, 0)], 32), &["tensor 0", "empty"]);
    refused_with(with_tensors(&[tensor(b"\xff", &[1], 0, 0)], 32), &["tensor 0", "UTF-8"]);
}

#[test]
fn counts_far_beyond_the_file() {
    for count in [1 << 31, 1 << 60, 1 << 63, u64::MAX] {
        let spare = [0u8; 64];
        refused_with(gguf(3, count, 0).raw(&spare), &["number of tensors", &count.to_string()]);
        refused_with(gguf(3, 0, count).raw(&spare), &["number of keys", &count.to_string()]);
        refused_with(gguf(3, 0, 1).u64(count).raw(&spare), &["key 0"]);
        let value = Bytes::default().u32(8).u64(count).raw(&spare);
        refused_with(Bytes(one_key(b"text", &value)), &["\"text\""]);
        for number in 0..13 {
            let value = Bytes::default().u32(9).u32(number).u64(count).raw(&spare);
            refused_with(Bytes(one_key(b"list", &value)), &["\"list\"", &count.to_string()]);
        }
        refused_with(with_tensors(&[tensor(b"huge", &[count], 0, 0)], 32), &["\"huge\""]);
    }
}

#[test]
fn nested_arrays_that_multiply() {
    // Each level promises as many elements as the file could hold.
    let mut value = Bytes::default().u32(9);
    for _ in 0..3 {
        value = value.u32(9).u64(1);
    }
    value = value.u32(9).u64(1).u32(0).u64(1).u8(0);
    refused_with(Bytes(one_key(b"deep", &value)), &["depth", "\"deep\""]);

    let wide = Bytes::default().u32(9).u32(9).u64(1000).u32(9).u64(1000).raw(&[9; 12_000]);
    refused(&one_key(b"wide", &wide));
}

#[test]
fn sizes_that_overflow() {
    let huge = (1u64 << 42) + 1;
    refused_with(
        with_tensors(&[tensor(b"t", &[1 << 22, huge], 0, 0)], 32),
        &["\"t\"", "overflows"],
    );
    let pair = [tensor(b"one", &[1 << 60], 0, 0), tensor(b"two", &[1 << 60], 0, 1 << 62)];
    refused_with(with_tensors(&pair, 32), &["\"one\"", "past the end"]);
    refused_with(
        with_tensors(&[tensor(b"t", &[5_124_095_576_030_431_008], 2, 0)], 32),
        &["\"t\"", "past the end"],
    );
    refused_with(with_tensors(&[tensor(b"4PiB", &[1 << 50], 0, 0)], 32), &["\"4PiB\""]);
    refused_with(with_tensors(&[tensor(b"t", &[1], 0, u64::MAX - 31)], 32), &["\"t\""]);
    refused_with(with_tensors(&[tensor(b"t", &[0, u64::MAX, 2], 0, 0)], 32), &["\"t\""]);
}

#[test]
fn offsets_shifted_overlapping_and_overrunning() {
    refused_with(with_tensors(&[tensor(b"t", &[8], 0, 4)], 64), &["\"t\"", "multiple"]);
    let pair = [tensor(b"one", &[9], 0, 0), tensor(b"two", &[8], 0, 32)];
    refused_with(with_tensors(&pair, 64), &["\"two\"", "overlaps", "\"one\""]);
    let same = [tensor(b"one", &[8], 0, 0), tensor(b"two", &[8], 0, 0)];
    refused_with(with_tensors(&same, 64), &["overlaps"]);
    refused_with(with_tensors(&[tensor(b"t", &[8], 0, 64)], 64), &["\"t\"", "past the end"]);
    refused_with(with_tensors(&[tensor(b"t", &[17], 0, 0)], 64), &["\"t\"", "past the end"]);
}

#[test]
fn two_of_one_name() {
    let pair = [tensor(b"t", &[8], 0, 0), tensor(b"t", &[8], 0, 32)];
    refused_with(with_tensors(&pair, 64), &["two tensors", "\"t\""]);
    let key = |bytes: Bytes| bytes.string(b"k").u32(7).u8(1);
    refused_with(key(key(gguf(3, 0, 2))), &["two keys", "\"k\""]);
}

#[test]
fn dimensions_of_zero_are_empty_tensors() {
    let empties = [tensor(b"a", &[0, 4], 0, 0), tensor(b"b", &[0], 2, 0), tensor(b"c", &[], 0, 0)];
    let file = GgufFile::from_bytes(with_tensors(&empties, 32).0).unwrap();
    assert!(file.tensor("a").unwrap().shape.is_empty());
    assert_eq!(file.tensor("a").unwrap().size_bytes(), 0);
    assert!(file.tensor_bytes(file.tensor("b").unwrap()).unwrap().is_empty());
    assert_eq!(file.tensor("c").unwrap().size_bytes(), 4);
    // Nothing but an empty tensor, and no byte of data.
    let bytes = gguf(3, 1, 0).string(b"a").u32(1).u64(0).u32(0).u64(0);
    GgufFile::from_bytes(bytes.0).unwrap();
}

#[test]
fn dimension_counts_and_types() {
    for rank in [5, 20, 64, u32::MAX] {
        let bytes = gguf(3, 1, 0).string(b"t").u32(rank).raw(&[1; 64]);
        refused_with(bytes, &["\"t\"", &rank.to_string()]);
    }
    for (number, name) in [
        (4, "q4_2"),
        (5, "q4_3"),
        (31, "q4_0_4_4"),
        (32, "q4_0_4_8"),
        (33, "q4_0_8_8"),
        (36, "iq4_nl_4_4"),
        (37, "iq4_nl_4_8"),
        (38, "iq4_nl_8_8"),
    ] {
        refused_with(with_tensors(&[tensor(b"t", &[256], number, 0)], 32), &["\"t\"", name]);
    }
    for number in [43, 100, u32::MAX] {
        let bytes = with_tensors(&[tensor(b"t", &[256], number, 0)], 32);
        refused_with(bytes, &["\"t\"", &number.to_string()]);
    }
    refused_with(with_tensors(&[tensor(b"t", &[33], 2, 0)], 64), &["\"t\"", "blocks"]);
    refused_with(Bytes(one_key(b"k", &Bytes::default().u32(13).u64(0))), &["\"k\"", "13"]);
    refused_with(Bytes(one_key(b"k", &Bytes::default().u32(7).u8(2))), &["\"k\"", "boolean"]);
}

#[test]
fn alignments_that_are_none() {
    for alignment in [0, 3, 48, 1 << 21, 1 << 31] {
        let value = Bytes::default().u32(4).u32(alignment);
        refused_with(Bytes(one_key(b"general.alignment", &value)), &["general.alignment"]);
    }
    let value = Bytes::default().u32(10).u64(32);
    refused_with(Bytes(one_key(b"general.alignment", &value)), &["general.alignment", "u64"]);
    let value = Bytes::default().u32(4).u32(64);
    let file = GgufFile::from_bytes(one_key(b"general.alignment", &value)).unwrap();
    assert_eq!(file.alignment(), 64);
}

#[test]
fn versions_that_are_not_read() {
    for version in [0, 1, 4, 0x7fff] {
        refused_with(gguf(version, 0, 0), &["version", &version.to_string()]);
    }
}

#[test]
fn many_strings_are_honest() {
    let count = 262_144u64;
    let mut value = Bytes::default().u32(9).u32(8).u64(count);
    for index in 0..count {
        let text = format!("token{index}");
        value.0.extend((text.len() as u64).to_le_bytes());
        value.0.extend(text.as_bytes());
    }
    let file = GgufFile::from_bytes(one_key(b"tokenizer.ggml.tokens", &value)).unwrap();
    let tokens = file.keys().get_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.len() as u64, count);
    assert_eq!(tokens[262_143].as_str(), Some("token262143"));
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let mut builder = GgufBuilder::new();
    assert!(builder.key("", 1u32).is_err());
    assert!(builder.key("a\0b", 1u32).is_err());
    assert!(builder.key("general.alignment", 3u32).is_err());
    let mut deep = Array::U8(vec![]);
    for _ in 0..4 {
        deep = Array::Array(vec![deep]);
    }
    assert!(builder.key("deep", tensoryard_formats::Value::Array(deep)).is_err());
    builder.key("k", 1u32).unwrap();
    assert!(builder.key("k", 1u32).is_err());
    let shape = Shape::new(&[33]).unwrap();
    assert!(builder.tensor("t", DType::Q4_0, shape).is_err());
    builder.tensor("t", DType::F32, shape).unwrap();
    assert!(builder.tensor("t", DType::F32, shape).is_err());
}

#[test]
fn the_writer_refuses_offsets_beyond_64_bits() {
    let mut builder = GgufBuilder::new();
    let shape = Shape::new(&[1 << 60]).unwrap();
    for name in ["a", "b", "c", "d"] {
        builder.tensor(name, DType::F32, shape).unwrap();
    }
    let mut out = Vec::new();
    let error = builder.write(&mut out, &mut |_, _| panic!("data was asked for")).unwrap_err();
    assert!(error.to_string().contains("\"d\""), "{error}");
    assert!(out.is_empty());
}

#[test]
fn announced_elements_take_no_memory_before_they_are_there() {
    // 4 MB of zeros could hold that many keys, tensors or elements, but the first is wrong.
    let spare = vec![0u8; 4 << 20];
    let texts = Bytes::default().u32(9).u32(8).u64(500_000).u64(u64::MAX).raw(&spare);
    let lists = Bytes::default().u32(9).u32(9).u64(300_000).u32(99).raw(&spare);
    for bytes in
        [gguf(3, 100_000, 0).raw(&spare).0, one_key(b"texts", &texts), one_key(b"lists", &lists)]
    {
        let len = bytes.len();
        let (result, peak) = peak_bytes(|| GgufFile::from_bytes(bytes));
        assert!(result.is_err());
        assert!(peak < 500_000, "{peak} bytes beside a file of {len}");
    }
}
