//! Any bytes as a ggml Whisper file: an error or a model whose tensors can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensoryard_formats::ModelFile;
use tensoryard_formats::ggml_whisper::GgmlWhisperFile;
use tensoryard_formats::whisper::WhisperCheckpoint;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgmlWhisperFile::from_bytes(bytes.to_vec()) else { return };
    let _ = file.metadata();
    if let Ok(checkpoint) = WhisperCheckpoint::from_ggml(&file) {
        for tensor in checkpoint.tensors() {
            let _ = tensor.to_f32();
        }
    }
});
