//! Building a [`Tokenizer`] from what model files carry.
//!
//! CTranslate2 folders have `vocabulary.txt` or `vocabulary.json` (every id in
//! order) beside a Hugging Face `tokenizer.json` (vocabulary, merges, added
//! tokens); GGUF files carry printable tokens and merges as string arrays; the
//! old ggml Whisper files carry raw bytes and no merges.

use std::collections::HashMap;

use fancy_regex::Regex;
use serde::Deserialize;

use super::bytes::ByteSpelling;
use super::{MergeOrder, Tokenizer, Vocabulary};
use crate::Error;

/// GPT-2 pre-tokenisation without its look-ahead (see `for_each_piece`).
const PIECES: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";

/// The two tokens that a merge joins, as raw bytes.
pub(crate) type BytePair = (Vec<u8>, Vec<u8>);

/// An honest `tokenizer.json` has no id far beyond its number of entries.
const ID_SLACK: usize = 4096;

#[derive(Deserialize)]
struct HuggingFace {
    model: HuggingFaceModel,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct HuggingFaceModel {
    vocab: HashMap<String, u32>,
    #[serde(default)]
    merges: Vec<Merge>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Joined(String),
    Pair(String, String),
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

impl Merge {
    fn into_joined(self) -> String {
        match self {
            Self::Joined(text) => text,
            Self::Pair(left, right) => format!("{left} {right}"),
        }
    }
}

impl Tokenizer {
    /// A tokenizer from raw token bytes in id order, without a list of merges.
    ///
    /// The ids are taken as ranks, which is right for GPT-2 and Whisper vocabularies.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] if one of the 256 single bytes has no token.
    pub fn from_token_bytes(tokens: Vec<Vec<u8>>) -> Result<Self, Error> {
        Self::assemble(Vocabulary::new(tokens)?, &[])
    }

    /// A tokenizer from raw token bytes in id order and merges as pairs of bytes, best first.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] if a single byte has no token, or a merge needs a missing token.
    pub fn from_parts(tokens: Vec<Vec<u8>>, merges: &[BytePair]) -> Result<Self, Error> {
        Self::assemble(Vocabulary::new(tokens)?, merges)
    }

    /// A tokenizer from printable tokens in id order and merges (`"left right"`, best first).
    ///
    /// `merges` may be empty. Tokens spelt `<|…|>` are special.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] names the token or merge that cannot be read.
    pub fn from_printable<T: AsRef<str>, M: AsRef<str>>(
        tokens: &[T],
        merges: &[M],
    ) -> Result<Self, Error> {
        let spelling = ByteSpelling::default();
        let bytes = tokens
            .iter()
            .enumerate()
            .map(|(id, token)| token_bytes(&spelling, id, token.as_ref()))
            .collect::<Result<_, _>>()?;
        let vocabulary = Vocabulary::new(bytes)?;
        let merges = merge_bytes(&spelling, merges)?;
        Self::assemble(vocabulary, &merges)
    }

    /// A tokenizer from the text of a Hugging Face `tokenizer.json` (byte-level BPE).
    ///
    /// # Errors
    /// [`Error::Vocabulary`] if the text is not such a file, or an id is missing or too large.
    pub fn from_tokenizer_json(json: &str) -> Result<Self, Error> {
        let file = parse_hugging_face(json)?;
        let spelling = ByteSpelling::default();
        let n_entries = file.model.vocab.len() + file.added_tokens.len();
        let ids = file.model.vocab.values().chain(file.added_tokens.iter().map(|t| &t.id));
        let n_ids = ids.map(|&id| id as usize + 1).max().unwrap_or(0);
        if n_ids > n_entries + ID_SLACK {
            return Err(Error::vocabulary(format!(
                "tokenizer.json has {n_entries} tokens but an id of {}",
                n_ids - 1
            )));
        }

        let mut tokens = vec![Vec::new(); n_ids];
        let mut is_special = vec![false; n_ids];
        for (token, id) in &file.model.vocab {
            tokens[*id as usize] = token_bytes(&spelling, *id as usize, token)?;
        }
        for added in &file.added_tokens {
            tokens[added.id as usize] = added.content.clone().into_bytes();
            is_special[added.id as usize] = true;
        }
        let merges: Vec<String> = file.model.merges.into_iter().map(Merge::into_joined).collect();
        let merges = merge_bytes(&spelling, &merges)?;
        Self::assemble(Vocabulary::with_special(tokens, is_special)?, &merges)
    }

    /// A tokenizer from the files of a CTranslate2 folder.
    ///
    /// `vocabulary` is the text of `vocabulary.txt` (one token a line) or
    /// `vocabulary.json` (an array of strings); it alone decides the ids.
    /// `tokenizer_json` adds the merges where it is at hand.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] if either text cannot be read.
    pub fn from_ctranslate2(vocabulary: &str, tokenizer_json: Option<&str>) -> Result<Self, Error> {
        let tokens = ctranslate2_tokens(vocabulary)?;
        let merges = match tokenizer_json {
            Some(json) => parse_hugging_face(json)?.model.merges,
            None => Vec::new(),
        };
        let merges: Vec<String> = merges.into_iter().map(Merge::into_joined).collect();
        Self::from_printable(&tokens, &merges)
    }

    /// All tokens in printable spelling, as [`Tokenizer::from_printable`] reads them.
    pub fn printable_tokens(&self) -> Vec<String> {
        let spelling = ByteSpelling::default();
        self.vocabulary.tokens.iter().map(|bytes| spelling.to_printable(bytes)).collect()
    }

    fn assemble(vocabulary: Vocabulary, merges: &[BytePair]) -> Result<Self, Error> {
        let mut byte_ids = [0; 256];
        for (byte, id) in (0..=u8::MAX).zip(&mut byte_ids) {
            *id = vocabulary.id(&[byte]).ok_or_else(|| {
                Error::vocabulary(format!(
                    "byte 0x{byte:02x} has no token, so text cannot be encoded"
                ))
            })?;
        }
        let merge_order = merge_order(&vocabulary, merges)?;
        let pieces = Regex::new(PIECES)
            .map_err(|error| Error::vocabulary(format!("pre-tokenisation pattern: {error}")))?;
        Ok(Self { vocabulary, merge_order, byte_ids, pieces })
    }
}

/// The merges of a Hugging Face `tokenizer.json`, best first.
///
/// # Errors
/// [`Error::Vocabulary`] if the text is not such a file.
pub(crate) fn hugging_face_merges(json: &str) -> Result<Vec<BytePair>, Error> {
    let merges = parse_hugging_face(json)?.model.merges;
    let merges: Vec<String> = merges.into_iter().map(Merge::into_joined).collect();
    merge_bytes(&ByteSpelling::default(), &merges)
}

/// Prefers ids as ranks wherever the merges are in id order.
///
/// The multilingual `tokenizer.json` in circulation lacks the first merge
/// (`Ġ t`), without which its own `Ġthe` cannot be reached; the ids are whole.
fn merge_order(vocabulary: &Vocabulary, merges: &[BytePair]) -> Result<MergeOrder, Error> {
    if merges_are_in_id_order(vocabulary, merges) {
        return Ok(MergeOrder::ById);
    }
    let mut pairs = HashMap::with_capacity(merges.len());
    for (rank, (left, right)) in merges.iter().enumerate() {
        let find = |bytes: &[u8]| {
            vocabulary.id(bytes).ok_or_else(|| {
                let token = String::from_utf8_lossy(bytes).into_owned();
                Error::vocabulary(format!("merge {rank} needs {token:?}, which is no token"))
            })
        };
        let merged = find(&[left.as_slice(), right.as_slice()].concat())?;
        pairs.entry((find(left)?, find(right)?)).or_insert((rank as u32, merged));
    }
    Ok(MergeOrder::ByPair(pairs))
}

/// Whether each merge makes a token with a higher id than the merge before it.
fn merges_are_in_id_order(vocabulary: &Vocabulary, merges: &[BytePair]) -> bool {
    let mut tokens = vocabulary.tokens.iter();
    merges.iter().all(|(left, right)| {
        tokens.any(|token| {
            token.strip_prefix(left.as_slice()).is_some_and(|rest| rest == right.as_slice())
        })
    })
}

fn token_bytes(spelling: &ByteSpelling, id: usize, printable: &str) -> Result<Vec<u8>, Error> {
    spelling.to_bytes(printable).ok_or_else(|| {
        Error::vocabulary(format!("token {id} ({printable:?}) is not in byte-level spelling"))
    })
}

fn merge_bytes<M: AsRef<str>>(
    spelling: &ByteSpelling,
    merges: &[M],
) -> Result<Vec<BytePair>, Error> {
    let read = |(rank, merge): (usize, &M)| {
        let bad =
            || Error::vocabulary(format!("merge {rank} ({:?}) is not two tokens", merge.as_ref()));
        let (left, right) = merge.as_ref().split_once(' ').ok_or_else(bad)?;
        let left = spelling.to_bytes(left).ok_or_else(bad)?;
        let right = spelling.to_bytes(right).ok_or_else(bad)?;
        Ok((left, right))
    };
    merges.iter().enumerate().map(read).collect()
}

fn ctranslate2_tokens(vocabulary: &str) -> Result<Vec<String>, Error> {
    if vocabulary.trim_start().starts_with('[') {
        return serde_json::from_str(vocabulary)
            .map_err(|error| Error::vocabulary(format!("vocabulary.json: {error}")));
    }
    let text = vocabulary.strip_suffix('\n').unwrap_or(vocabulary);
    Ok(text.split('\n').map(|line| line.trim_end_matches('\r').to_owned()).collect())
}

fn parse_hugging_face(json: &str) -> Result<HuggingFace, Error> {
    serde_json::from_str(json)
        .map_err(|error| Error::vocabulary(format!("tokenizer.json: {error}")))
}
