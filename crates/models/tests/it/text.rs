//! Normalisers and error rates against the golden pairs and scores.

use std::collections::HashMap;

use tensoryard_models::text::{
    BasicNormalizer, EnglishNormalizer, ErrorCounts, char_errors, word_errors,
};

use crate::golden::{asset, golden};

#[test]
fn normalisers_give_the_golden_text() {
    let Some(golden) = golden("normalisers_give_the_golden_text", "whisper_normalizer.json") else {
        return;
    };
    let english = EnglishNormalizer::new();
    let basic = BasicNormalizer::new();
    let plain = BasicNormalizer::new().remove_diacritics();
    let letters = BasicNormalizer::new().split_letters();
    let check = |kind: &str, normalize: &dyn Fn(&str) -> String| {
        let pairs = golden[kind].as_array().unwrap();
        assert!(pairs.len() > 20, "{kind}");
        for pair in pairs {
            let input = pair[0].as_str().unwrap();
            assert_eq!(normalize(input), pair[1].as_str().unwrap(), "{kind}: {input:?}");
        }
    };
    check("english", &|text| english.normalize(text));
    check("basic", &|text| basic.normalize(text));
    check("basic_remove_diacritics", &|text| plain.normalize(text));
    check("basic_split_letters", &|text| letters.normalize(text));
}

#[test]
fn english_normaliser_follows_the_original() {
    let english = EnglishNormalizer::new();
    for &(input, expected) in crate::english::CASES {
        assert_eq!(english.normalize(input), expected, "{input:?}");
    }
}

#[test]
fn normalisers_take_any_text() {
    let english = EnglishNormalizer::new();
    let basic = BasicNormalizer::new().remove_diacritics().split_letters();
    let words = [
        "one",
        "twenty",
        "hundred",
        "decillion",
        "and",
        "a",
        "half",
        "point",
        "double",
        "zero",
        "minus",
        "dollars",
        "cents",
        "per",
        "cent",
        "first",
        "millions",
        "$",
        "¢5",
        "5",
        "0",
        ".",
        "3.14",
        "999999999999999999999999999999999999999999",
        "o'",
        "<",
        "(",
        "é",
        "\u{200d}",
        "\n",
    ];
    let mut random = crate::scripted::Random::new(11);
    for _ in 0..3000 {
        let picked: Vec<&str> = (0..random.below(9))
            .map(|_| words[random.below(words.len() as u32) as usize])
            .collect();
        let text = picked.join(" ");
        let normal = english.normalize(&text);
        assert!(!normal.contains("  "), "{text:?}: {normal:?}");
        basic.normalize(&text);
    }
}

/// File name → transcript and language of the manifest.
fn manifest(text: &str) -> HashMap<&str, (&str, &str)> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let column = |name: &str| header.iter().position(|&title| title == name).unwrap();
    let (file, language, transcript) = (column("file"), column("language"), column("transcript"));
    lines
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .map(|cells| (cells[file], (cells[transcript], cells[language])))
        .collect()
}

#[test]
fn error_rates_equal_the_golden_scores() {
    let name = "error_rates_equal_the_golden_scores";
    let Some(reference) = golden(name, "wer_reference.json") else { return };
    let Some(scores) = golden(name, "wer_scores.json") else { return };
    let Some(manifest_text) = asset(name, "audio/manifest.tsv") else { return };
    let manifest = manifest(&manifest_text);
    let english = EnglishNormalizer::new();
    let basic = BasicNormalizer::new();

    let mut clips = 0;
    for (split, scores) in scores.as_object().unwrap() {
        let mut total = ErrorCounts::default();
        for (file, expected) in scores["per_clip"].as_object().unwrap() {
            let run = split.rsplit_once('|').unwrap().0;
            let hypothesis = reference[format!("{run}|{file}")]["text"].as_str().unwrap();
            let (transcript, language) = manifest[file.as_str()];
            let normalize = |text: &str| match language {
                "en" => english.normalize(text),
                _ => basic.normalize(text),
            };
            let (wanted, got) = (normalize(transcript), normalize(hypothesis));
            let (counts, expected) = match expected.get("wer") {
                Some(wer) => (word_errors(&wanted, &got), wer),
                None => (char_errors(&wanted, &got), &expected["cer"]),
            };
            let rounded = (counts.rate() * 1e4).round() / 1e4;
            assert_eq!(rounded, expected.as_f64().unwrap(), "{split} {file}: {counts:?}");
            total += counts;
            clips += 1;
        }
        if !split.ends_with("wer_multi") {
            assert_eq!(total.errors() as u64, scores["errors"].as_u64().unwrap(), "{split}");
        }
    }
    assert!(clips > 60, "{clips}");
}

#[test]
fn spellings_are_pairs_without_repetition() {
    let table = include_str!("../../src/text/data/spellings.tsv");
    let mut seen = std::collections::HashSet::new();
    let pairs: Vec<(&str, &str)> = table
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split_once('\t').unwrap())
        .collect();
    assert_eq!(pairs.len(), 1739);
    assert!(pairs.iter().all(|(british, american)| british != american && seen.insert(*british)));
}
