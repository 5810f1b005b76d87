//! The normaliser for English.
//!
//! Removes text in brackets and fillers, spells out contractions and titles,
//! writes numbers and amounts of money in digits and spellings the American way
//! (Radford et al. 2022, appendix C). Figures of word error rate are comparable
//! only where the very same rules apply, so their quirks are part of them.
//!
//! The tables of words and spellings are data of openai-whisper (MIT licence): see
//! `data/README.md`.

use std::collections::HashMap;

use fancy_regex::Regex;

use super::numbers::NumberNormalizer;
use super::symbols::Symbols;
use super::{group, pattern, replace_each, replace_with};

/// Symbols that numbers need.
const NUMBER_SYMBOLS: &str = ".%$¢€£";

/// Sounds that are no words.
const FILLERS: &str = r"\b(hmm|mm|mhm|mmm|uh|um)\b";

/// Whole words written out: contractions, then titles and abbreviations.
const WORDS: &[(&str, &str)] = &[
    ("won't", "will not"),
    ("can't", "can not"),
    ("let's", "let us"),
    ("ain't", "aint"),
    ("y'all", "you all"),
    ("wanna", "want to"),
    ("gotta", "got to"),
    ("gonna", "going to"),
    ("i'ma", "i am going to"),
    ("imma", "i am going to"),
    ("woulda", "would have"),
    ("coulda", "could have"),
    ("shoulda", "should have"),
    ("ma'am", "madam"),
    ("mr", "mister "),
    ("mrs", "missus "),
    ("st", "saint "),
    ("dr", "doctor "),
    ("prof", "professor "),
    ("capt", "captain "),
    ("gov", "governor "),
    ("ald", "alderman "),
    ("gen", "general "),
    ("sen", "senator "),
    ("rep", "representative "),
    ("pres", "president "),
    ("rev", "reverend "),
    ("hon", "honorable "),
    ("asst", "assistant "),
    ("assoc", "associate "),
    ("lt", "lieutenant "),
    ("col", "colonel "),
    ("jr", "junior "),
    ("sr", "senior "),
    ("esq", "esquire "),
];

/// Endings whose verb is known from the word that follows.
const PERFECT_ENDINGS: &[(&str, &str)] = &[
    ("'d been", " had been"),
    ("'s been", " has been"),
    ("'d gone", " had gone"),
    ("'s gone", " has gone"),
    ("'d done", " had done"),
    ("'s got", " has got"),
];

/// All other contracted endings.
const ENDINGS: &[(&str, &str)] = &[
    ("n't", " not"),
    ("'re", " are"),
    ("'s", " is"),
    ("'d", " would"),
    ("'ll", " will"),
    ("'t", " not"),
    ("'ve", " have"),
    ("'m", " am"),
];

/// British spelling, tab, American spelling; `#` opens a comment.
const SPELLINGS: &str = include_str!("data/spellings.tsv");

/// Several literal texts replaced in one pass.
#[derive(Debug, Clone)]
struct Substitutions {
    pattern: Regex,
    table: &'static [(&'static str, &'static str)],
}

impl Substitutions {
    fn new(before: &str, table: &'static [(&'static str, &'static str)]) -> Self {
        let alternatives: Vec<&str> = table.iter().map(|&(from, _)| from).collect();
        let pattern = pattern(&format!(r"{before}({})\b", alternatives.join("|")));
        Self { pattern, table }
    }

    fn apply(&self, text: &str) -> String {
        replace_each(&self.pattern, text, |found| {
            let from = group(found, 1);
            let entry = self.table.iter().find(|&&(candidate, _)| candidate == from);
            entry.map_or(from, |&(_, to)| to).to_owned()
        })
    }
}

/// Normalises English text.
#[derive(Debug, Clone)]
pub struct EnglishNormalizer {
    removed: [Regex; 3],
    space_before_apostrophe: Regex,
    substitutions: [Substitutions; 3],
    comma_in_number: Regex,
    period_outside_number: Regex,
    symbols: Symbols,
    numbers: NumberNormalizer,
    spellings: HashMap<&'static str, &'static str>,
    symbol_without_number: Regex,
    percent_without_number: Regex,
    white_space: Regex,
}

impl Default for EnglishNormalizer {
    fn default() -> Self {
        Self::new()
    }
}

impl EnglishNormalizer {
    /// Prepares the rules; make one and use it for many texts.
    pub fn new() -> Self {
        let spellings = SPELLINGS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|l| l.split_once('\t'));
        Self {
            removed: [pattern(r"[<\[][^>\]]*[>\]]"), pattern(r"\([^)]+?\)"), pattern(FILLERS)],
            space_before_apostrophe: pattern(r"\s+'"),
            substitutions: [
                Substitutions::new(r"\b", WORDS),
                Substitutions::new("", PERFECT_ENDINGS),
                Substitutions::new("", ENDINGS),
            ],
            comma_in_number: pattern(r"(\d),(\d)"),
            period_outside_number: pattern(r"\.([^0-9]|$)"),
            symbols: Symbols::new(),
            numbers: NumberNormalizer::new(),
            spellings: spellings.collect(),
            symbol_without_number: pattern(r"[.$¢€£]([^0-9])"),
            percent_without_number: pattern(r"([^0-9])%"),
            white_space: pattern(r"\s+"),
        }
    }

    /// Normalises a text.
    pub fn normalize(&self, text: &str) -> String {
        let mut text = text.to_lowercase();
        for removed in &self.removed {
            text = replace_with(removed, &text, "");
        }
        text = replace_with(&self.space_before_apostrophe, &text, "'");
        for substitutions in &self.substitutions {
            text = substitutions.apply(&text);
        }
        text = replace_each(&self.comma_in_number, &text, |found| {
            format!("{}{}", group(found, 1), group(found, 2))
        });
        text = replace_each(&self.period_outside_number, &text, |found| {
            format!(" {}", group(found, 1))
        });
        text = self.symbols.remove_symbols_and_diacritics(&text, NUMBER_SYMBOLS);
        text = self.numbers.normalize(&text);
        text = self.american_spelling(&text);
        text = replace_each(&self.symbol_without_number, &text, |found| {
            format!(" {}", group(found, 1))
        });
        text = replace_each(&self.percent_without_number, &text, |found| {
            format!("{} ", group(found, 1))
        });
        replace_with(&self.white_space, &text, " ")
    }

    fn american_spelling(&self, text: &str) -> String {
        let words = text.split_whitespace();
        let words: Vec<&str> =
            words.map(|word| self.spellings.get(word).copied().unwrap_or(word)).collect();
        words.join(" ")
    }
}
