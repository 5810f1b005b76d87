use std::fs;

use tensoryard_formats::gguf::GgufFile;
use tensoryard_formats::{Format, FormatError, OpenOptions, detect, detect_bytes, inspect};

use crate::support::{gguf, tiny_ctranslate2, tiny_ggml};

fn looks_like(head: &[u8]) -> String {
    match detect_bytes(head, head.len() as u64) {
        Err(FormatError::LooksLike(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn formats_are_told_by_their_first_bytes() {
    let of =
        |bytes: &[u8]| detect_bytes(&bytes[..bytes.len().min(512)], bytes.len() as u64).unwrap();
    assert_eq!(of(&gguf(3, 0, 0).0), Format::Gguf);
    assert_eq!(of(&tiny_ggml()), Format::GgmlWhisper);
    assert_eq!(of(&tiny_ctranslate2()), Format::CTranslate2);
    assert_eq!(of(b"\x02\0\0\0\0\0\0\0{}"), Format::SafeTensors);
}

#[test]
fn files_that_are_no_models_are_named() {
    for (head, want) in [
        (&b""[..], "empty file"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"\n  <HTML lang=en>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "Git LFS pointer"),
        (b"PK\x03\x04\x00\x00archive/data.pkl", "PyTorch"),
        (b"PK\x03\x04\x00\x00word/document.xml", "ZIP"),
        (b"\x80\x02}q\x00(X\x05\x00\x00\x00", "pickle"),
        (b"{\"model_type\": \"whisper\"}", "JSON"),
        (b"tjgg\x03\0\0\0\0\0\0\0\0\0\0\0", "old ggml"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "gzip"),
        (b"RIFF\x24\x08\x00\x00WAVEfmt ", "RIFF"),
        (b"lm\x00\x01\x02\x03\x04\x05", "8 bytes"),
        (b"Entry not found", "text file"),
        (&[0; 64], "zeros"),
        (&[0x11, 0x99, 0xee, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], "first bytes [11, 99"),
    ] {
        let what = looks_like(head);
        assert!(what.contains(want), "{what:?} for {want:?}");
    }
}

#[test]
fn errors_begin_with_the_path() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["модель.gguf", "מודל.gguf", "模型 モデル.gguf"] {
        let path = dir.path().join(name);
        let missing = GgufFile::open(&path, OpenOptions::new()).unwrap_err();
        assert!(missing.to_string().starts_with(path.to_str().unwrap()), "{missing}");
        assert!(matches!(missing.root(), FormatError::Io { .. }));
        fs::write(&path, "<!doctype html><title>404</title>").unwrap();
        let page = GgufFile::open(&path, OpenOptions::new()).unwrap_err();
        assert!(page.to_string().starts_with(path.to_str().unwrap()), "{page}");
        let page = inspect(&path).unwrap_err();
        assert!(page.to_string().contains("HTML page"), "{page}");
        fs::write(&path, gguf(3, 0, 0).0).unwrap();
        GgufFile::open(&path, OpenOptions::new()).unwrap();
        assert_eq!(detect(&path).unwrap(), Format::Gguf);
    }
}

#[test]
fn directories_and_read_only_files() {
    let dir = tempfile::tempdir().unwrap();
    let error = GgufFile::open(dir.path(), OpenOptions::new()).unwrap_err();
    assert!(error.to_string().contains("a directory"), "{error}");
    let error = detect(dir.path()).unwrap_err();
    assert!(error.to_string().contains("without a model.bin"), "{error}");
    let path = dir.path().join("weights.gguf");
    fs::write(&path, gguf(3, 0, 0).0).unwrap();
    let error = detect(dir.path()).unwrap_err();
    assert!(error.to_string().contains("weights.gguf"), "{error}");
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    GgufFile::open(&path, OpenOptions::new()).unwrap();
    fs::write(dir.path().join("model.bin"), tiny_ctranslate2()).unwrap();
    assert_eq!(detect(dir.path()).unwrap(), Format::CTranslate2);
}

#[test]
fn a_file_of_another_known_format_is_named() {
    let error = GgufFile::from_bytes(tiny_ggml()).unwrap_err();
    assert!(error.to_string().contains("ggml Whisper"), "{error}");
}
