//! Random bytes and random damage: an error or a file, never a panic, and
//! never more memory than the file warrants.

use proptest::prelude::{ProptestConfig, any, prop, proptest};
use tensoryard_formats::ctranslate2::CTranslate2File;
use tensoryard_formats::ggml_whisper::GgmlWhisperFile;
use tensoryard_formats::gguf::{GgufBuilder, GgufFile};
use tensoryard_formats::whisper::WhisperCheckpoint;
use tensoryard_formats::{Array, ModelFile, Text, Value, detect_bytes};
use tensoryard_tensor::{DType, Shape};

use crate::alloc::peak_bytes;
use crate::gguf::small_file;
use crate::support::{extras, tiny_ctranslate2, tiny_ggml};

/// Reads the bytes as every format, and everything that a file then offers.
fn read_all(bytes: &[u8]) {
    let _ = detect_bytes(&bytes[..bytes.len().min(512)], bytes.len() as u64);
    let limit = 40 * bytes.len() + 400_000;
    let copies = [bytes.to_vec(), bytes.to_vec(), bytes.to_vec()];
    let (_, peak) = peak_bytes(move || {
        let [first, second, third] = copies;
        if let Ok(file) = GgufFile::from_bytes(first) {
            read_tensors(&file);
            read_checkpoint(WhisperCheckpoint::from_gguf(&file).ok());
        }
        if let Ok(file) = GgmlWhisperFile::from_bytes(second) {
            read_tensors(&file);
            read_checkpoint(WhisperCheckpoint::from_ggml(&file).ok());
        }
        if let Ok(file) = CTranslate2File::from_bytes(third) {
            read_tensors(&file);
            read_checkpoint(WhisperCheckpoint::from_ctranslate2(&file, &extras()).ok());
        }
    });
    assert!(peak < limit, "{peak} bytes for {}", bytes.len());
}

fn read_tensors(file: &dyn ModelFile) {
    let _ = file.metadata();
    for tensor in file.tensors() {
        let _ = file.tensor_bytes(tensor).map(|bytes| bytes.len());
    }
}

fn read_checkpoint(checkpoint: Option<WhisperCheckpoint>) {
    for tensor in checkpoint.iter().flat_map(WhisperCheckpoint::tensors) {
        let _ = tensor.to_f32();
    }
}

fn damage(mut bytes: Vec<u8>, places: &[(usize, u8)]) -> Vec<u8> {
    for &(at, value) in places {
        let len = bytes.len();
        bytes[at % len] = value;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..600), magic in 0..4usize) {
        let start: [&[u8]; 4] = [b"", b"GGUF\x03\0\0\0", b"lmgg", b"\x06\0\0\0\x02\0a\0"];
        bytes.splice(0..0, start[magic].iter().copied());
        read_all(&bytes);
    }

    #[test]
    fn damaged_files(
        which in 0..3usize,
        places in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        len in any::<usize>(),
    ) {
        let whole = [small_file, tiny_ggml, tiny_ctranslate2][which]();
        let mut bytes = damage(whole, &places);
        if len % 4 == 0 {
            bytes.truncate(len / 4 % bytes.len());
        }
        read_all(&bytes);
    }

    #[test]
    fn damaged_headers(
        which in 0..3usize,
        places in prop::collection::vec((0..200usize, any::<u8>()), 1..6),
    ) {
        read_all(&damage([small_file, tiny_ggml, tiny_ctranslate2][which](), &places));
    }

    #[test]
    fn what_is_written_is_read(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
        numbers in prop::collection::vec(any::<i64>(), 0..20),
        sizes in prop::collection::vec((0..5usize, 0..5usize), 0..8),
        alignment in 0..8u32,
    ) {
        let mut builder = GgufBuilder::new();
        let texts: Vec<Text> = texts.into_iter().map(Text::from).collect();
        builder.key("texts", Value::Array(Array::String(texts))).unwrap();
        builder.key("numbers", numbers).unwrap();
        builder.key("general.alignment", 1u32 << alignment).unwrap();
        for (index, &(width, height)) in sizes.iter().enumerate() {
            let shape = Shape::new(&[width, height]).unwrap();
            builder.tensor(format!("tensor {index}"), DType::F16, shape).unwrap();
        }
        let mut bytes = Vec::new();
        builder
            .write(&mut bytes, &mut |info, sink| {
                let fill = info.name.len() as u8 ^ info.shape[0] as u8;
                (0..info.size_bytes()).try_for_each(|_| sink.put(&[fill]))
            })
            .unwrap();
        let file = GgufFile::from_bytes(bytes).unwrap();
        assert_eq!(file.keys().entries(), builder.keys().entries());
        assert_eq!(file.tensors().len(), sizes.len());
        for (read, written) in file.tensors().iter().zip(builder.tensors()) {
            assert_eq!((&read.name, read.shape), (&written.name, written.shape));
            let fill = read.name.len() as u8 ^ read.shape[0] as u8;
            assert!(file.tensor_bytes(read).unwrap().iter().all(|&byte| byte == fill));
        }
    }
}
