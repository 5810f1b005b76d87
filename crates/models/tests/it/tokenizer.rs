//! Tokenizers against the golden ids and in themselves.

use tensoryard_models::tokenizer::{Tokenizer, Utf8Joiner, WordSplit};
use tensoryard_models::whisper::language::Language;

use crate::golden::{golden, ids, model_file};
use crate::vocabulary::{folder, real, synthetic};

fn check_encode_and_decode(tokenizer: &Tokenizer, golden: &serde_json::Value, source: &str) {
    for case in golden["encode"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let expected = ids(&case["ids"]);
        assert_eq!(tokenizer.encode(text), expected, "{source}: {text:?}");
        assert_eq!(tokenizer.decode_text(&expected), case["decoded"], "{source}: {text:?}");
    }
}

#[test]
fn every_source_of_a_vocabulary_gives_the_golden_ids() {
    let name = "every_source_of_a_vocabulary_gives_the_golden_ids";
    let Some(golden) = golden(name, "whisper_tokenizer.json") else { return };
    for model in ["tiny.en", "base"] {
        let Some(tokenizer) = real(name, model) else { return };
        let path = format!("{}/tokenizer.json", folder(model));
        let Some(json) = model_file(name, &path) else { return };
        let from_json = Tokenizer::from_tokenizer_json(&json).unwrap();
        let n_ordinary = golden[model]["eot"].as_u64().unwrap() as u32;
        let bytes = |id| tokenizer.vocabulary().bytes(id).unwrap().to_vec();
        let ordinary = (0..n_ordinary).map(bytes).collect();
        let without_merges = Tokenizer::from_parts(ordinary, &[]).unwrap();
        let golden = &golden[model];
        check_encode_and_decode(tokenizer, golden, "CTranslate2");
        check_encode_and_decode(&from_json, golden, "tokenizer.json");
        check_encode_and_decode(&without_merges, golden, "tokens alone");
    }
}

#[test]
fn words_split_as_in_the_golden() {
    let name = "words_split_as_in_the_golden";
    let Some(golden) = golden(name, "whisper_tokenizer.json") else { return };
    let Some(tokenizer) = real(name, "base") else { return };
    for case in golden["word_split"].as_array().unwrap() {
        let language: Language = case["language"].as_str().unwrap().parse().unwrap();
        let mut tokens = ids(&case["ids"]);
        tokens.push(50257);
        let words = tokenizer.split_words(&tokens, language.word_split());
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let expected: Vec<&str> =
            case["words"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
        assert_eq!(texts, expected);
        let expected: Vec<Vec<u32>> =
            case["word_tokens"].as_array().unwrap().iter().map(ids).collect();
        assert_eq!(words.into_iter().map(|word| word.tokens).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn unfinished_bytes_stay_with_the_last_word() {
    let (tokenizer, _) = synthetic(51865);
    let words = tokenizer.split_words(&[b'a'.into(), 0xe5, 0xae], WordSplit::Characters);
    assert_eq!(words.len(), 2);
    assert_eq!(words[1].text, "\u{fffd}");
    assert_eq!(words[1].tokens, [0xe5, 0xae]);
}

/// The 256 bytes, then further tokens, as ids 256, 257, …
fn small_vocabulary(extra: &[&str]) -> Vec<Vec<u8>> {
    let bytes = (0..=255).map(|byte: u8| vec![byte]);
    bytes.chain(extra.iter().map(|token| token.as_bytes().to_vec())).collect()
}

fn merge(left: &str, right: &str) -> (Vec<u8>, Vec<u8>) {
    (left.as_bytes().to_vec(), right.as_bytes().to_vec())
}

#[test]
fn merges_in_another_order_than_the_ids_are_obeyed() {
    let tokens = small_vocabulary(&["ab", "bc", "abc"]);
    let by_id = Tokenizer::from_parts(tokens.clone(), &[]).unwrap();
    let merges = [merge("b", "c"), merge("a", "b")];
    let by_list = Tokenizer::from_parts(tokens, &merges).unwrap();
    assert_eq!(by_id.encode("abcd"), [258, 'd' as u32]);
    assert_eq!(by_list.encode("abcd"), ['a' as u32, 257, 'd' as u32]);
    assert_eq!(by_id.encode("xabx"), ['x' as u32, 256, 'x' as u32]);
}

#[test]
fn equal_pairs_merge_from_the_left() {
    let tokens = small_vocabulary(&["aa", "aaaa"]);
    let tokenizer = Tokenizer::from_parts(tokens, &[]).unwrap();
    assert_eq!(tokenizer.encode("aaaaaaa"), [257, 256, 'a' as u32]);
}

#[test]
fn a_long_run_encodes_in_one_go() {
    let tokens = small_vocabulary(&["aa", "aaaa"]);
    let tokenizer = Tokenizer::from_parts(tokens, &[]).unwrap();
    let text = "a".repeat(400_000);
    assert_eq!(tokenizer.encode(&text).len(), 100_000);
}

#[test]
fn text_that_looks_special_is_text() {
    let (tokenizer, special) = synthetic(51865);
    let ids = tokenizer.encode("<|endoftext|>");
    assert!(ids.iter().all(|&id| id < special.eot));
    assert_eq!(tokenizer.decode(&ids), b"<|endoftext|>");
    assert_eq!(tokenizer.vocabulary().special_id("<|endoftext|>"), Some(special.eot));
    assert_eq!(tokenizer.decode_text(&[b'x'.into(), special.eot]), "x");
}

#[test]
fn any_text_survives_encoding_and_streaming() {
    let (tokenizer, _) = synthetic(51864);
    let mut random = crate::scripted::Random::new(7);
    for round in 0..300 {
        let text: String = (0..random.below(40))
            .map(|_| match random.below(4) {
                0 => char::from(random.below(128) as u8),
                1 => ' ',
                2 => char::from_u32(0x3040 + random.below(0x60)).unwrap(),
                _ => char::from_u32(random.below(0x11_0000)).unwrap_or('\n'),
            })
            .collect();
        let ids = tokenizer.encode(&text);
        assert_eq!(tokenizer.decode(&ids), text.as_bytes(), "seed 7, round {round}");
        let mut joiner = Utf8Joiner::new();
        let mut streamed: String =
            ids.iter().map(|&id| joiner.push(&tokenizer.decode(&[id]))).collect();
        streamed.push_str(&joiner.finish());
        assert_eq!(streamed, text, "seed 7, round {round}");
    }
}

#[test]
fn unusable_vocabularies_are_named_errors() {
    let without_bytes = Tokenizer::from_parts(vec![b"a".to_vec()], &[]).unwrap_err();
    assert_eq!(
        without_bytes.to_string(),
        "vocabulary: byte 0x00 has no token, so text cannot be encoded"
    );
    let tokens = small_vocabulary(&["ab"]);
    let error = Tokenizer::from_parts(tokens, &[merge("b", "c")]).unwrap_err().to_string();
    assert_eq!(error, "vocabulary: merge 0 needs \"bc\", which is no token");
    let json = r#"{"model": {"vocab": {"a": 0}, "merges": ["a b", "ab"]}}"#;
    let error = Tokenizer::from_tokenizer_json(json).unwrap_err().to_string();
    assert_eq!(error, "vocabulary: tokenizer.json: merge 1 (\"ab\") is not two tokens");
    for json in ["", "<html>", "{}", r#"{"model":{"vocab":{"a":4294967295}}}"#] {
        let error = Tokenizer::from_tokenizer_json(json).unwrap_err().to_string();
        assert!(error.starts_with("vocabulary: tokenizer.json"), "{error}");
    }
}
