//! The program as a user meets it: output, messages and exit codes.

mod models;
mod program;
mod pull;

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
