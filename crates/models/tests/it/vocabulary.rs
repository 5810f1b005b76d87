//! Vocabularies for tests.
//!
//! [`synthetic`] has the size and special tokens of a real one and needs no file:
//! its ordinary tokens are the 256 bytes, then a few words, then fillers.

use std::sync::OnceLock;

use tensoryard_formats::ctranslate2::parse_vocabulary;
use tensoryard_formats::whisper::token_bytes;
use tensoryard_models::tokenizer::Tokenizer;
use tensoryard_models::whisper::special::SpecialTokens;

use crate::golden::model_file;

const WORDS: [&str; 6] = [" a", " b", " c", " d", " e", " f"];

/// A tokenizer with as many ordinary tokens as the Whisper vocabulary of that size.
pub fn synthetic(n_vocab: usize) -> (Tokenizer, SpecialTokens) {
    let special = SpecialTokens::from_vocab_size(n_vocab).unwrap();
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte: u8| vec![byte]).collect();
    tokens.extend(WORDS.iter().map(|word| word.as_bytes().to_vec()));
    let fillers = tokens.len()..special.eot as usize;
    tokens.extend(fillers.map(|id| format!("<filler {id}>").into_bytes()));
    tokens.push(b"<|endoftext|>".to_vec());
    (Tokenizer::from_parts(tokens, &[]).unwrap(), special)
}

/// Token of one of the words `" a"` to `" f"` in a synthetic vocabulary.
pub fn word(letter: char) -> u32 {
    256 + (letter as u32 - 'a' as u32)
}

/// The folder of a real model's vocabulary.
pub fn folder(model: &str) -> &'static str {
    match model {
        "tiny.en" => "whisper-tiny.en-ct2",
        "base" => "whisper-base-ct2",
        other => panic!("no vocabulary for {other}"),
    }
}

/// The tokenizer of a real model, from its `vocabulary.txt` and `tokenizer.json`.
pub fn real(test: &str, model: &str) -> Option<&'static Tokenizer> {
    static TINY: OnceLock<Option<Tokenizer>> = OnceLock::new();
    static BASE: OnceLock<Option<Tokenizer>> = OnceLock::new();
    let cell = if model == "base" { &BASE } else { &TINY };
    let load = || {
        let vocabulary = model_file(test, &format!("{}/vocabulary.txt", folder(model)))?;
        let json = model_file(test, &format!("{}/tokenizer.json", folder(model)))?;
        let file: serde_json::Value = serde_json::from_str(&json).unwrap();
        let merges = file["model"]["merges"].as_array().unwrap();
        let pair = |text: &str| text.split_once(' ').map(|(l, r)| (token_bytes(l), token_bytes(r)));
        let merges: Vec<_> = merges.iter().map(|m| pair(m.as_str().unwrap()).unwrap()).collect();
        Some(Tokenizer::from_parts(parse_vocabulary(&vocabulary), &merges).unwrap())
    };
    cell.get_or_init(load).as_ref()
}
