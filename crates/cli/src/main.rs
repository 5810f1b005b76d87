//! The `tensoryard` program.
//!
//! Results go to standard output, everything said to a person to standard
//! error. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

mod app;
mod commands;
mod drivers;
mod fetch;
mod interrupt;
mod logging;
mod model;
mod output;
mod placement;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::app::{App, Cli};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::report_usage(&error),
    };
    match App::start(&cli.global).and_then(|app| commands::run(&cli.command, &app)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::report(&error),
    }
}
