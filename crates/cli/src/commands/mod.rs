//! The commands, one a module: its arguments and what it does.

mod completions;
mod convert;
mod devices;
mod eval;
mod inspect;
mod models;
mod plan;
mod pull;
mod transcribe;

use clap::Subcommand;

use crate::app::App;

/// What the program is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Transcribe audio files
    Transcribe(transcribe::Args),
    /// Measure word and character error rates over a list of clips
    Eval(eval::Args),
    /// Fetch models by name
    Pull(pull::Args),
    /// List the models that can be fetched by name, or remove some
    Models(models::Args),
    /// Convert a model file to another format
    Convert(convert::Args),
    /// Show what is inside a model file
    Inspect(inspect::Args),
    /// Show what of a model would run where and why, before it is loaded
    Plan(plan::Args),
    /// List the devices of this machine
    Devices(devices::Args),
    /// Print a script that completes commands and options in a shell
    Completions(completions::Args),
}

/// Runs a command.
pub fn run(command: &Command, app: &App) -> anyhow::Result<()> {
    match command {
        Command::Transcribe(args) => transcribe::run(args, app),
        Command::Eval(args) => eval::run(args, app),
        Command::Convert(args) => convert::run(args, app),
        Command::Inspect(args) => inspect::run(args),
        Command::Plan(args) => plan::run(args, app),
        Command::Devices(args) => devices::run(args, app),
        Command::Pull(args) => pull::run(args, app),
        Command::Models(args) => models::run(args, app),
        Command::Completions(args) => completions::run(args),
    }
}
