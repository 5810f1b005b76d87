//! Special tokens against the golden ids.

use tensoryard_models::Error;
use tensoryard_models::tokenizer::Tokenizer;
use tensoryard_models::whisper::language::Language;
use tensoryard_models::whisper::rules::{
    LogitRules, RuleOptions, SuppressionLists, non_speech_tokens,
};
use tensoryard_models::whisper::special::{SpecialTokens, Task};

use crate::golden::{golden, ids, model_file};
use crate::vocabulary::{folder, real, synthetic};

#[test]
fn special_tokens_have_the_golden_ids() {
    let Some(golden) = golden("special_tokens_have_the_golden_ids", "whisper_tokenizer.json")
    else {
        return;
    };
    for model in ["tiny.en", "base", "large-v3"] {
        let golden = &golden[model];
        let special =
            SpecialTokens::from_vocab_size(golden["n_vocab"].as_u64().unwrap() as usize).unwrap();
        for (name, id) in [
            ("eot", special.eot),
            ("sot", special.sot),
            ("sot_lm", special.sot_lm),
            ("sot_prev", special.sot_prev),
            ("no_speech", special.no_speech),
            ("no_timestamps", special.no_timestamps),
            ("timestamp_begin", special.timestamp_begin),
            ("translate", special.translate),
            ("transcribe", special.transcribe),
        ] {
            assert_eq!(golden[name], id, "{model} {name}");
        }
        let start = special.start_sequence(Language::ENGLISH, Task::Transcribe).unwrap();
        assert_eq!(start, ids(&golden["sot_sequence"]), "{model}");

        let languages = golden["language_tokens"].as_object().unwrap();
        assert_eq!(special.language_tokens().len(), languages.len(), "{model}");
        for (code, token) in languages {
            let language: Language = code.parse().unwrap();
            let token = token.as_u64().unwrap() as u32;
            assert_eq!(special.language_token(language), Some(token), "{model} {code}");
            assert_eq!(special.language(token), Some(language), "{model} {code}");
        }
    }
}

#[test]
fn non_speech_tokens_are_the_golden_list() {
    let name = "non_speech_tokens_are_the_golden_list";
    let Some(golden) = golden(name, "whisper_tokenizer.json") else { return };
    for (model, folder) in [("tiny.en", "tiny.en"), ("base", "base"), ("large-v3", "base")] {
        let Some(tokenizer) = real(name, folder) else { return };
        let expected = ids(&golden[model]["non_speech_tokens"]);
        assert_eq!(non_speech_tokens(tokenizer), expected, "{model}");
        assert_eq!(tokenizer.encode(" "), ids(&golden[model]["blank"]), "{model}");
    }
}

/// `config.json` has the lists that the original publishes for its models.
#[test]
fn the_lists_of_the_original_models_are_the_computed_ones() {
    let name = "the_lists_of_the_original_models_are_the_computed_ones";
    for (model, n_vocab) in [("tiny.en", 51864), ("base", 51865)] {
        let Some(tokenizer) = real(name, model) else { return };
        let Some(config) = model_file(name, &format!("{}/config.json", folder(model))) else {
            return;
        };
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        let lists = SuppressionLists {
            always: Some(ids(&config["suppress_ids"])),
            first: Some(ids(&config["suppress_ids_begin"])),
        };
        let special = SpecialTokens::from_vocab_size(n_vocab).unwrap();
        let rules = |lists| LogitRules::new(tokenizer, special, lists, &RuleOptions::default());
        let (listed, computed) = (rules(&lists), rules(&SuppressionLists::default()));
        assert_eq!(Some(computed.suppressed().to_vec()), lists.always, "{model}");
        assert_eq!(Some(computed.suppressed_first().to_vec()), lists.first, "{model}");
        assert_eq!(listed.suppressed(), computed.suppressed(), "{model}");
    }
}

#[test]
fn named_special_tokens_agree_with_real_vocabularies() {
    let name = "named_special_tokens_agree_with_real_vocabularies";
    for (model, n_vocab) in [("tiny.en", 51864), ("base", 51865)] {
        let Some(tokenizer) = real(name, model) else { return };
        assert_eq!(
            SpecialTokens::for_tokenizer(n_vocab, tokenizer).unwrap(),
            SpecialTokens::from_vocab_size(n_vocab).unwrap()
        );
        let other = if n_vocab == 51864 { 51865 } else { 51864 };
        assert!(matches!(
            SpecialTokens::for_tokenizer(other, tokenizer),
            Err(Error::Vocabulary { .. })
        ));
    }
}

#[test]
fn other_vocabulary_sizes_are_refused() {
    for n_vocab in [0, 1, 51763, 51863, 51867, 32000, usize::MAX] {
        assert!(matches!(
            SpecialTokens::from_vocab_size(n_vocab),
            Err(Error::NotWhisperVocabulary { n_vocab: found }) if found == n_vocab
        ));
    }
}

#[test]
fn a_misplaced_special_token_is_an_error() {
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte: u8| vec![byte]).collect();
    tokens.resize(50257, b"x".to_vec());
    tokens[300] = b"<|endoftext|>".to_vec();
    let tokenizer = Tokenizer::from_parts(tokens, &[]).unwrap();
    let error = SpecialTokens::for_tokenizer(51865, &tokenizer).unwrap_err().to_string();
    assert!(error.contains("<|endoftext|> has id 300, expected 50257"), "{error}");
}

#[test]
fn impossible_languages_and_tasks_are_named() {
    let (_, english) = synthetic(51864);
    let (_, multilingual) = synthetic(51865);
    let (_, large) = synthetic(51866);
    let german: Language = "de".parse().unwrap();
    let cantonese: Language = "yue".parse().unwrap();
    let error = english.start_sequence(german, Task::Transcribe).unwrap_err().to_string();
    assert!(error.contains("English only and cannot transcribe German"), "{error}");
    assert!(english.start_sequence(Language::ENGLISH, Task::Translate).is_err());
    let error = multilingual.start_sequence(cantonese, Task::Transcribe).unwrap_err().to_string();
    assert!(error.contains("no token for cantonese"), "{error}");
    assert_eq!(large.start_sequence(cantonese, Task::Translate).unwrap(), [50258, 50358, 50359]);
}
