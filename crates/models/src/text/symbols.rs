//! Removal of marks, symbols, punctuation and diacritics.
//!
//! Unicode general categories M, S and P become spaces; with diacritics removed,
//! nonspacing marks go without a trace and letters that do not decompose are
//! spelt out. Which letters those are is data of openai-whisper (MIT licence): see
//! `data/README.md`.

use fancy_regex::Regex;
use unicode_normalization::UnicodeNormalization;

use super::{pattern, replace_with};

/// Letters that Unicode does not decompose, and their plain spelling.
fn plain_spelling(letter: char) -> Option<&'static str> {
    Some(match letter {
        'œ' => "oe",
        'Œ' => "OE",
        'ø' => "o",
        'Ø' => "O",
        'æ' => "ae",
        'Æ' => "AE",
        'ß' => "ss",
        'ẞ' => "SS",
        'đ' | 'ð' => "d",
        'Đ' | 'Ð' => "D",
        'þ' => "th",
        'Þ' => "Th",
        'ł' => "l",
        'Ł' => "L",
        _ => return None,
    })
}

/// The patterns that name Unicode categories, compiled once.
#[derive(Debug, Clone)]
pub(super) struct Symbols {
    nonspacing: Regex,
    symbol: Regex,
}

impl Symbols {
    pub(super) fn new() -> Self {
        Self { nonspacing: pattern(r"\p{Mn}"), symbol: pattern(r"[\p{M}\p{S}\p{P}]") }
    }

    /// Symbols become spaces; diacritics stay (NFKC).
    pub(super) fn remove_symbols(&self, text: &str) -> String {
        let composed: String = text.nfkc().collect();
        replace_with(&self.symbol, &composed, " ")
    }

    /// Diacritics go, symbols other than `keep` become spaces (NFKD).
    pub(super) fn remove_symbols_and_diacritics(&self, text: &str, keep: &str) -> String {
        let decomposed: String = text.nfkd().collect();
        let bare = replace_with(&self.nonspacing, &decomposed, "");
        let mut plain = String::with_capacity(bare.len());
        for letter in bare.chars() {
            match plain_spelling(letter) {
                Some(spelling) => plain.push_str(spelling),
                None => plain.push(letter),
            }
        }
        super::replace_each(&self.symbol, &plain, |found| {
            let symbol = super::group(found, 0);
            if keep.contains(symbol) { symbol.to_owned() } else { " ".to_owned() }
        })
    }
}
