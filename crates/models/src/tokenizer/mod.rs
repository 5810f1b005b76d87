//! Byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019).
//!
//! A [`Tokenizer`] holds a vocabulary (id → raw bytes) and the order of merges.
//! In GPT-2 and Whisper vocabularies the ids themselves are in merge order, so
//! the id of a token is its rank and a separate list of merges adds nothing;
//! where the ids are not in merge order the list is used. Text is first cut
//! into pieces by the GPT-2 pattern, and merges never cross a piece.
//!
//! Encoding never produces a special token: text that looks like one is text.

mod bpe;
mod joiner;
mod load;
mod words;

pub use joiner::Utf8Joiner;
pub use words::{Word, WordSplit};

pub(crate) use load::hugging_face_merges;

use tensoryard_formats::whisper::WhisperVocabulary;

use bpe::MergeOrder;

use crate::Error;

/// The byte strings that token ids stand for.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    tokens: Vec<Vec<u8>>,
    is_special: Vec<bool>,
    /// Ids of ordinary tokens, ordered by their bytes, then by id.
    by_bytes: Vec<u32>,
}

impl Vocabulary {
    /// Makes a vocabulary from raw token bytes; tokens spelt `<|…|>` are special.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] if there are more than 2^31 tokens.
    pub fn new(tokens: Vec<Vec<u8>>) -> Result<Self, Error> {
        let is_special = tokens.iter().map(|token| WhisperVocabulary::is_special(token)).collect();
        Self::with_special(tokens, is_special)
    }

    fn with_special(tokens: Vec<Vec<u8>>, is_special: Vec<bool>) -> Result<Self, Error> {
        let n = i32::try_from(tokens.len())
            .map_err(|_| Error::vocabulary(format!("{} tokens are too many", tokens.len())))?;
        let ordinary = |&id: &u32| !is_special[id as usize] && !tokens[id as usize].is_empty();
        let mut by_bytes: Vec<u32> = (0..n as u32).filter(ordinary).collect();
        by_bytes
            .sort_by(|&a, &b| tokens[a as usize].cmp(&tokens[b as usize]).then_with(|| a.cmp(&b)));
        Ok(Self { tokens, is_special, by_bytes })
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True if there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Raw bytes of a token, or `None` for an id outside the vocabulary.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize).map(Vec::as_slice)
    }

    /// True if the token is a mark such as `<|endoftext|>`.
    pub fn is_special(&self, id: u32) -> bool {
        self.is_special.get(id as usize).copied().unwrap_or(false)
    }

    /// Id of the ordinary token with exactly these bytes (the lowest, if several).
    pub fn id(&self, bytes: &[u8]) -> Option<u32> {
        let at = self.by_bytes.partition_point(|&id| self.tokens[id as usize].as_slice() < bytes);
        let id = *self.by_bytes.get(at)?;
        (self.tokens[id as usize] == bytes).then_some(id)
    }

    /// Id of the special token with this name, such as `<|endoftext|>`.
    pub fn special_id(&self, name: &str) -> Option<u32> {
        let is_it = |(bytes, special): (&Vec<u8>, &bool)| *special && bytes == name.as_bytes();
        self.tokens.iter().zip(&self.is_special).position(is_it).map(|at| at as u32)
    }
}

/// A byte-level byte-pair tokenizer.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    merge_order: MergeOrder,
    byte_ids: [u32; 256],
    pieces: fancy_regex::Regex,
}

impl Tokenizer {
    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Token ids of a text. Special tokens are never produced.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.for_each_piece(text, |piece| {
            self.merge_order.encode_piece(&self.vocabulary, &self.byte_ids, piece, &mut ids);
        });
        ids
    }

    /// The raw bytes of tokens, specials by their names; unknown ids give nothing.
    ///
    /// One character may be spread over several tokens: see [`Utf8Joiner`] for streams.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().filter_map(|&id| self.vocabulary.bytes(id)).flatten().copied().collect()
    }

    /// The text of ordinary tokens; specials are left out, bad UTF-8 becomes U+FFFD.
    pub fn decode_text(&self, ids: &[u32]) -> String {
        String::from_utf8_lossy(&self.ordinary_bytes(ids)).into_owned()
    }

    /// The raw bytes of the ordinary tokens among `ids`.
    pub fn ordinary_bytes(&self, ids: &[u32]) -> Vec<u8> {
        let ordinary = ids.iter().filter(|&&id| !self.vocabulary.is_special(id));
        ordinary.filter_map(|&id| self.vocabulary.bytes(id)).flatten().copied().collect()
    }

    /// Calls `take` with each piece of the GPT-2 pre-tokenisation, in order.
    ///
    /// A run of white space before a word gives its last character to the word.
    /// The original pattern says so with a look-ahead; here the run is matched
    /// whole and its last character handed back, which keeps matching linear.
    fn for_each_piece(&self, text: &str, mut take: impl FnMut(&str)) {
        let mut at = 0;
        while let Ok(Some(found)) = self.pieces.find_from_pos(text, at) {
            let mut piece = found.as_str();
            let before_word = found.end() < text.len() && piece.chars().all(char::is_whitespace);
            if before_word
                && let Some((last, _)) = piece.char_indices().next_back()
                && last > 0
            {
                piece = &piece[..last];
            }
            if piece.is_empty() {
                break;
            }
            at = found.start() + piece.len();
            take(piece);
        }
    }
}
