//! From token bytes to text.
//!
//! One character may be spread over several tokens. [`Utf8Joiner`] holds an
//! unfinished character back until its last byte has come, so that text can be
//! shown token by token.

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
