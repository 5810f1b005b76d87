//! Grouping of tokens into words, for word timestamps and display.
//!
//! Languages written with spaces: a word starts at a token that begins with a
//! space, at a punctuation mark, or at a special token. Languages without
//! spaces: every run of tokens that completes whole characters is a word.

use super::{Tokenizer, Utf8Joiner};

/// ASCII punctuation that stands as a word of its own.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// How a language separates its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordSplit {
    /// By spaces, as English.
    Spaces,
    /// By whole characters, as Chinese, Japanese, Thai, Lao, Burmese.
    Characters,
}

/// A word and the tokens that spell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Text with its leading space.
    pub text: String,
    /// Ids in order.
    pub tokens: Vec<u32>,
}

impl Tokenizer {
    /// Groups tokens into words; every token lands in exactly one word, in order.
    pub fn split_words(&self, tokens: &[u32], split: WordSplit) -> Vec<Word> {
        let characters = self.split_characters(tokens);
        match split {
            WordSplit::Characters => characters,
            WordSplit::Spaces => self.join_spaced(characters),
        }
    }

    fn split_characters(&self, tokens: &[u32]) -> Vec<Word> {
        let mut joiner = Utf8Joiner::new();
        let mut words = Vec::new();
        let mut word = Word { text: String::new(), tokens: Vec::new() };
        for &id in tokens {
            word.text.push_str(&joiner.push(self.vocabulary().bytes(id).unwrap_or_default()));
            word.tokens.push(id);
            if !joiner.is_holding() {
                let next = Word { text: String::new(), tokens: Vec::new() };
                words.push(std::mem::replace(&mut word, next));
            }
        }
        word.text.push_str(&joiner.finish());
        if !word.tokens.is_empty() {
            words.push(word);
        }
        words
    }

    fn join_spaced(&self, parts: Vec<Word>) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        for part in parts {
            let is_special =
                part.tokens.first().is_some_and(|&id| self.vocabulary().is_special(id));
            let starts_word =
                is_special || part.text.starts_with(' ') || PUNCTUATION.contains(part.text.trim());
            match words.last_mut() {
                Some(word) if !starts_word => {
                    word.text.push_str(&part.text);
                    word.tokens.extend(part.tokens);
                }
                _ => words.push(part),
            }
        }
        words
    }
}
