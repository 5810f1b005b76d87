//! The program as a user meets it: output, messages and exit codes.
//!
//! The real model is found through `TENSORYARD_MODELS`; tests that need it say
//! so when it is absent.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod convert;
mod devices;
mod eval;
mod inspect;
mod models;
mod plan;
mod program;
mod pull;
mod support;
mod transcribe;

use std::path::Path;

use snapbox::cmd::Command;

/// The program with a cache of its own, no colours and no proxy.
fn tensoryard(cache: &Path) -> Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tensoryard"));
    command.env("TENSORYARD_CACHE", cache).env("NO_COLOR", "1").env_remove("TENSORYARD_LOG");
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
    {
        command.env_remove(name);
    }
    Command::from_std(command)
}
