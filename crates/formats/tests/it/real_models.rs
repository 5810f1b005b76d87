//! Real models, when they are there: CTranslate2 to GGUF and ggml and back.

use tensoryard_formats::ctranslate2::{CTranslate2File, read_vocabulary};
use tensoryard_formats::whisper::{
    CheckpointExtras, MelFilters, WeightType, WhisperCheckpoint, WhisperVocabulary, special_tokens,
};
use tensoryard_formats::{OpenOptions, inspect};
use tensoryard_tensor::DType;

use crate::alloc::peak_bytes;
use crate::support::real_model;

fn read(path: &std::path::Path) -> WhisperCheckpoint {
    let file = CTranslate2File::open(path, OpenOptions::new()).unwrap();
    let tokens = read_vocabulary(file.side_file("vocabulary.txt").unwrap()).unwrap();
    let extras = CheckpointExtras {
        name: None,
        vocabulary: WhisperVocabulary { tokens, merges: Vec::new() },
        mel_filters: MelFilters::new(80, 201, vec![0.0; 80 * 201]).unwrap(),
        alignment_heads: Some(vec![(1, 0)]),
        suppress_ids: None,
        suppress_ids_begin: None,
        language_ids: None,
    };
    WhisperCheckpoint::from_ctranslate2(&file, &extras).unwrap()
}

/// The same tokens, but for two that converters spell in an older way.
fn check_tokens(found: &[Vec<u8>], stored: &[Vec<u8>]) {
    assert_eq!(found.len(), stored.len());
    for (id, (found, stored)) in found.iter().zip(stored).enumerate() {
        let renamed: [(&[u8], &[u8]); 2] =
            [(b"<|nospeech|>", b"<|nocaptions|>"), (b"<|he|>", b"<|iw|>")];
        let is_renamed = renamed.contains(&(found, stored));
        assert!(found == stored || is_renamed, "token {id}");
    }
}

#[test]
fn tiny_en_survives_every_format() {
    let Some(path) = real_model("tiny_en_survives_every_format", "whisper-tiny.en-ct2") else {
        return;
    };
    let model = read(&path);
    let config = &model.config;
    assert_eq!((config.n_vocab, config.n_audio_ctx, config.n_text_ctx), (51864, 1500, 448));
    assert_eq!((config.n_audio_state, config.n_audio_head, config.n_audio_layer), (384, 6, 4));
    assert_eq!((config.n_mels, config.n_text_layer), (80, 4));
    let dir = tempfile::tempdir().unwrap();
    let gguf = dir.path().join("tiny.en.gguf");
    let ggml = dir.path().join("ggml-tiny.en.bin");
    let (_, peak) = peak_bytes(|| {
        model.write_gguf(&gguf, WeightType::Keep, &mut |_| true).unwrap();
        model.write_ggml(&ggml, WeightType::Keep, &mut |_| true).unwrap();
    });
    // The largest tensor has 40 MB.
    assert!(peak < 20 << 20, "{peak} bytes");
    for written in [&gguf, &ggml] {
        let again = WhisperCheckpoint::open(written, OpenOptions::new(), None).unwrap();
        assert_eq!(again.config, model.config);
        check_tokens(&again.vocabulary.tokens, &model.vocabulary.tokens);
        assert_eq!(again.tensors().len(), 167);
        for (old, new) in model.tensors().iter().zip(again.tensors()) {
            assert_eq!((old.name(), old.shape()), (new.name(), new.shape()));
            let dtype = old.dtype();
            assert_eq!(dtype, new.dtype(), "{}", old.name());
            assert!(old.to_bytes(dtype).unwrap() == new.to_bytes(dtype).unwrap(), "{}", old.name());
        }
    }
    let seen = inspect(&gguf).unwrap();
    assert_eq!(seen.tensors.len(), 168);
    // 37,184,256 as published, which leaves out the encoder's positions; and the mel filters.
    assert_eq!(seen.parameters, 37_184_256 + 1500 * 384 + 80 * 201);
}

#[test]
fn base_has_the_tokens_that_whisper_has() {
    let Some(path) = real_model("base_has_the_tokens_that_whisper_has", "whisper-base-ct2") else {
        return;
    };
    let model = read(&path);
    assert_eq!((model.config.n_vocab, model.config.n_audio_state), (51865, 512));
    let special: Vec<Vec<u8>> = special_tokens(51865).into_iter().map(String::into_bytes).collect();
    check_tokens(&special, &model.vocabulary.tokens[51865 - special.len()..]);
    let bias = model.tensor("decoder.blocks.5.cross_attn.value.bias").unwrap();
    assert_eq!(bias.dtype(), DType::F32);
    assert_eq!(bias.to_f32().unwrap().len(), 512);
}
