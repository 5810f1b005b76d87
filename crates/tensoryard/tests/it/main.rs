//! End-to-end tests: real models against golden figures of the original.
//!
//! Recordings and goldens are looked for in `$TENSORYARD_ASSETS`, else
//! `../shared/assets` beside the workspace; models in `$TENSORYARD_MODELS`,
//! else `target/models`. What is missing is skipped loudly, or fails the test
//! where `TENSORYARD_REQUIRE_ASSETS` is 1.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod decoding;
mod encoder;
mod formats;
mod from_ggml;
mod goldens;
mod lengths;
mod logits;
mod plan_view;
mod sessions;
mod settings;
mod strategy;
mod support;
mod transcripts;
