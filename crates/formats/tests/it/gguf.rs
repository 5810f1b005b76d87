//! GGUF as it should be: values, tensors, both byte orders, round trips.

use std::borrow::Cow;
use std::fs;

use tensoryard_formats::gguf::{GgufBuilder, GgufFile};
use tensoryard_formats::{
    Array, ByteOrder, FormatError, ModelFile, OpenOptions, Text, Value, ValueType, inspect,
};
use tensoryard_tensor::{DType, Shape};

use crate::support::{Bytes, f32_bytes, gguf};

/// Every value type once, as bytes and as a value.
pub fn values() -> Vec<(Bytes, Value)> {
    let new = Bytes::default;
    vec![
        (new().u32(0).u8(200), Value::U8(200)),
        (new().u32(1).u8(0xfe), Value::I8(-2)),
        (new().u32(2).u16(60000), Value::U16(60000)),
        (new().u32(3).u16(0xffff), Value::I16(-1)),
        (new().u32(4).u32(4_000_000_000), Value::U32(4_000_000_000)),
        (new().u32(5).u32(0xffff_fff9), Value::I32(-7)),
        (new().u32(6).u32(0x3fc0_0000), Value::F32(1.5)),
        (new().u32(7).u8(1), Value::Bool(true)),
        (new().u32(8).string("Grüße".as_bytes()), Value::String("Grüße".into())),
        (new().u32(10).u64(1 << 60), Value::U64(1 << 60)),
        (new().u32(11).u64(u64::MAX), Value::I64(-1)),
        (new().u32(12).u64(0x3ff8_0000_0000_0000), Value::F64(1.5)),
        (new().u32(9).u32(4).u64(2).u32(1).u32(2), Value::Array(Array::U32(vec![1, 2]))),
        (new().u32(9).u32(8).u64(2).string(b"a").string(b""), {
            Value::Array(Array::String(vec!["a".into(), "".into()]))
        }),
        (new().u32(9).u32(9).u64(2).u32(7).u64(1).u8(0).u32(0).u64(0), {
            Value::Array(Array::Array(vec![Array::Bool(vec![false]), Array::U8(vec![])]))
        }),
    ]
}

pub fn one_key(key: &[u8], value: &Bytes) -> Vec<u8> {
    gguf(3, 0, 1).string(key).raw(&value.0).0
}

/// Two tensors behind a key; the last one fills its alignment.
pub fn small_file() -> Vec<u8> {
    gguf(3, 2, 1)
        .string(b"general.architecture")
        .u32(8)
        .string(b"test")
        .string(b"first")
        .u32(2)
        .u64(3)
        .u64(2)
        .u32(0)
        .u64(0)
        .string(b"second")
        .u32(1)
        .u64(8)
        .u32(0)
        .u64(32)
        .pad(32)
        .raw(&f32_bytes([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        .raw(&[0; 8])
        .raw(&f32_bytes([0.5; 8]))
        .0
}

#[test]
fn every_value_type_is_read() {
    for (bytes, want) in values() {
        let file = GgufFile::from_bytes(one_key(b"key", &bytes)).unwrap();
        assert_eq!(file.keys().get("key"), Some(&want));
    }
}

#[test]
fn every_value_type_is_written_as_it_was_read() {
    for (bytes, value) in values() {
        let mut builder = GgufBuilder::new();
        builder.key("key", value).unwrap();
        let mut out = Vec::new();
        builder.write(&mut out, &mut |_, _| Ok(())).unwrap();
        let header = one_key(b"key", &bytes);
        assert_eq!(&out[..header.len()], header);
        assert_eq!(out.len(), header.len().next_multiple_of(32));
    }
}

#[test]
fn tensors_are_found_and_read_mapped_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.gguf");
    fs::write(&path, small_file()).unwrap();
    for mmap in [true, false] {
        let file = GgufFile::open(&path, OpenOptions::new().mmap(mmap)).unwrap();
        assert_eq!(file.version(), 3);
        assert_eq!(file.byte_order(), ByteOrder::Little);
        let first = file.tensor("first").unwrap();
        assert_eq!(first.shape, Shape::new(&[3, 2]).unwrap());
        assert_eq!((first.dtype, first.rank), (DType::F32, 2));
        let bytes = file.tensor_bytes(first).unwrap();
        assert_eq!(*bytes, f32_bytes([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        assert_eq!(matches!(bytes, Cow::Borrowed(_)), mmap);
        file.release(first);
        let mut buffer = [0; 24];
        file.read_tensor(first, &mut buffer).unwrap();
        assert_eq!(buffer, *bytes);
        assert!(file.read_tensor(first, &mut [0; 23]).is_err());
        assert!(file.tensor("third").is_none());
    }
    let seen = inspect(&path).unwrap();
    assert_eq!((seen.tensor_bytes, seen.parameters), (56, 14));
    assert_eq!(seen.metadata, [("general.architecture".to_owned(), Value::from("test"))]);
}

#[test]
fn big_endian_files_are_read_and_swapped() {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_be_bytes());
    bytes.extend(1u64.to_be_bytes());
    bytes.extend(1u64.to_be_bytes());
    bytes.extend(1u64.to_be_bytes());
    bytes.extend(b"k");
    bytes.extend(3u32.to_be_bytes());
    bytes.extend((-300i16).to_be_bytes());
    bytes.extend(1u64.to_be_bytes());
    bytes.extend(b"t");
    bytes.extend(1u32.to_be_bytes());
    bytes.extend(2u64.to_be_bytes());
    bytes.extend(0u32.to_be_bytes());
    bytes.extend(0u64.to_be_bytes());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend(1.5f32.to_be_bytes());
    bytes.extend((-2.0f32).to_be_bytes());
    let file = GgufFile::from_bytes(bytes).unwrap();
    assert_eq!(file.byte_order(), ByteOrder::Big);
    assert_eq!(file.keys().get("k"), Some(&Value::I16(-300)));
    let tensor = file.tensor("t").unwrap();
    assert_eq!(*file.tensor_bytes(tensor).unwrap(), f32_bytes([1.5, -2.0]));
}

#[test]
fn version_2_is_read() {
    let mut bytes = small_file();
    bytes[4] = 2;
    assert_eq!(GgufFile::from_bytes(bytes).unwrap().version(), 2);
}

#[test]
fn a_written_file_round_trips_byte_for_byte() {
    let mut builder = GgufBuilder::new();
    builder.key("general.architecture", "test").unwrap();
    builder.tensor("first", DType::F32, Shape::new(&[3, 2]).unwrap()).unwrap();
    builder.tensor("second", DType::F32, Shape::new(&[8]).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    builder
        .write_file(&path, &mut |info, sink| match info.name.as_str() {
            "first" => sink.put(&f32_bytes([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
            _ => (0..8).try_for_each(|_| sink.put(&0.5f32.to_le_bytes())),
        })
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), small_file());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    fs::write(&path, "old").unwrap();
    let mut builder = GgufBuilder::new();
    builder.tensor("t", DType::F32, Shape::new(&[2]).unwrap()).unwrap();
    for count in [1, 3] {
        let error = builder
            .write_file(&path, &mut |_, sink| (0..count).try_for_each(|_| sink.put(&[0; 4])))
            .unwrap_err();
        assert!(error.to_string().contains("\"t\""), "{error}");
    }
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_open_map_survives_the_replacement_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, small_file()).unwrap();
    let file = GgufFile::open(&path, OpenOptions::new()).unwrap();
    GgufBuilder::new().write_file(&path, &mut |_, _| Ok(())).unwrap();
    let second = file.tensor("second").unwrap();
    assert_eq!(*file.tensor_bytes(second).unwrap(), f32_bytes([0.5; 8]));
    assert_eq!(GgufFile::open(&path, OpenOptions::new()).unwrap().tensors().len(), 0);
}

#[test]
fn getters_name_the_key_and_both_types() {
    let mut bytes = gguf(3, 0, 3);
    bytes = bytes.string(b"tokenizer.ggml.scores").u32(9).u32(0).u64(2).u8(1).u8(2);
    bytes = bytes.string(b"a.count").u32(10).u64(12).string(b"bad.text").u32(8).string(b"\xff");
    let file = GgufFile::from_bytes(bytes.0).unwrap();
    let keys = file.keys();
    let error = keys.get_f32s("tokenizer.ggml.scores").unwrap_err().to_string();
    for part in ["\"tokenizer.ggml.scores\"", "array of f32", "array of u8"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(keys.get_count("a.count").unwrap(), 12);
    assert!(matches!(keys.get_u32("a.count"), Err(FormatError::KeyType { .. })));
    assert!(matches!(keys.get_u32("missing"), Err(FormatError::MissingKey(_))));
    assert_eq!(keys.find_u32("missing").unwrap(), None);
    assert!(keys.get_str("bad.text").unwrap_err().to_string().contains("bad.text"));
    assert_eq!(keys.get("bad.text"), Some(&Value::String(Text::from(vec![0xff]))));
}

#[test]
fn value_type_numbers_are_those_of_the_format() {
    for (index, value_type) in ValueType::ALL.into_iter().enumerate() {
        assert_eq!(value_type.number() as usize, index);
        assert_eq!(ValueType::from_number(index as u32), Some(value_type));
    }
    assert_eq!(ValueType::from_number(13), None);
}
