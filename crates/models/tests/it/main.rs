//! Integration tests of tokenizers, text scoring and Whisper's decoding policy.
//!
//! Expected values come from golden files made with the original implementation;
//! models are scripted, so no weights are needed.

#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

mod decode;
mod english;
mod golden;
mod rules;
mod scripted;
mod special;
mod text;
mod tokenizer;
mod transcribe;
mod vocabulary;
