//! Logits of the decoder against the original, and against themselves when
//! tokens are run one by one or all at once.

use std::sync::Arc;

use serde_json::Value;
use tensoryard::graph::DType;
use tensoryard::models::whisper::decode::SpeechModel;
use tensoryard::models::whisper::rules::log_sum_exp;
use tensoryard::models::whisper::{LoadOptions, WhisperModel, WhisperSession};

use crate::encoder::mel_window;
use crate::goldens::{Golden, float, goldens, ids};
use crate::support::{assets, load, max_abs, model, model_path};

/// Accepted error of a logit of the first step. The goldens are f32 throughout; keys and values
/// are f16 here.
const LOGIT_ERROR: f32 = 0.02;

/// Accepted error at any position: logits of `base` grow to 60, and their error with them.
const LATER_LOGIT_ERROR: f32 = 0.03;

/// Accepted error at any position with f32 keys and values.
const F32_LOGIT_ERROR: f32 = 1e-3;

/// Accepted difference between one step for all tokens and one step for each.
const STEPWISE_ERROR: f32 = 2e-3;

fn encoded(session: &mut WhisperSession, golden: &Golden) {
    let mel = mel_window(session, &golden.samples);
    session.encode(&mel).unwrap();
}

fn run(session: &mut WhisperSession, tokens: &[u32], position: usize) -> Vec<f32> {
    let rows: Vec<usize> = (0..tokens.len()).collect();
    let mut logits = Vec::new();
    session.decode(tokens, position, &rows, &mut logits).unwrap();
    logits
}

#[test]
fn logits_of_the_first_step_are_the_golden_ones() {
    let test = "logits_of_the_first_step_are_the_golden_ones";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(model) = model(test, name) else { continue };
        let mut session = model.session().unwrap();
        let golden = Golden::load(&assets, name, "en_jfk");
        encoded(&mut session, &golden);
        let forced = ids(&golden.json["teacher_forced"]["tokens"]);
        let n_start = forced.len() - ids(&golden.json["decode_greedy"]["tokens"]).len() - 1;
        let logits = run(&mut session, &forced[..n_start], 0);
        let n_vocab = model.config().n_vocab;
        let last = &logits[(n_start - 1) * n_vocab..];
        for (array, got) in
            [("decoder_sot_logits", &logits[..n_vocab]), ("first_step_logits", last)]
        {
            let error = max_abs(got, &golden.array(array).data);
            eprintln!("{name} {array}: max abs error {error:.1e}");
            assert!(error <= LOGIT_ERROR, "{name} {array}: {error}");
        }
    }
}

#[test]
fn logits_at_every_position_are_the_golden_ones() {
    let test = "logits_at_every_position_are_the_golden_ones";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(model) = model(test, name) else { continue };
        for golden in goldens(&assets, name) {
            let error = worst_error(&model, &golden);
            eprintln!("{}, f16 caches: max abs error {error:.1e}", golden.name);
            assert!(error <= LATER_LOGIT_ERROR, "{}: {error}", golden.name);
        }
    }
}

#[test]
fn logits_with_f32_caches_are_nearer_to_the_golden_ones() {
    let test = "logits_with_f32_caches_are_nearer_to_the_golden_ones";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(path) = model_path(test, name) else { continue };
        let mut options = LoadOptions::default();
        options.cache = DType::F32;
        let model = load(&path, &options);
        for clip in ["en_jfk", "silence_10s"] {
            let golden = Golden::load(&assets, name, clip);
            let error = worst_error(&model, &golden);
            eprintln!("{}, f32 caches: max abs error {error:.1e}", golden.name);
            assert!(error <= F32_LOGIT_ERROR, "{}: {error}", golden.name);
        }
    }
}

/// Largest error of the five largest logits, their log sum of exponentials and the log
/// probability of the next token, over all positions.
fn worst_error(model: &Arc<WhisperModel>, golden: &Golden) -> f32 {
    let mut session = model.session().unwrap();
    encoded(&mut session, golden);
    let forced = &golden.json["teacher_forced"];
    let tokens = ids(&forced["tokens"]);
    let logits = run(&mut session, &tokens, 0);
    let n_vocab = model.config().n_vocab;
    let log_probs = golden.json["greedy_token_logprobs"].as_array().unwrap();
    let n_start = tokens.len() - 1 - log_probs.len();
    let mut worst = 0.0;
    let mut compare = |what: &str, position: usize, got: f32, expected: &Value| {
        let error = (got - float(expected)).abs();
        assert!(!error.is_nan(), "{}: {what} at {position}", golden.name);
        worst = f32::max(worst, error);
    };
    for (position, logits) in logits.chunks(n_vocab).enumerate() {
        for pair in forced["top5"][position].as_array().unwrap() {
            let id = pair[0].as_u64().unwrap() as usize;
            compare("logit", position, logits[id], &pair[1]);
        }
        let sum = log_sum_exp(logits) as f32;
        compare("log sum exp", position, sum, &forced["logsumexp"][position]);
        if let Some(expected) = (position + 1).checked_sub(n_start).and_then(|i| log_probs.get(i)) {
            let token = tokens[position + 1] as usize;
            compare("log p", position, logits[token] - sum, expected);
        }
    }
    worst
}

#[test]
fn tokens_one_by_one_give_the_logits_of_tokens_at_once() {
    let test = "tokens_one_by_one_give_the_logits_of_tokens_at_once";
    let Some(assets) = assets(test) else { return };
    for name in ["tiny.en", "base"] {
        let Some(model) = model(test, name) else { continue };
        let mut session = model.session().unwrap();
        let golden = Golden::load(&assets, name, "en_jfk");
        encoded(&mut session, &golden);
        let tokens = ids(&golden.json["teacher_forced"]["tokens"]);
        let at_once = run(&mut session, &tokens, 0);
        let one_by_one: Vec<f32> = tokens
            .iter()
            .enumerate()
            .flat_map(|(position, &token)| run(&mut session, &[token], position))
            .collect();
        let error = max_abs(&one_by_one, &at_once);
        eprintln!("{name}: one by one differs by {error:.1e}");
        assert!(error <= STEPWISE_ERROR, "{name}: {error}");

        // Going back forgets what came after.
        let again = run(&mut session, &tokens[..4], 0);
        assert!(max_abs(&again, &at_once[..again.len()]) <= STEPWISE_ERROR, "{name}");
    }
}
