//! Word and character error rates by edit distance (Levenshtein 1966).
//!
//! Among the alignments with the fewest errors, substitutions are preferred to
//! a deletion beside an insertion. Memory is one row of the shorter text.

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// How a hypothesis differs from its reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// Units that agree.
    pub hits: usize,
    /// Units replaced by others.
    pub substitutions: usize,
    /// Reference units that are missing.
    pub deletions: usize,
    /// Units that the reference does not have.
    pub insertions: usize,
}

impl ErrorCounts {
    /// All errors.
    pub fn errors(&self) -> usize {
        self.substitutions + self.deletions + self.insertions
    }

    /// Units of the reference.
    pub fn reference_len(&self) -> usize {
        self.hits + self.substitutions + self.deletions
    }

    /// Errors per reference unit. An empty reference gives 0 if there is no error, else 1
    /// for each unit inserted.
    pub fn rate(&self) -> f64 {
        self.errors() as f64 / self.reference_len().max(1) as f64
    }
}

impl Add for ErrorCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            substitutions: self.substitutions + other.substitutions,
            deletions: self.deletions + other.deletions,
            insertions: self.insertions + other.insertions,
        }
    }
}

impl AddAssign for ErrorCounts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for ErrorCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::add)
    }
}

/// Counts the edits that turn `reference` into `hypothesis`.
pub fn edit_counts<T: PartialEq>(reference: &[T], hypothesis: &[T]) -> ErrorCounts {
    let inserted = |n: usize| ErrorCounts { insertions: n, ..ErrorCounts::default() };
    let mut row: Vec<ErrorCounts> = (0..=hypothesis.len()).map(inserted).collect();
    for wanted in reference {
        let mut diagonal = row[0];
        row[0].deletions += 1;
        for (at, got) in hypothesis.iter().enumerate() {
            let mut kept = diagonal;
            if wanted == got {
                kept.hits += 1;
            } else {
                kept.substitutions += 1;
            }
            let mut deleted = row[at + 1];
            deleted.deletions += 1;
            let mut inserted = row[at];
            inserted.insertions += 1;

            diagonal = row[at + 1];
            let best = [deleted, inserted].into_iter().fold(kept, |best, other| {
                if other.errors() < best.errors() { other } else { best }
            });
            row[at + 1] = best;
        }
    }
    row[hypothesis.len()]
}

/// Errors by word; words are separated by white space.
pub fn word_errors(reference: &str, hypothesis: &str) -> ErrorCounts {
    let reference: Vec<&str> = reference.split_whitespace().collect();
    let hypothesis: Vec<&str> = hypothesis.split_whitespace().collect();
    edit_counts(&reference, &hypothesis)
}

/// Errors by character; white space does not count.
pub fn char_errors(reference: &str, hypothesis: &str) -> ErrorCounts {
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<Vec<_>>();
    edit_counts(&letters(reference), &letters(hypothesis))
}

/// Number of characters to insert, delete or replace to turn `a` into `b`.
pub fn char_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    edit_counts(&a, &b).errors()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(
        hits: usize,
        substitutions: usize,
        deletions: usize,
        insertions: usize,
    ) -> ErrorCounts {
        ErrorCounts { hits, substitutions, deletions, insertions }
    }

    #[test]
    fn counts_each_kind_of_error() {
        assert_eq!(word_errors("a b c d", "a x c d e"), counts(3, 1, 0, 1));
        assert_eq!(word_errors("a b c", "c"), counts(1, 0, 2, 0));
        assert_eq!(word_errors("", "a b"), counts(0, 0, 0, 2));
        assert_eq!(word_errors("a b", " "), counts(0, 0, 2, 0));
        assert_eq!(word_errors("", ""), counts(0, 0, 0, 0));
    }

    #[test]
    fn rate_is_errors_per_reference_unit() {
        assert_eq!(word_errors("a b c d", "a x c d e").rate(), 0.5);
        assert_eq!(word_errors("", "a b").rate(), 2.0);
        assert_eq!(word_errors("", "").rate(), 0.0);
    }

    #[test]
    fn characters_ignore_white_space() {
        assert_eq!(char_errors("ab c", "a bd"), counts(2, 1, 0, 0));
    }

    #[test]
    fn counts_edits_of_characters() {
        assert_eq!(char_distance("kitten", "sitting"), 3);
        assert_eq!(char_distance("", "äöü"), 3);
        assert_eq!(char_distance("äöü", ""), 3);
        assert_eq!(char_distance("base", "base"), 0);
    }
}
