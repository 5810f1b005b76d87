//! Greedy decoding of one window against the original.

use std::sync::Arc;

use tensoryard::models::whisper::decode::{DecodeOptions, DecodedWindow, Decoder, SpeechModel};
use tensoryard::models::whisper::{WhisperModel, WhisperSession};
use tensoryard::speech::{Language, Task};

use crate::encoder::mel_window;
use crate::goldens::{float, goldens, ids, language, read_json};
use crate::support::{assets, model, samples};

/// Accepted error of a mean log probability and of a probability.
const SCORE_ERROR: f32 = 2e-3;

fn decode(
    session: &mut WhisperSession,
    language: Language,
    change: impl FnOnce(&mut DecodeOptions),
) -> DecodedWindow {
    let model = Arc::clone(session.model());
    let mut options = DecodeOptions::default();
    change(&mut options);
    decoder(&model, session, options).decode(session, language, &[], &mut || false).unwrap()
}

fn decoder<'a>(
    model: &'a WhisperModel,
    session: &WhisperSession,
    options: DecodeOptions,
) -> Decoder<'a> {
    Decoder::new(model.tokenizer(), session.dims(), options).unwrap()
}

fn assert_is(window: &DecodedWindow, golden: &serde_json::Value, name: &str) {
    assert_eq!(window.tokens, ids(&golden["tokens"]), "{name}");
    assert_eq!(window.text, golden["text"].as_str().unwrap(), "{name}");
    let log_prob_error = (window.avg_logprob - float(&golden["avg_logprob"])).abs();
    let no_speech_error = (window.no_speech_prob - float(&golden["no_speech_prob"])).abs();
    eprintln!("{name}: mean log p {log_prob_error:.1e}, no speech {no_speech_error:.1e}");
    assert!(log_prob_error <= SCORE_ERROR, "{name}: mean log p {log_prob_error}");
    assert!(no_speech_error <= SCORE_ERROR, "{name}: no speech {no_speech_error}");
}

#[test]
fn greedy_tokens_are_the_golden_ones() {
    let test = "greedy_tokens_are_the_golden_ones";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(model) = model(test, name) else { continue };
        let mut session = model.session().unwrap();
        let mut n_translated = 0;
        for golden in goldens(&assets, name) {
            let mel = mel_window(&session, &golden.samples);
            session.encode(&mel).unwrap();
            let language = golden.language();
            let window = decode(&mut session, language, |_| ());
            assert_is(&window, &golden.json["decode_greedy"], &golden.name);

            let window = decode(&mut session, language, |o| o.rules.timestamps = false);
            let expected = &golden.json["decode_greedy_notimestamps"];
            assert_is(&window, expected, &format!("{} without timestamps", golden.name));

            if let Some(expected) = golden.json.get("decode_translate_greedy") {
                let window = decode(&mut session, language, |o| o.task = Task::Translate);
                assert_is(&window, expected, &format!("{} translated", golden.name));
                n_translated += 1;
            }
        }
        assert!(name == "tiny.en" || n_translated >= 3, "{n_translated} translations");
    }
}

#[test]
fn languages_are_as_probable_as_in_the_original() {
    let test = "languages_are_as_probable_as_in_the_original";
    let Some(assets) = assets(test) else { return };
    let Some(model) = model(test, "base") else { return };
    let mut session = model.session().unwrap();
    for golden in goldens(&assets, "base") {
        let mel = mel_window(&session, &golden.samples);
        session.encode(&mel).unwrap();
        let decoder = decoder(&model, &session, DecodeOptions::default());
        let probabilities = decoder.detect_language(&mut session).unwrap();
        let sum: f32 = probabilities.iter().map(|(_, p)| p).sum();
        assert!((sum - 1.0).abs() < 1e-4, "{}: sum {sum}", golden.name);
        for (rank, pair) in
            golden.json["language_probs_top10"].as_array().unwrap().iter().enumerate()
        {
            let expected = language(&pair[0]);
            let (_, got) = probabilities.iter().find(|(l, _)| *l == expected).unwrap();
            let error = (got - float(&pair[1])).abs();
            assert!(error <= SCORE_ERROR, "{} {expected}: {error}", golden.name);
            if rank == 0 {
                assert_eq!(probabilities[0].0, expected, "{}", golden.name);
            }
        }
    }
}

#[test]
fn a_window_filled_up_in_mel_space_decodes_as_in_the_original() {
    let test = "a_window_filled_up_in_mel_space_decodes_as_in_the_original";
    let Some(assets) = assets(test) else { return };
    let records = read_json(&assets.join("golden/whisper/padvariant_transcribe.json"));
    for (key, record) in records.as_object().unwrap() {
        let (name, clip) = key.split_once("__").unwrap();
        let Some(model) = model(test, name) else { continue };
        let mut session = model.session().unwrap();
        let samples = samples(&assets, &format!("{clip}.wav"));
        session.encode(&model.log_mel().recording(&samples, 1).window(0, 3000)).unwrap();
        let expected = &record["decode_greedy"];
        let window = decode(&mut session, language(&expected["language"]), |_| ());
        assert_is(&window, expected, key);
    }
}
