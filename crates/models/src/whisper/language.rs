//! The languages that Whisper was trained on, by code, name or alias.
//!
//! The table is [`LANGUAGES`], in the order of the model's tokens; Cantonese came
//! with the 51866-token vocabulary. Of the aliases, the twelve of
//! openai-whisper's `TO_LANGUAGE_CODE` (MIT licence; the notice is in
//! `src/text/data/README.md`) are here, so that the same names work; the others
//! are older or more exact codes and usual names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tensoryard_formats::whisper::LANGUAGES;

use crate::Error;
use crate::text::char_distance;
use crate::tokenizer::WordSplit;

/// Further names and codes by which people call these languages.
const ALIASES: [(&str, &str); 21] = [
    ("burmese", "my"),
    ("castilian", "es"),
    ("farsi", "fa"),
    ("filipino", "tl"),
    ("flemish", "nl"),
    ("haitian", "ht"),
    ("iw", "he"),
    ("jv", "jw"),
    ("letzeburgesch", "lb"),
    ("mandarin", "zh"),
    ("moldavian", "ro"),
    ("moldovan", "ro"),
    ("nb", "no"),
    ("norsk", "no"),
    ("panjabi", "pa"),
    ("pushto", "ps"),
    ("sinhalese", "si"),
    ("slovene", "sl"),
    ("valencian", "ca"),
    ("deutsch", "de"),
    ("fil", "tl"),
];

/// How many look-alike names an error lists.
const NEAR_NAMES: usize = 3;

/// A language that Whisper knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub struct Language(u8);

impl Language {
    /// English.
    pub const ENGLISH: Self = Self(0);

    /// All languages, in the order of their tokens.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..LANGUAGES.len() as u8).map(Self)
    }

    /// The language whose token is the `index`-th language token.
    pub fn from_index(index: usize) -> Option<Self> {
        (index < LANGUAGES.len()).then_some(Self(index as u8))
    }

    /// Position of its token among the language tokens.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Code as in the model's token, such as `en`.
    pub fn code(self) -> &'static str {
        LANGUAGES[self.index()].0
    }

    /// English name in lower case.
    pub fn name(self) -> &'static str {
        LANGUAGES[self.index()].1
    }

    /// English name as it is written in a sentence: `German`.
    pub fn title(self) -> String {
        let mut letters = self.name().chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect()
    }

    /// How the language separates words.
    pub fn word_split(self) -> WordSplit {
        match self.code() {
            "zh" | "ja" | "th" | "lo" | "my" | "yue" => WordSplit::Characters,
            _ => WordSplit::Spaces,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl From<Language> for &'static str {
    fn from(language: Language) -> Self {
        language.code()
    }
}

impl TryFrom<String> for Language {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl FromStr for Language {
    type Err = Error;

    /// Reads a code, an English name or an alias, in any case; `pt-BR` reads as `pt`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wanted = text.trim().to_lowercase();
        let primary = wanted.split(['-', '_']).next().unwrap_or_default();
        find(&wanted).or_else(|| find(primary)).ok_or_else(|| Error::UnknownLanguage {
            given: text.to_owned(),
            near: near_names(&wanted),
        })
    }
}

fn find(wanted: &str) -> Option<Language> {
    let code = ALIASES.iter().find(|(alias, _)| *alias == wanted).map_or(wanted, |(_, code)| code);
    let position = LANGUAGES.iter().position(|&(c, name)| c == code || name == code)?;
    Language::from_index(position)
}

fn near_names(wanted: &str) -> Vec<&'static str> {
    let limit = if wanted.chars().count() <= 3 { 1 } else { 3 };
    let too_long = wanted.len() > 64;
    let names = LANGUAGES.iter().flat_map(|&(code, name)| [code, name]);
    let aliases = ALIASES.iter().map(|&(alias, _)| alias);
    let mut near: Vec<(usize, &str)> = names
        .chain(aliases)
        .filter(|_| !too_long)
        .map(|name| (char_distance(wanted, name), name))
        .filter(|&(distance, name)| distance <= limit && distance * 2 <= name.len())
        .collect();
    near.sort();
    near.truncate(NEAR_NAMES);
    near.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_codes_names_and_aliases_in_any_case() {
        for (text, code) in [
            ("en", "en"),
            (" German ", "de"),
            ("CANTONESE", "yue"),
            ("Burmese", "my"),
            ("Haitian Creole", "ht"),
            ("pt-BR", "pt"),
            ("zh_TW", "zh"),
        ] {
            assert_eq!(text.parse::<Language>().unwrap().code(), code, "{text}");
        }
    }

    #[test]
    fn an_unknown_language_names_its_neighbours() {
        let error = "germn".parse::<Language>().unwrap_err().to_string();
        assert_eq!(error, "unknown language \"germn\"; did you mean german?");
        let error = "klingon".parse::<Language>().unwrap_err().to_string();
        assert_eq!(error, "unknown language \"klingon\"");
    }

    #[test]
    fn names_codes_and_aliases_are_unique_and_aliases_lead_somewhere() {
        let mut all: Vec<&str> = LANGUAGES.iter().flat_map(|&(code, name)| [code, name]).collect();
        all.extend(ALIASES.iter().map(|&(alias, _)| alias));
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), n);
        for (alias, code) in ALIASES {
            assert_eq!(alias.parse::<Language>().unwrap().code(), code);
        }
    }

    #[test]
    fn serialises_as_its_code() {
        let french: Language = "french".parse().unwrap();
        assert_eq!(serde_json::to_string(&french).unwrap(), "\"fr\"");
        assert_eq!(serde_json::from_str::<Language>("\"fr\"").unwrap(), french);
    }
}
