//! The normaliser for any language.
//!
//! Lower case, text in brackets removed, symbols and punctuation to spaces
//! (Radford et al. 2022, appendix C). White space runs become one space; a space
//! at either end stays.

use fancy_regex::Regex;

use super::symbols::Symbols;
use super::{pattern, replace_with};

/// Normalises text of any language.
#[derive(Debug, Clone)]
pub struct BasicNormalizer {
    remove_diacritics: bool,
    split_letters: bool,
    symbols: Symbols,
    bracketed: Regex,
    parenthesised: Regex,
    white_space: Regex,
}

impl Default for BasicNormalizer {
    fn default() -> Self {
        Self::new()
    }
}

impl BasicNormalizer {
    /// Keeps diacritics and words.
    pub fn new() -> Self {
        Self {
            remove_diacritics: false,
            split_letters: false,
            symbols: Symbols::new(),
            bracketed: pattern(r"[<\[][^>\]]*[>\]]"),
            parenthesised: pattern(r"\([^)]+?\)"),
            white_space: pattern(r"\s+"),
        }
    }

    /// Also removes diacritics.
    pub fn remove_diacritics(mut self) -> Self {
        self.remove_diacritics = true;
        self
    }

    /// Also puts a space between all letters, for languages written without spaces.
    pub fn split_letters(mut self) -> Self {
        self.split_letters = true;
        self
    }

    /// Normalises a text.
    pub fn normalize(&self, text: &str) -> String {
        let lower = text.to_lowercase();
        let unbracketed = replace_with(&self.bracketed, &lower, "");
        let unbracketed = replace_with(&self.parenthesised, &unbracketed, "");
        let cleaned = if self.remove_diacritics {
            self.symbols.remove_symbols_and_diacritics(&unbracketed, "")
        } else {
            self.symbols.remove_symbols(&unbracketed)
        };
        let mut cleaned = cleaned.to_lowercase();
        if self.split_letters {
            cleaned = spaced_letters(&cleaned);
        }
        replace_with(&self.white_space, &cleaned, " ")
    }
}

/// Letters (grapheme clusters) separated by spaces.
///
/// Marks are spaces by now, so of the rules of Unicode Annex 29 only joiners,
/// tag characters, prepended number signs and conjoining Hangul are left.
fn spaced_letters(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut previous = None;
    for letter in text.chars() {
        if let Some(previous) = previous
            && !belongs_to(previous, letter)
        {
            out.push(' ');
        }
        out.push(letter);
        previous = Some(letter);
    }
    out
}

fn belongs_to(previous: char, letter: char) -> bool {
    if previous == '\r' && letter == '\n' {
        return true;
    }
    if is_control(previous) || is_control(letter) {
        return false;
    }
    let extends = matches!(letter, '\u{200c}' | '\u{200d}' | '\u{e0020}'..='\u{e007f}');
    let is_prepended = matches!(
        previous,
        '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
    );
    extends || is_prepended || hangul_joins(previous, letter)
}

/// Controls and format characters that stand alone.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// Leading consonant, vowel and trailing consonant of one Hangul syllable.
fn hangul_joins(previous: char, letter: char) -> bool {
    let is_leading = |c| matches!(c, '\u{1100}'..='\u{115f}' | '\u{a960}'..='\u{a97c}');
    let is_vowel = |c| matches!(c, '\u{1160}'..='\u{11a7}' | '\u{d7b0}'..='\u{d7c6}');
    let is_trailing = |c| matches!(c, '\u{11a8}'..='\u{11ff}' | '\u{d7cb}'..='\u{d7fb}');
    let is_syllable = |c| matches!(c, '\u{ac00}'..='\u{d7a3}');
    let ends_open = |c: char| is_syllable(c) && (u32::from(c) - 0xac00).is_multiple_of(28);
    if is_leading(previous) {
        return is_leading(letter) || is_vowel(letter) || is_syllable(letter);
    }
    if is_vowel(previous) || ends_open(previous) {
        return is_vowel(letter) || is_trailing(letter);
    }
    (is_trailing(previous) || is_syllable(previous)) && is_trailing(letter)
}
