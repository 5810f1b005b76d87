//! SHA-256 of files, and the gate that every fetched file passes.
//!
//! A file gets its final name only in [`accept`], after size and checksum were
//! found right. Hashing goes in pieces so that it can be cancelled.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use super::catalogue::ModelFile;
use super::error::SourceError;

/// Bytes read at a time, here and when files are copied.
pub(super) const CHUNK_BYTES: usize = 1 << 16;

/// The SHA-256 of a file as 64 lower-case hexadecimal digits; `None` when cancelled.
pub(super) fn sha256_of_file(path: &Path, cancel: &AtomicBool) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match file.read(&mut chunk)? {
            0 => break,
            n => hasher.update(&chunk[..n]),
        }
    }
    Ok(Some(hex(&hasher.finalize())))
}

/// Moves a complete file to its final place if it is the recorded one, else removes it.
pub(super) fn accept(
    file: &ModelFile,
    part: &Path,
    destination: &Path,
    cancel: &AtomicBool,
) -> Result<(), SourceError> {
    let read_error = |source| SourceError::io("read", part, source);
    let found_bytes = fs::metadata(part).map_err(read_error)?.len();
    let refused = if found_bytes != file.size_bytes {
        SourceError::Size { file: file.name.clone(), expected: file.size_bytes, found: found_bytes }
    } else {
        let Some(found) = sha256_of_file(part, cancel).map_err(read_error)? else {
            return Err(SourceError::Cancelled);
        };
        if found == file.sha256 {
            return fs::rename(part, destination)
                .map_err(|source| SourceError::io("write", destination, source));
        }
        SourceError::Checksum { file: file.name.clone(), expected: file.sha256.clone(), found }
    };
    fs::remove_file(part).map_err(|source| SourceError::io("remove", part, source))?;
    Err(refused)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_example() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let digest = sha256_of_file(&path, &AtomicBool::new(false)).unwrap();
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.as_deref(), Some(expected));
    }

    #[test]
    fn stops_when_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(sha256_of_file(&path, &AtomicBool::new(true)).unwrap(), None);
    }
}
