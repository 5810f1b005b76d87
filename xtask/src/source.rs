//! Finds words in Rust source, outside of comments and literals.
//!
//! A scanner of just enough of the language: line and nested block comments,
//! strings with escapes, raw strings, characters and lifetimes.

/// Whether the source contains the word as code.
pub fn has_word(source: &str, word: &str) -> bool {
    code_of(source).split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// The source with comments and the content of literals left out.
fn code_of(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment_len(rest),
            '"' => string_len(rest),
            'r' | 'b' | 'c' if !ends_in_word(&code) => prefixed_literal_len(rest),
            '\'' => char_len(rest),
            _ => 0,
        };
        if skipped > 0 {
            code.push(' ');
            rest = &rest[skipped..];
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    code
}

fn ends_in_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of a string that starts with its opening quote.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a raw, byte or C string at the start; zero when there is none.
fn prefixed_literal_len(text: &str) -> usize {
    let prefix = text.find(|c: char| !matches!(c, 'r' | 'b' | 'c')).unwrap_or(text.len());
    if !matches!(&text[..prefix], "r" | "b" | "c" | "br" | "cr") {
        return 0;
    }
    if !text[..prefix].ends_with('r') {
        return if text[prefix..].starts_with('"') {
            prefix + string_len(&text[prefix..])
        } else {
            0
        };
    }
    let hashes = text[prefix..].bytes().take_while(|byte| *byte == b'#').count();
    let open = prefix + hashes;
    if !text[open..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len())
}

/// Length of a character at the start; zero for a lifetime.
fn char_len(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            text[2..]
                .char_indices()
                .skip(1)
                .find(|(_, c)| *c == '\'')
                .map_or(0, |(at, _)| 2 + at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::has_word;

    #[test]
    fn finds_the_word_in_code_only() {
        let word = "unsafe";
        assert!(has_word("unsafe { f() }", word));
        assert!(has_word("pub unsafe fn f<'a>(x: &'a str) {}", word));
        assert!(has_word("let c = '\"'; unsafe {}", word));
        assert!(has_word("let c = '\\''; unsafe {}", word));
        assert!(has_word("/* a /* b */ c */ unsafe {}", word));
        assert!(has_word("let s = r#\"\"x\"#; unsafe {}", word));
        assert!(has_word("let s = \"\\\\\"; unsafe {}", word));
        assert!(!has_word("#![deny(unsafe_code)]", word));
        assert!(!has_word("// unsafe\n/* unsafe /* */ unsafe */", word));
        assert!(!has_word("let s = \"a \\\" unsafe\";", word));
        assert!(!has_word("let s = br##\"unsafe\"# unsafe\"##;", word));
        assert!(!has_word("let s = c\"unsafe\"; let b = b\"unsafe\";", word));
        assert!(!has_word("let für = \"ünsafe\"; // ünsafe unsafe", word));
    }
}
