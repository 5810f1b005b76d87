//! Decoding of one window by scripted models and by replayed golden logits.

use serde_json::Value;
use tensoryard_models::Error;
use tensoryard_models::whisper::decode::{
    DecodeOptions, Decoder, ModelDims, SpeechModel, StopReason, compression_ratio,
};
use tensoryard_models::whisper::language::Language;
use tensoryard_models::whisper::special::SpecialTokens;

use crate::golden::{float, golden, ids};
use crate::scripted::{Noise, Random, Script, Scripted};
use crate::vocabulary::{real, synthetic, word};

fn never() -> bool {
    false
}

#[test]
fn scores_are_those_of_the_script() {
    let (tokenizer, special) = synthetic(51865);
    let time = |index| special.timestamp_begin + index;
    let script = Script {
        tokens: vec![time(0), word('a'), word('b'), time(100)],
        no_speech: 0.25,
        confidence: 12.0,
    };
    let mut model = Scripted::new(special, vec![script]);
    let decoder = Decoder::new(&tokenizer, model.dims(), DecodeOptions::default()).unwrap();
    model.encode(&vec![0.0; 6000]).unwrap();
    let window = decoder.decode(&mut model, Language::ENGLISH, &[], &mut never).unwrap();

    assert_eq!(window.tokens, [time(0), word('a'), word('b'), time(100)]);
    assert_eq!(window.text, "a b");
    assert_eq!(window.stop, StopReason::EndOfText);
    assert!((window.no_speech_prob - 0.25).abs() < 1e-4, "{}", window.no_speech_prob);
    assert_eq!(window.log_probs.len(), 5);
    // The first token competes with timestamps 0.02 to 1.00 of logit 0 only.
    let first = -(1.0 + 50.0 * (-12.0_f32).exp()).ln();
    assert!((window.log_probs[0] - first).abs() < 1e-6);
    let mean = window.log_probs.iter().sum::<f32>() / 5.0;
    assert!((window.avg_logprob - mean).abs() < 1e-6);
    assert_eq!(model.prompts, [[special.sot, special.sot + 1, special.transcribe]]);
}

#[test]
fn a_text_without_end_stops_at_half_the_context() {
    let (tokenizer, special) = synthetic(51864);
    let mut model = Noise { special, random: Random::new(3), may_end: false };
    let decoder = Decoder::new(&tokenizer, model.dims(), DecodeOptions::default()).unwrap();
    let prompt = vec![word('a'); 600];
    let window = decoder.decode(&mut model, Language::ENGLISH, &prompt, &mut never).unwrap();
    assert_eq!(window.tokens.len(), 224);
    assert_eq!(window.stop, StopReason::Length);
    assert_eq!(window.log_probs.len(), 224);
}

#[test]
fn a_full_prompt_and_a_full_text_stay_inside_the_context() {
    let (tokenizer, special) = synthetic(51865);
    let mut text = vec![special.timestamp_begin];
    text.extend(vec![word('a'); 400]);
    let mut model = Scripted::new(special, vec![Script::new(&text)]);
    let mut options = DecodeOptions::default();
    options.max_tokens = Some(1000);
    let decoder = Decoder::new(&tokenizer, model.dims(), options).unwrap();
    model.encode(&vec![0.0; 6000]).unwrap();
    let prompt: Vec<u32> =
        (0..500).map(|at| if at == 276 { word('c') } else { word('b') }).collect();
    let window = decoder.decode(&mut model, Language::ENGLISH, &prompt, &mut never).unwrap();

    // 1 + 223 prompt tokens + 3 of the start sequence, then 221 positions; the last
    // sampled token needs no position.
    let initial = &model.prompts[0];
    assert_eq!(initial.len(), 227);
    assert_eq!(initial[0], special.sot_prev);
    assert_eq!(initial[1], prompt[277], "the end of the prompt is kept");
    assert_eq!(window.tokens.len(), 448 - 227 + 1);
}

#[test]
fn no_timestamps_is_said_to_the_model() {
    let (tokenizer, special) = synthetic(51864);
    let mut model = Scripted::new(special, vec![Script::new(&[word('a'), word('c')])]);
    let mut options = DecodeOptions::default();
    options.rules.timestamps = false;
    let decoder = Decoder::new(&tokenizer, model.dims(), options).unwrap();
    model.encode(&vec![0.0; 6000]).unwrap();
    let window = decoder.decode(&mut model, Language::ENGLISH, &[], &mut never).unwrap();
    assert_eq!(model.prompts, [[special.sot, special.no_timestamps]]);
    assert_eq!(window.tokens, [word('a'), word('c')]);
}

#[test]
fn stopping_takes_one_step() {
    let (tokenizer, special) = synthetic(51864);
    let mut model = Scripted::new(special, vec![Script::new(&[special.timestamp_begin; 1])]);
    let decoder = Decoder::new(&tokenizer, model.dims(), DecodeOptions::default()).unwrap();
    model.encode(&vec![0.0; 6000]).unwrap();
    let mut polls = 0;
    let mut second = || {
        polls += 1;
        polls == 2
    };
    let error = decoder.decode(&mut model, Language::ENGLISH, &[], &mut second).unwrap_err();
    assert!(matches!(error, Error::Stopped));
    assert_eq!(model.steps, 1);
}

/// A model with fixed logits in every row.
struct Fixed(Vec<f32>);

impl SpeechModel for Fixed {
    fn dims(&self) -> ModelDims {
        ModelDims { n_vocab: 51864, n_text_ctx: 448, n_mels: 80 }
    }

    fn encode(&mut self, _mel: &[f32]) -> Result<(), Error> {
        Ok(())
    }

    fn decode(
        &mut self,
        _tokens: &[u32],
        _position: usize,
        _rows: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), Error> {
        logits.clone_from(&self.0);
        Ok(())
    }
}

#[test]
fn unusable_logits_are_errors() {
    let (tokenizer, _) = synthetic(51864);
    let with = |at: usize, value: f32| {
        let mut logits = vec![0.0; 51864];
        logits[at] = value;
        logits
    };
    let cases = [
        (with(51863, f32::NAN), "unusable logits at step 0: some are NaN or infinite"),
        (with(7, f32::INFINITY), "unusable logits at step 0: some are NaN or infinite"),
        (vec![f32::NEG_INFINITY; 51864], "unusable logits at step 0: no token has any probability"),
        (vec![0.0; 3], "logits: expected 51864 values, got 3"),
    ];
    for (logits, message) in cases {
        let mut model = Fixed(logits);
        let decoder = Decoder::new(&tokenizer, model.dims(), DecodeOptions::default()).unwrap();
        let error = decoder.decode(&mut model, Language::ENGLISH, &[], &mut never).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn the_language_is_the_most_probable_one() {
    let (tokenizer, special) = synthetic(51866);
    let mut model = Scripted::new(special, Vec::new());
    model.language = "yue";
    let decoder = Decoder::new(&tokenizer, model.dims(), DecodeOptions::default()).unwrap();
    let probabilities = decoder.detect_language(&mut model).unwrap();
    assert_eq!(probabilities.len(), 100);
    assert_eq!(probabilities[0].0.code(), "yue");
    let expected = 8.0_f32.exp() / (8.0_f32.exp() + 99.0);
    assert!((probabilities[0].1 - expected).abs() < 1e-5);
    let sum: f32 = probabilities.iter().map(|p| p.1).sum();
    assert!((sum - 1.0).abs() < 1e-5);
}

const REPLAYS: [(&str, &str); 12] = [
    ("tiny.en", "en_jfk"),
    ("tiny.en", "en_ls_1995-1837-0001"),
    ("tiny.en", "en_librivox_ss01_0870"),
    ("tiny.en", "en_pico_quilter"),
    ("tiny.en", "silence_10s"),
    ("tiny.en", "music_only_12s"),
    ("base", "en_jfk"),
    ("base", "de_pico"),
    ("base", "ja_pico"),
    ("base", "zh_aishell_BAC009S0724W0121"),
    ("base", "fr_pico"),
    ("base", "silence_10s"),
];

/// Raw logits of the original model at every position of its own greedy text.
///
/// The five best and the sum are known; what is missing from the sum lies on the
/// kind of token (timestamp or text) that came next.
struct Replay {
    special: SpecialTokens,
    tokens: Vec<u32>,
    rows: Vec<Vec<(u32, f32)>>,
    log_sums: Vec<f32>,
    no_speech_prob: f32,
}

impl Replay {
    fn row(&self, position: usize) -> Vec<f32> {
        let n_vocab = self.special.n_vocab as usize;
        let split = self.special.timestamp_begin as usize;
        let mut logits = vec![-60.0; n_vocab];
        let known: f64 = self.rows[position].iter().map(|&(_, x)| f64::from(x).exp()).sum();
        let rest = (f64::from(self.log_sums[position]).exp() - known).max(1e-12);
        let next_is_time =
            self.tokens.get(position + 1).is_some_and(|&next| self.special.is_timestamp(next));
        let share = if next_is_time { split..n_vocab } else { 0..split };
        let each = (rest / share.len() as f64).ln() as f32;
        logits[share].fill(each);
        if let Some(&next) = self.tokens.get(position + 1) {
            // Where the rules forbid all five, the next token ranks just below them.
            let fifth = self.rows[position].last().map_or(0.0, |&(_, logit)| logit);
            logits[next as usize] = fifth - 0.5;
        }
        for &(token, logit) in &self.rows[position] {
            logits[token as usize] = logit;
        }
        if self.tokens[position] == self.special.sot {
            let logit = self.log_sums[position] + self.no_speech_prob.ln();
            logits[self.special.no_speech as usize] = logit;
        }
        logits
    }
}

impl SpeechModel for Replay {
    fn dims(&self) -> ModelDims {
        ModelDims { n_vocab: self.special.n_vocab as usize, n_text_ctx: 448, n_mels: 80 }
    }

    fn encode(&mut self, _mel: &[f32]) -> Result<(), Error> {
        Ok(())
    }

    fn decode(
        &mut self,
        tokens: &[u32],
        position: usize,
        rows: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), Error> {
        assert_eq!(tokens, &self.tokens[position..position + tokens.len()], "off the golden path");
        *logits = rows.iter().flat_map(|row| self.row(position + row)).collect();
        Ok(())
    }
}

fn replay(golden: &Value, n_vocab: usize) -> Replay {
    let forced = &golden["teacher_forced"];
    let pair = |pair: &Value| (pair[0].as_u64().unwrap() as u32, float(&pair[1]));
    let row = |row: &Value| row.as_array().unwrap().iter().map(pair).collect();
    Replay {
        special: SpecialTokens::from_vocab_size(n_vocab).unwrap(),
        tokens: ids(&forced["tokens"]),
        rows: forced["top5"].as_array().unwrap().iter().map(row).collect(),
        log_sums: forced["logsumexp"].as_array().unwrap().iter().map(float).collect(),
        no_speech_prob: float(&golden["no_speech_raw_prob_at_sot"]),
    }
}

#[test]
fn greedy_decoding_follows_the_golden_path() {
    let name = "greedy_decoding_follows_the_golden_path";
    for (model, clip) in REPLAYS {
        let Some(golden) = golden(name, &format!("whisper/{model}__{clip}.json")) else { return };
        let Some(tokenizer) = real(name, model) else { return };
        let expected = &golden["decode_greedy"];
        let mut replay = replay(&golden, if model == "base" { 51865 } else { 51864 });
        let decoder = Decoder::new(tokenizer, replay.dims(), DecodeOptions::default()).unwrap();
        let language = expected["language"].as_str().unwrap().parse().unwrap();
        let window = decoder.decode(&mut replay, language, &[], &mut never).unwrap();

        assert_eq!(window.tokens, ids(&expected["tokens"]), "{model} {clip}");
        assert_eq!(window.text, expected["text"].as_str().unwrap(), "{model} {clip}");
        assert_eq!(window.stop, StopReason::EndOfText);
        let no_speech = float(&expected["no_speech_prob"]);
        assert!((window.no_speech_prob - no_speech).abs() < 2e-3, "{model} {clip}");
        let ratio = float(&expected["compression_ratio"]);
        assert!((window.compression_ratio / ratio - 1.0).abs() < 0.12, "{model} {clip}");
    }
}

#[test]
fn repetition_shows_in_the_compression_ratio() {
    assert_eq!(compression_ratio(""), 0.0);
    assert!(compression_ratio("Nothing here repeats.") < 1.0);
    assert!(compression_ratio(&"way to get the ".repeat(30)) > 10.0);
}
