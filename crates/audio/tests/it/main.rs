//! Integration tests of the audio crate: real clips against goldens and the
//! manifest, files made here, and damaged files. The clips are found through
//! `TENSORYARD_ASSETS`; tests that need them say so when they are absent.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod clips;
mod containers;
mod errors;
mod hostile;
mod mel;
mod resample;
mod streams;
mod support;
mod wav_files;
