//! Integration tests of the model formats, in one binary.
//!
//! Files are built by hand, byte for byte, so that a fault shared by reader
//! and writer does not pass. Tests of real models say so when they are skipped.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod alloc;
mod ctranslate2;
mod detect;
mod ggml_whisper;
mod gguf;
mod gguf_hostile;
mod property;
mod real_models;
mod support;
mod whisper;
