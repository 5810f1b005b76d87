//! `vocabulary.txt`: one token a line, in the printable spelling of bytes.
//!
//! Newer converters write `vocabulary.json`, an array of the same strings;
//! its parsing is left to the caller, its spelling is the same
//! ([`crate::whisper::token_bytes`]).

use std::path::Path;

use crate::error::{FormatError, Result};
use crate::whisper::token_bytes;

/// Reads a `vocabulary.txt` into the raw bytes of its tokens, by id.
///
/// # Errors
/// The file cannot be read or is not UTF-8.
pub fn read_vocabulary(path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path)
        .map_err(|error| FormatError::io("read the vocabulary")(error).in_file(path))?;
    Ok(parse_vocabulary(&text))
}

/// The raw bytes of the tokens in the text of a `vocabulary.txt`, by id.
///
/// An empty line is a token without bytes; multilingual Whisper has one.
pub fn parse_vocabulary(text: &str) -> Vec<Vec<u8>> {
    text.lines().map(token_bytes).collect()
}
