//! Each rule on logits alone, and their guarantees together.

use tensoryard_models::whisper::rules::{
    LogitRules, RuleOptions, SuppressionLists, log_sum_exp, open_with_timestamp, order_timestamps,
    pair_timestamps, prefer_timestamps_in_sum, suppress_blank, suppress_tokens,
};
use tensoryard_models::whisper::special::SpecialTokens;

use crate::scripted::Random;
use crate::vocabulary::{synthetic, word};

fn special() -> SpecialTokens {
    SpecialTokens::from_vocab_size(51865).unwrap()
}

/// Timestamp token of a time in units of 0.02 s.
fn time(index: u32) -> u32 {
    special().timestamp_begin + index
}

/// Runs a rule on flat logits and returns which tokens are left.
fn allowed(rule: impl Fn(&mut [f32])) -> Vec<bool> {
    let mut logits = vec![0.0; 51865];
    rule(&mut logits);
    logits.iter().map(|&x| x == 0.0).collect()
}

fn check(left: &[bool], may: &[u32], may_not: &[u32]) {
    for &token in may {
        assert!(left[token as usize], "{token} should be allowed");
    }
    for &token in may_not {
        assert!(!left[token as usize], "{token} should be suppressed");
    }
}

#[test]
fn suppressed_tokens_outside_the_logits_are_ignored() {
    let mut logits = [1.0, 2.0];
    suppress_tokens(&mut logits, &[1, 2, u32::MAX]);
    assert_eq!(logits, [1.0, f32::NEG_INFINITY]);
}

#[test]
fn blank_is_suppressed_at_the_start_only() {
    let eot = special().eot;
    let at_start = allowed(|logits| suppress_blank(logits, &[], &[220, eot]));
    check(&at_start, &[219, time(0)], &[220, eot]);
    let later = allowed(|logits| suppress_blank(logits, &[time(0)], &[220, eot]));
    check(&later, &[220, eot], &[]);
}

#[test]
fn timestamps_come_in_pairs() {
    let eot = special().eot;
    let pair = |sampled: &[u32]| allowed(|logits| pair_timestamps(logits, sampled, &special()));
    check(&pair(&[]), &[0, eot, time(0)], &[]);
    check(&pair(&[time(0)]), &[0, eot], &[time(0), time(1500)]);
    check(&pair(&[time(0), 5]), &[0, eot, time(9)], &[]);
    check(&pair(&[time(0), 5, time(9)]), &[eot, time(9)], &[0, eot - 1]);
    check(&pair(&[time(0), 5, time(9), time(9)]), &[0, eot], &[time(9), time(10)]);
}

#[test]
fn timestamps_do_not_decrease() {
    let order = |sampled: &[u32]| allowed(|logits| order_timestamps(logits, sampled, &special()));
    check(&order(&[5]), &[time(0)], &[]);
    check(&order(&[time(7)]), &[time(8), 5], &[time(0), time(7)]);
    check(&order(&[time(7), 5]), &[time(8)], &[time(7)]);
    check(&order(&[time(7), 5, time(9)]), &[time(9)], &[time(8)]);
    check(&order(&[time(7), 5, time(9), time(9)]), &[time(10)], &[time(9)]);
    check(&order(&[time(1500), 5]), &[0], &[time(1500)]);
}

#[test]
fn the_first_token_is_an_early_timestamp() {
    let open = |sampled: &[u32], max| {
        allowed(|logits| open_with_timestamp(logits, sampled, max, &special()))
    };
    let one_second = open(&[], Some(100));
    check(&one_second, &[time(0), time(50)], &[0, special().eot, time(51), time(1500)]);
    check(&open(&[], None), &[time(0), time(1500)], &[0]);
    check(&open(&[time(0)], Some(100)), &[0, time(51)], &[]);
}

#[test]
fn timestamps_win_by_their_sum() {
    let special = special();
    // 1501 timestamps of logit 0 sum to ln 1501 = 7.314.
    for (text_logit, text_left) in [(7.3, false), (7.32, true)] {
        let mut logits = vec![0.0; 51865];
        logits[..special.timestamp_begin as usize].fill(-50.0);
        logits[5] = text_logit;
        prefer_timestamps_in_sum(&mut logits, &special);
        assert_eq!(logits[5].is_finite(), text_left, "{text_logit}");
        assert_eq!(logits[time(3) as usize], 0.0);
    }
}

#[test]
fn log_sum_exp_is_exact_where_exp_overflows() {
    assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2.0_f64.ln())).abs() < 1e-12);
    assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 3]), f64::NEG_INFINITY);
    assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
}

#[test]
fn without_timestamps_only_the_lists_apply() {
    let (tokenizer, special) = synthetic(51865);
    let options = RuleOptions {
        timestamps: false,
        suppress_non_speech: false,
        suppress_tokens: vec![word('b')],
        ..RuleOptions::default()
    };
    let none = SuppressionLists::default();
    let rules = LogitRules::new(&tokenizer, special, &none, &options);
    let left = allowed(|logits| rules.apply(logits, &[word('a')]));
    check(
        &left,
        &[word('a'), special.eot, special.no_timestamps, time(0), b'('.into()],
        &[word('b'), special.sot, special.sot_prev, special.sot_lm, special.no_speech],
    );
    let with_marks = LogitRules::new(
        &tokenizer,
        special,
        &none,
        &RuleOptions { timestamps: false, ..Default::default() },
    );
    check(&allowed(|logits| with_marks.apply(logits, &[word('a')])), &[word('b')], &[b'('.into()]);
}

#[test]
fn lists_of_the_model_replace_the_computed_ones() {
    let (tokenizer, special) = synthetic(51865);
    let mut options = RuleOptions { timestamps: false, ..RuleOptions::default() };
    let lists =
        SuppressionLists { always: Some(vec![word('b'), u32::MAX]), first: Some(vec![word('c')]) };
    let rules = LogitRules::new(&tokenizer, special, &lists, &options);
    let at_start = allowed(|logits| rules.apply(logits, &[]));
    check(
        &at_start,
        &[b'('.into(), b' '.into(), special.eot],
        &[word('b'), word('c'), special.sot, special.no_speech],
    );
    let later = allowed(|logits| rules.apply(logits, &[word('a')]));
    check(&later, &[word('c')], &[word('b'), special.transcribe]);

    options.suppress_non_speech = false;
    let rules = LogitRules::new(&tokenizer, special, &lists, &options);
    let later = allowed(|logits| rules.apply(logits, &[word('a')]));
    check(&later, &[word('b')], &[special.transcribe]);
}

/// Whatever the logits, sampled sequences keep the grammar.
#[test]
fn random_sequences_keep_the_timestamp_grammar() {
    let (tokenizer, special) = synthetic(51865);
    let rules =
        LogitRules::new(&tokenizer, special, &SuppressionLists::default(), &RuleOptions::default());
    for seed in 0..25 {
        let mut random = Random::new(seed);
        let mut sampled: Vec<u32> = Vec::new();
        while sampled.len() < 40 {
            let mut logits = vec![0.0_f32; 51865];
            for _ in 0..30 {
                logits[random.below(51865) as usize] = random.unit() * 12.0;
                logits[time(random.below(1501)) as usize] = random.unit() * 12.0;
            }
            rules.apply(&mut logits, &sampled);
            let best = (0..51865).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            assert!(logits[best].is_finite(), "seed {seed}: nothing is left after {sampled:?}");
            if best as u32 == special.eot {
                break;
            }
            sampled.push(best as u32);
        }
        check_grammar(&sampled, &special, seed);
    }
}

fn check_grammar(sampled: &[u32], special: &SpecialTokens, seed: u64) {
    assert!(special.is_timestamp(sampled[0]) && sampled[0] <= time(50), "seed {seed}");
    let times: Vec<u32> = sampled.iter().copied().filter(|&t| special.is_timestamp(t)).collect();
    assert!(times.is_sorted(), "seed {seed}: {times:?}");
    let is_time = |token: u32| special.is_timestamp(token);
    for three in sampled.windows(3) {
        let [a, b, c] = [three[0], three[1], three[2]];
        assert!(!(is_time(a) && is_time(b) && is_time(c)), "seed {seed}: {three:?}");
        assert!(is_time(a) || !is_time(b) || is_time(c), "seed {seed}: {three:?}");
    }
    let text = sampled.iter().filter(|&&t| !is_time(t));
    assert!(text.clone().all(|&t| t < special.eot || special.language(t).is_some()), "seed {seed}");
}
