//! Normalising and scoring of transcripts.
//!
//! [`EnglishNormalizer`] and [`BasicNormalizer`] remove differences of writing
//! that are no errors of recognition (Radford et al. 2022, appendix C);
//! [`word_errors`] and [`char_errors`] count the differences that are left.

mod basic;
mod english;
mod errors;
mod numbers;
mod symbols;

pub use basic::BasicNormalizer;
pub use english::EnglishNormalizer;
pub use errors::{ErrorCounts, char_distance, char_errors, edit_counts, word_errors};

use fancy_regex::{Captures, Regex};

/// Compiles one of this module's constant patterns.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this module are constant and tested")
}

/// Replaces every match; a match that cannot be evaluated ends the replacing.
fn replace_each(
    regex: &Regex,
    text: &str,
    mut replacement: impl FnMut(&Captures<'_>) -> String,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for captures in regex.captures_iter(text).map_while(Result::ok) {
        let Some(whole) = captures.get(0) else { continue };
        out.push_str(&text[done..whole.start()]);
        out.push_str(&replacement(&captures));
        done = whole.end();
    }
    out.push_str(&text[done..]);
    out
}

fn replace_with(regex: &Regex, text: &str, replacement: &str) -> String {
    replace_each(regex, text, |_| replacement.to_owned())
}

/// Text of a group that takes part in every match.
fn group<'t>(captures: &Captures<'t>, index: usize) -> &'t str {
    captures.get(index).map_or("", |found| found.as_str())
}
