//! Telling formats apart by the first bytes of a file, whatever it is called.
//!
//! Also tells what a file is that cannot be a model: people save web pages,
//! Git LFS pointers and archives under a model's name. Nothing is parsed here
//! beyond the first bytes.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{FormatError, Result};

/// The formats that this crate tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// GGUF, any architecture.
    Gguf,
    /// The ggml Whisper format that whisper.cpp reads, usually `ggml-*.bin`.
    GgmlWhisper,
    /// CTranslate2: a `model.bin`, alone or in a directory with its vocabulary.
    CTranslate2,
    /// safetensors; recognised, not yet read.
    SafeTensors,
}

impl Format {
    /// The format's name as its users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gguf => "GGUF",
            Self::GgmlWhisper => "ggml Whisper",
            Self::CTranslate2 => "CTranslate2",
            Self::SafeTensors => "safetensors",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many bytes of a file [`detect_bytes`] looks at.
const HEAD: usize = 512;

/// The format of the model at `path`, a file or a CTranslate2 directory.
///
/// # Errors
/// No such path; [`FormatError::LooksLike`] with a guess when it is no model.
pub fn detect(path: impl AsRef<Path>) -> Result<Format> {
    let path = path.as_ref();
    detect_at(path).map_err(|error| error.in_file(path))
}

fn detect_at(path: &Path) -> Result<Format> {
    let metadata = std::fs::metadata(path).map_err(FormatError::io("open the file"))?;
    if metadata.is_dir() {
        let model = model_in_directory(path)?;
        return match detect_at(&model).map_err(|error| error.in_file(&model))? {
            Format::CTranslate2 => Ok(Format::CTranslate2),
            other => Err(FormatError::WrongFormat {
                wanted: Format::CTranslate2.name(),
                found: other.name().into(),
            }),
        };
    }
    let file = File::open(path).map_err(FormatError::io("open the file"))?;
    let mut head = Vec::with_capacity(HEAD);
    file.take(HEAD as u64).read_to_end(&mut head).map_err(FormatError::io("read the file"))?;
    detect_bytes(&head, metadata.len())
}

/// The `model.bin` of a directory that holds a CTranslate2 model.
pub(crate) fn model_in_directory(directory: &Path) -> Result<PathBuf> {
    let model = directory.join("model.bin");
    if model.is_file() {
        return Ok(model);
    }
    let mut candidates = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(FormatError::io("list the directory"))? {
        let name = entry.map_err(FormatError::io("list the directory"))?.file_name();
        let name = name.to_string_lossy().into_owned();
        let model_like =
            [".gguf", ".bin", ".safetensors", ".pt", ".pth"].iter().any(|end| name.ends_with(end));
        if model_like && candidates.len() < 8 {
            candidates.push(name);
        }
    }
    candidates.sort();
    Err(FormatError::LooksLike(if candidates.is_empty() {
        "a directory without a model.bin".into()
    } else {
        format!("a directory without a model.bin; name one of its files: {}", candidates.join(", "))
    }))
}

/// The format of a file of `len` bytes that begins with `head`.
///
/// # Errors
/// [`FormatError::LooksLike`] with a guess when it is no model.
pub fn detect_bytes(head: &[u8], len: u64) -> Result<Format> {
    match head {
        [b'G', b'G', b'U', b'F', ..] => Ok(Format::Gguf),
        [b'l', b'm', b'g', b'g', ..] => Ok(Format::GgmlWhisper),
        _ if is_ctranslate2(head) => Ok(Format::CTranslate2),
        _ if is_safetensors(head, len) => Ok(Format::SafeTensors),
        _ => Err(FormatError::LooksLike(guess(head))),
    }
}

/// A small version number, then the model's spec name as a counted C string.
fn is_ctranslate2(head: &[u8]) -> bool {
    let [version @ 1..=31, 0, 0, 0, low, high, rest @ ..] = head else { return false };
    let len = usize::from(u16::from_le_bytes([*low, *high]));
    let name_like = |name: &[u8]| matches!(name, [text @ .., 0] if !text.is_empty() && text.iter().all(u8::is_ascii_alphanumeric));
    *version > 1 && (2..=128).contains(&len) && rest.get(..len).is_some_and(name_like)
}

/// A 64-bit header size that fits the file, then a JSON object.
fn is_safetensors(head: &[u8], len: u64) -> bool {
    let Some((size, rest)) = head.split_first_chunk::<8>() else { return false };
    let size = u64::from_le_bytes(*size);
    size >= 2 && size.checked_add(8).is_some_and(|end| end <= len) && rest.first() == Some(&b'{')
}

/// What a file that is no model seems to be.
fn guess(head: &[u8]) -> String {
    let is_inside = |needle: &[u8]| head.windows(needle.len()).any(|window| window == needle);
    let text = head.trim_ascii_start();
    let begins = |start: &str| {
        text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start.as_bytes()))
    };
    let text_like =
        !head.is_empty() && head.iter().all(|&byte| byte >= 0x20 || byte.is_ascii_whitespace());
    let known = match head {
        [] => "an empty file",
        [b'P', b'K', 3, 4, ..] if is_inside(b"data.pkl") => {
            "a PyTorch checkpoint (ZIP with pickle); convert it first"
        }
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => "a ZIP archive; unpack it first",
        [0x80, 2..=5, ..] => "a Python pickle (an old PyTorch checkpoint); convert it first",
        [0x1f, 0x8b, ..] => "a gzip archive; unpack it first",
        [b'7', b'z', 0xbc, 0xaf, ..] => "a 7-Zip archive; unpack it first",
        [b'B', b'Z', b'h', ..] => "a bzip2 archive; unpack it first",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "an xz archive; unpack it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "a Zstandard archive; unpack it first",
        [b'g', b'g', b'm', b'l', ..] => "a big-endian ggml file",
        [b'f', b'm', b'g', b'g', ..]
        | [b't', b'j', b'g', b'g', ..]
        | [b'a', b'l', b'g', b'g', ..] => "an old ggml file from before GGUF (ggmf, ggjt or ggla)",
        [_, _, _, _, b'T', b'F', b'L', b'3', ..] => "a TensorFlow Lite model",
        [0x89, b'H', b'D', b'F', ..] => "an HDF5 (Keras) file",
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => "a NumPy array",
        [b'R', b'I', b'F', b'F', ..] => "an audio or video file (RIFF)",
        [b'I', b'D', b'3', ..] => "an MP3 file",
        [b'O', b'g', b'g', b'S', ..] => "an Ogg audio file",
        [b'f', b'L', b'a', b'C', ..] => "a FLAC audio file",
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "an MP4 audio or video file",
        [0x7f, b'E', b'L', b'F', ..] => "a program or library",
        [b'%', b'P', b'D', b'F', ..] => "a PDF document",
        _ if begins("version https://git-lfs") => {
            "a Git LFS pointer: the model itself was not downloaded (git lfs pull)"
        }
        _ if begins("<!doctype html") || begins("<html") || begins("<head") => {
            "an HTML page: the download gave a web page instead of the model"
        }
        _ if begins("<?xml") || begins("<error") => "an XML document, perhaps an error of a server",
        _ if text_like && (begins("{") || begins("[")) => "a JSON document",
        _ if head.get(257..262) == Some(b"ustar".as_slice()) => "a tar archive; unpack it first",
        _ if text_like => "a text file",
        _ if head.len() < 16 => {
            return format!("a file of {} bytes, too short for a model", head.len());
        }
        _ if head.iter().all(|&byte| byte == 0) => {
            "a file of zeros, perhaps an unfinished download"
        }
        _ => {
            let first = head.get(..8).unwrap_or(head);
            return format!("an unknown format (first bytes {first:02x?})");
        }
    };
    known.to_owned()
}
