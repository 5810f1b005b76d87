//! Building a [`Tokenizer`] from what model files carry.
//!
//! Whisper checkpoints of every format come as raw tokens and merges, for
//! [`Tokenizer::from_parts`]; the readers of files undo the printable spelling.
//! A Hugging Face `tokenizer.json` (vocabulary, merges, added tokens) is enough
//! by itself and is read here.

use std::collections::HashMap;

use fancy_regex::Regex;
use serde::Deserialize;
use tensoryard_formats::whisper::token_bytes;

use super::{MergeOrder, Tokenizer, Vocabulary};
use crate::Error;

/// GPT-2 pre-tokenisation without its look-ahead (see `for_each_piece`); the classes are
/// those of <https://github.com/openai/gpt-2/blob/master/src/encoder.py>, as encoding needs.
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

impl Tokenizer {
    /// A tokenizer from raw token bytes in id order and merges as pairs of bytes, best first.
    ///
    /// Without merges the ids are taken as ranks, which is right for GPT-2 and Whisper
    /// vocabularies. Tokens spelt `<|…|>` are special.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] if a single byte has no token, or a merge needs a missing token.
    pub fn from_parts(tokens: Vec<Vec<u8>>, merges: &[BytePair]) -> Result<Self, Error> {
        Self::assemble(Vocabulary::new(tokens)?, merges)
    }

    /// A tokenizer from the text of a Hugging Face `tokenizer.json` (byte-level BPE).
    ///
    /// # Errors
    /// [`Error::Vocabulary`] if the text is not such a file, or an id is missing or too large.
    pub fn from_tokenizer_json(json: &str) -> Result<Self, Error> {
        let file: HuggingFace = serde_json::from_str(json)
            .map_err(|error| Error::vocabulary(format!("tokenizer.json: {error}")))?;
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
            tokens[*id as usize] = token_bytes(token);
        }
        for added in &file.added_tokens {
            tokens[added.id as usize] = added.content.clone().into_bytes();
            is_special[added.id as usize] = true;
        }
        let merges = merge_bytes(&file.model.merges)
            .map_err(|reason| Error::vocabulary(format!("tokenizer.json: {reason}")))?;
        Self::assemble(Vocabulary::with_special(tokens, is_special)?, &merges)
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
/// What is wrong, if the text is not such a file.
pub(crate) fn hugging_face_merges(json: &str) -> Result<Vec<BytePair>, String> {
    let file: HuggingFace = serde_json::from_str(json).map_err(|error| error.to_string())?;
    merge_bytes(&file.model.merges)
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

fn merge_bytes(merges: &[Merge]) -> Result<Vec<BytePair>, String> {
    let read = |(rank, merge): (usize, &Merge)| match merge {
        Merge::Pair(left, right) => Ok((token_bytes(left), token_bytes(right))),
        Merge::Joined(text) => {
            let bad = || format!("merge {rank} ({text:?}) is not two tokens");
            let (left, right) = text.split_once(' ').ok_or_else(bad)?;
            Ok((token_bytes(left), token_bytes(right)))
        }
    };
    merges.iter().enumerate().map(read).collect()
}
