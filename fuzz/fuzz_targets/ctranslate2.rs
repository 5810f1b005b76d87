//! Any bytes as a CTranslate2 `model.bin`: an error or a model whose variables
//! can be read and, for Whisper, taken apart.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensoryard_formats::ModelFile;
use tensoryard_formats::ctranslate2::CTranslate2File;
use tensoryard_formats::whisper::{
    CheckpointExtras, MelFilters, WhisperCheckpoint, WhisperVocabulary,
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = CTranslate2File::from_bytes(bytes.to_vec()) else { return };
    let _ = file.metadata();
    for tensor in file.tensors() {
        if let Ok(data) = file.tensor_bytes(tensor) {
            assert_eq!(data.len() as u64, tensor.size_bytes());
        }
    }
    let extras = CheckpointExtras {
        name: None,
        vocabulary: WhisperVocabulary::default(),
        mel_filters: MelFilters { n_mels: 2, n_bins: 1, values: vec![0.0; 2] },
        alignment_heads: None,
        suppress_ids: None,
        suppress_ids_begin: None,
        language_ids: None,
    };
    if let Ok(checkpoint) = WhisperCheckpoint::from_ctranslate2(&file, &extras) {
        for tensor in checkpoint.tensors() {
            let _ = tensor.to_f32();
        }
    }
});
