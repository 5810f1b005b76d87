//! Whisper's tokens: raw bytes by id, the printable spelling that files use
//! for them, and the special tokens that some files leave out.
//!
//! The printable spelling is that of GPT-2: each byte has a visible character,
//! so that a space is `Ġ`. See the encoder of
//! <https://github.com/openai/gpt-2/blob/master/src/encoder.py>.

use super::languages::LANGUAGES;

/// The tokens of a model and, when known, how they merge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WhisperVocabulary {
    /// The raw bytes of each token, by id.
    pub tokens: Vec<Vec<u8>>,
    /// Pairs of raw bytes that merge, most frequent first. Empty when the file
    /// does not say; the order of the tokens then gives the same ranks.
    pub merges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl WhisperVocabulary {
    /// The id of a special token, such as `<|endoftext|>`.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        let at = self.tokens.iter().rposition(|token| token == text.as_bytes())?;
        u32::try_from(at).ok()
    }

    /// Whether a token looks special: `<|…|>`.
    pub fn is_special(token: &[u8]) -> bool {
        token.len() > 4 && token.starts_with(b"<|") && token.ends_with(b"|>")
    }

    /// Fills missing tokens at the end up to `n_vocab`, with Whisper's special
    /// tokens where the size is one of Whisper's.
    pub(crate) fn complete(&mut self, n_vocab: usize) {
        if self.tokens.len() >= n_vocab {
            return;
        }
        let special = special_tokens(n_vocab);
        let first = n_vocab - special.len();
        for id in self.tokens.len()..n_vocab {
            let known = id.checked_sub(first).and_then(|at| special.get(at));
            let token = known.cloned().unwrap_or_else(|| format!("<|extra_{id}|>"));
            self.tokens.push(token.into_bytes());
        }
    }
}

/// Whether a Whisper vocabulary of `n_vocab` tokens is that of a multilingual model.
pub fn is_multilingual(n_vocab: usize) -> bool {
    n_vocab >= 51865
}

/// The special tokens at the end of a Whisper vocabulary of `n_vocab` tokens,
/// from `<|endoftext|>` to `<|30.00|>`; empty for a size that is not Whisper's.
pub fn special_tokens(n_vocab: usize) -> Vec<String> {
    // 51864: English only. 51865: multilingual. 51866: with Cantonese.
    let n_languages = match n_vocab {
        51864 | 51865 => 99,
        51866 => 100,
        _ => return Vec::new(),
    };
    let named = |name: &str| format!("<|{name}|>");
    let mut tokens = vec![named("endoftext"), named("startoftranscript")];
    tokens.extend(LANGUAGES.iter().take(n_languages).map(|(code, _)| named(code)));
    let tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"];
    tokens.extend(tasks.map(named));
    // Timestamps count in steps of 20 ms.
    tokens.extend((0..=1500).map(|step| format!("<|{}.{:02}|>", step / 50, step % 50 * 2)));
    tokens
}

/// The visible character of a byte.
fn byte_char(byte: u8) -> char {
    let visible = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if visible {
        return char::from(byte);
    }
    // The 68 other bytes follow each other from U+0100 on.
    let rank = match byte {
        0..=0x20 => u32::from(byte),
        0x7f..=0xa0 => u32::from(byte) - 0x7f + 0x21,
        _ => 0x43,
    };
    char::from_u32(0x100 + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte of a visible character, if it stands for one.
fn char_byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The raw bytes of a token in its printable spelling. A character that
/// stands for no byte keeps its UTF-8 bytes.
#[doc(alias = "bytes_to_unicode")]
pub fn token_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match char_byte(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// The printable spelling of a token's raw bytes; [`token_bytes`] undoes it.
#[doc(alias = "bytes_to_unicode")]
pub fn token_text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| byte_char(byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        let all: Vec<u8> = (0..=255).collect();
        let text = token_text(&all);
        assert_eq!(text.chars().count(), 256);
        assert_eq!(token_bytes(&text), all);
        // Known spellings: space, newline, soft hyphen, delete.
        assert_eq!(token_text(b" a\n"), "Ġa\u{10a}");
        assert_eq!(token_text(&[0xad]), "\u{143}");
        assert_eq!(token_text(&[0x7f]), "\u{121}");
    }

    #[test]
    fn special_tokens_end_where_whisper_ends() {
        let english = special_tokens(51864);
        let first = 51864 - english.len();
        assert_eq!(first, 50256);
        assert_eq!(english[50362 - first], "<|notimestamps|>");
        assert_eq!(english.last().unwrap(), "<|30.00|>");
        let multilingual = special_tokens(51865);
        assert_eq!(51865 - multilingual.len(), 50257);
        assert_eq!(multilingual[50359 - 50257], "<|transcribe|>");
        let third = special_tokens(51866);
        assert_eq!(51866 - third.len(), 50257);
        assert_eq!(third[50358 - 50257], "<|yue|>");
        assert!(special_tokens(100).is_empty());
    }

    #[test]
    fn missing_tokens_are_completed() {
        let mut vocabulary =
            WhisperVocabulary { tokens: vec![b"x".to_vec(); 50257], merges: Vec::new() };
        vocabulary.complete(51864);
        assert_eq!(vocabulary.tokens.len(), 51864);
        assert_eq!(vocabulary.special_id("<|startoftranscript|>"), Some(50257));
    }
}
