//! Any bytes as a GGUF file: an error or a file whose tensors can all be read,
//! and that the writer accepts again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensoryard_formats::ModelFile;
use tensoryard_formats::gguf::{GgufBuilder, GgufFile};
use tensoryard_formats::whisper::WhisperCheckpoint;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgufFile::from_bytes(bytes.to_vec()) else { return };
    for tensor in file.tensors() {
        if let Ok(data) = file.tensor_bytes(tensor) {
            assert_eq!(data.len() as u64, tensor.size_bytes());
        }
    }
    if let Ok(checkpoint) = WhisperCheckpoint::from_gguf(&file) {
        for tensor in checkpoint.tensors() {
            let _ = tensor.to_f32();
        }
    }
    let mut builder = GgufBuilder::new();
    for (key, value) in file.keys().entries() {
        builder.key(key.clone(), value.clone()).expect("a key that was read");
    }
    for tensor in file.tensors() {
        builder
            .tensor_of_rank(tensor.name.clone(), tensor.dtype, tensor.shape, tensor.rank)
            .expect("a tensor that was read");
    }
});
