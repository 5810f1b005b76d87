//! The commands, one a module: its arguments and what it does.

mod completions;
mod models;
mod pull;

use clap::Subcommand;

use crate::app::App;

/// What the program is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Fetch models by name
    Pull(pull::Args),
    /// List the models that can be fetched by name, or remove some
    Models(models::Args),
    /// Print a script that completes commands and options in a shell
    Completions(completions::Args),
}

/// Runs a command.
pub fn run(command: &Command, app: &App) -> anyhow::Result<()> {
    match command {
        Command::Pull(args) => pull::run(args, app),
        Command::Models(args) => models::run(args, app),
        Command::Completions(args) => completions::run(args),
    }
}
