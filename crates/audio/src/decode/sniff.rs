//! A first look at the bytes: what the file is not.
//!
//! Demuxers search for a frame marker through everything they are given, and
//! say little when there is none. Here the files that people pass by mistake
//! (web pages, text, images, archives, models) are told apart by their first
//! bytes. Nothing that may be audio is refused here.

/// Bytes that [`not_audio`] and [`container`] want to see.
pub(super) const SNIFF_LEN: usize = 1024;

/// The container that the first bytes promise, if they do.
pub(super) fn container(head: &[u8]) -> Option<&'static str> {
    let tag = |at: usize, tag: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(tag));
    if tag(8, b"WAVE") && (tag(0, b"RIFF") || tag(0, b"RF64") || tag(0, b"BW64")) {
        return Some("WAV");
    }
    if tag(4, b"ftyp") || tag(4, b"moov") {
        return Some("MP4");
    }
    let names = [
        (b"fLaC".as_slice(), "FLAC"),
        (b"OggS", "Ogg"),
        (b"\x1a\x45\xdf\xa3", "Matroska"),
        (b"FORM", "AIFF"),
        (b"RIFF", "RIFF"),
    ];
    names.iter().find(|(magic, _)| tag(0, magic)).map(|(_, name)| *name)
}

const MAGICS: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x7fELF", "an executable program"),
    (b"GGUF", "a GGUF model"),
    (b"lmgg", "a ggml model"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"#!AMR", "an AMR recording, which is not supported"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "a Windows Media file, which is not supported"),
];

/// Starts of containers that are themselves printable text.
const TAGS: &[&[u8]] = &[b"RIFF", b"RF64", b"BW64", b"FORM", b"OggS", b"fLaC", b"ID3"];

/// Names what the bytes look like when they are surely not audio.
pub(super) fn not_audio(head: &[u8]) -> Option<&'static str> {
    if let Some((_, what)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(what);
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some("a WebP image");
    }
    if TAGS.iter().any(|tag| head.starts_with(tag)) {
        return None;
    }
    let text = text_prefix(head)?;
    let start = text.trim_start().get(..64.min(text.trim_start().len())).unwrap_or("");
    let lower = start.to_ascii_lowercase();
    Some(if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        "an HTML page"
    } else if lower.starts_with('<') {
        "an XML or HTML document"
    } else if lower.starts_with("version https://git-lfs") {
        "a Git LFS pointer (the real file was not downloaded)"
    } else if lower.starts_with('{') || lower.starts_with('[') {
        "a JSON document"
    } else {
        "a text file"
    })
}

/// The head as text, if every byte of it is text.
fn text_prefix(head: &[u8]) -> Option<&str> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // A character may be cut by the end of the window.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0c');
    (!text.is_empty() && text.chars().all(printable)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_not_audio() {
        assert_eq!(not_audio(b"<!DOCTYPE html><html>"), Some("an HTML page"));
        assert_eq!(not_audio(b"\n <HTML lang=en>"), Some("an HTML page"));
        assert_eq!(not_audio("h\u{e9}llo world".as_bytes()), Some("a text file"));
        assert_eq!(not_audio(b"{\"error\": 404}"), Some("a JSON document"));
        assert_eq!(not_audio(b"\x89PNG\r\n\x1a\n...."), Some("a PNG image"));
    }

    #[test]
    fn audio_magics_pass() {
        for head in [
            b"RIFF\x24\0\0\0WAVEfmt ".as_slice(),
            b"fLaC\0\0\0\x22",
            b"OggS\0\x02\0\0",
            b"ID3\x04\0\0\0\0",
            b"\xff\xfb\x90\x00",
            b"FORM\0\0\0\0AIFFCOMM",
            b"\x1a\x45\xdf\xa3\x01\0",
        ] {
            assert_eq!(not_audio(head), None, "{head:?}");
        }
    }
}
