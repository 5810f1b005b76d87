//! Developer commands: `cargo xtask <command>`.
//!
//! `check-layers` keeps the shape of the workspace: which crate may depend on
//! which, and which files may contain unsafe code. `bench` measures beside a
//! peer.

mod bench;
mod layers;
mod source;
mod unsafe_files;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};

const USAGE: &str = "usage: cargo xtask check-layers";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check-layers"] => workspace_root().and_then(|root| check_layers(&root)),
        ["bench", ref options @ ..] => workspace_root().and_then(|root| bench::run(&root, options)),
        _ => Err(anyhow!("{USAGE}\n       {}", bench::USAGE)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With standard error gone there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check_layers(root: &Path) -> anyhow::Result<()> {
    let mut faults = layers::check(&layers::read_packages(root)?);
    faults.extend(unsafe_files::check(root)?);
    if faults.is_empty() {
        writeln!(std::io::stdout(), "layers and unsafe files are as declared")?;
        return Ok(());
    }
    bail!("{} faults:\n  {}", faults.len(), faults.join("\n  "))
}

fn workspace_root() -> anyhow::Result<PathBuf> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
    Ok(root.to_owned())
}
