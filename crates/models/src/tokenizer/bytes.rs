//! The two spellings of a byte-level token.
//!
//! GPT-2 vocabulary files write each raw byte as one printable character, so
//! that a token is always a visible string: printable Latin-1 bytes stand for
//! themselves, the other 68 bytes take the characters from U+0100 upwards in
//! byte order (Radford et al. 2019, "Language Models are Unsupervised Multitask
//! Learners", section 2.2). [`Utf8Joiner`] turns token bytes back into text.

/// True where the byte is its own character in the printable spelling.
fn is_own_character(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The printable character that stands for `byte`.
pub fn byte_to_char(byte: u8) -> char {
    if is_own_character(byte) {
        return char::from(byte);
    }
    let hidden_before = (0..byte).filter(|&b| !is_own_character(b)).count() as u32;
    char::from_u32(0x100 + hidden_before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The 68 bytes that have no printable Latin-1 character, in byte order.
fn hidden_bytes() -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(|&b| !is_own_character(b))
}

/// Both directions of the byte spelling, built once per vocabulary.
#[derive(Debug, Clone)]
pub struct ByteSpelling {
    hidden: Vec<u8>,
}

impl Default for ByteSpelling {
    fn default() -> Self {
        Self { hidden: hidden_bytes().collect() }
    }
}

impl ByteSpelling {
    /// Raw bytes of a printable token, or `None` if a character stands for no byte.
    pub fn to_bytes(&self, printable: &str) -> Option<Vec<u8>> {
        printable.chars().map(|c| self.char_to_byte(c)).collect()
    }

    /// Printable spelling of raw token bytes.
    pub fn to_printable(&self, bytes: &[u8]) -> String {
        bytes.iter().map(|&b| byte_to_char(b)).collect()
    }

    fn char_to_byte(&self, c: char) -> Option<u8> {
        if let Ok(byte) = u8::try_from(u32::from(c)) {
            return is_own_character(byte).then_some(byte);
        }
        let index = u32::from(c).checked_sub(0x100)?;
        self.hidden.get(index as usize).copied()
    }
}

/// Joins token bytes into text, holding back an unfinished UTF-8 character.
///
/// Bytes that cannot be part of any character become U+FFFD, one for each
/// maximal invalid sequence, as [`String::from_utf8_lossy`] does; the text of
/// all pushes joined with [`Utf8Joiner::finish`] equals the lossy decoding of
/// all bytes at once.
#[derive(Debug, Default, Clone)]
pub struct Utf8Joiner {
    held: Vec<u8>,
}

impl Utf8Joiner {
    /// A joiner that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes and returns the text that is now complete (maybe empty).
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.held.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            let at_end = done + invalid.len() == self.held.len();
            if at_end && is_unfinished(invalid) {
                break;
            }
            if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            done += invalid.len();
        }
        self.held.drain(..done);
        text
    }

    /// True while an unfinished character is held back.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends the stream: an unfinished character comes out as U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

/// True if `bytes` is a proper prefix of some UTF-8 character.
fn is_unfinished(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => false,
        Err(error) => error.valid_up_to() == 0 && error.error_len().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_spelling_covers_every_byte_once() {
        let spelling = ByteSpelling::default();
        let all: Vec<u8> = (0..=255).collect();
        let printable = spelling.to_printable(&all);
        assert_eq!(printable.chars().count(), 256);
        assert_eq!(spelling.to_bytes(&printable), Some(all));
        assert_eq!(byte_to_char(b' '), 'Ġ');
        assert_eq!(byte_to_char(b'\n'), 'Ċ');
        assert_eq!(byte_to_char(0xad), 'Ń');
        assert_eq!(spelling.to_bytes("a b"), None);
    }

    #[test]
    fn joiner_holds_an_unfinished_character_back() {
        let mut joiner = Utf8Joiner::new();
        assert_eq!(joiner.push(&[b'a', 0xe5, 0xae]), "a");
        assert!(joiner.is_holding());
        assert_eq!(joiner.push(&[0x9f, b'b']), "実b");
        assert!(!joiner.is_holding());
        assert_eq!(joiner.finish(), "");
    }

    #[test]
    fn joined_pieces_equal_the_lossy_text_of_the_whole() {
        let bytes = b"ok \xf0\x9f\x98\x80 \xff\xc3( \xe2\x82 tail \xe2\x82";
        let whole = String::from_utf8_lossy(bytes).into_owned();
        for size in 1..bytes.len() {
            let mut joiner = Utf8Joiner::new();
            let mut text: String = bytes.chunks(size).map(|c| joiner.push(c)).collect();
            text.push_str(&joiner.finish());
            assert_eq!(text, whole, "chunks of {size}");
        }
    }
}
