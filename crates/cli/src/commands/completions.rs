//! `tensoryard completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::app::Cli;
use crate::output;

/// Prints a script that completes commands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "For example: tensoryard completions bash > \
    ~/.local/share/bash-completion/completions/tensoryard")]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tensoryard", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
