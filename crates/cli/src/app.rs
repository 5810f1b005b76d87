//! The command line as a whole, and what all commands share.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser};
use tensoryard::hub::{CacheDir, Hub};
use tensoryard::runtime::Registry;

use crate::commands::Command;
use crate::drivers;
use crate::interrupt::Interrupt;
use crate::logging;

/// Speech to text on your own machine.
#[derive(Debug, Parser)]
#[command(name = "tensoryard", version, max_term_width = 100)]
#[command(after_help = "Run `tensoryard COMMAND --help` for the options of a command.")]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "General options")]
pub struct GlobalArgs {
    /// Folder for fetched models
    ///
    /// Without it, models are kept in the user's cache directory: on Linux
    /// $XDG_CACHE_HOME/tensoryard or ~/.cache/tensoryard.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "TENSORYARD_CACHE",
        hide_env_values = true
    )]
    pub cache_dir: Option<PathBuf>,

    /// Driver library with more devices; may be given again
    ///
    /// The library becomes a part of the program: load only what you trust.
    #[arg(long = "driver", global = true, value_name = "PATH")]
    pub drivers: Vec<PathBuf>,

    /// Say nothing but results and errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Say more; twice or thrice for even more
    ///
    /// Log lines go to standard error. TENSORYARD_LOG chooses them in more
    /// detail, for example `tensoryard_runtime=debug`.
    #[arg(long, short, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

/// What a command works with.
#[derive(Debug)]
pub struct App {
    cache_dir: Option<PathBuf>,
    drivers: Vec<PathBuf>,
    /// Whether only results and errors are wanted.
    pub quiet: bool,
    /// How many times more talk was asked for.
    pub verbose: u8,
    /// Tells when to stop.
    pub interrupt: Interrupt,
}

impl App {
    /// Sets up logging and the handling of Ctrl-C.
    pub fn start(global: &GlobalArgs) -> anyhow::Result<Self> {
        logging::start(global.verbose)?;
        Ok(Self {
            cache_dir: global.cache_dir.clone(),
            drivers: global.drivers.clone(),
            quiet: global.quiet,
            verbose: global.verbose,
            interrupt: Interrupt::install()?,
        })
    }

    /// The drivers and devices that can be had, with those of the libraries named.
    pub fn registry(&self) -> anyhow::Result<Registry> {
        let mut registry = tensoryard::devices::built_in();
        drivers::register(&mut registry, &self.drivers)?;
        Ok(registry)
    }

    /// The models that can be had by name, over the chosen cache.
    pub fn hub(&self) -> anyhow::Result<Hub> {
        let cache = match &self.cache_dir {
            Some(dir) => CacheDir::at(dir),
            None => CacheDir::of_user()?,
        };
        Ok(Hub::new(cache))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_help_names_every_command() {
        let mut program = Cli::command();
        program.clone().debug_assert();
        let help = program.render_help().to_string();
        let commands: Vec<_> = program.get_subcommands().collect();
        assert!(commands.len() >= 8, "{help}");
        for command in commands {
            let (name, about) = (command.get_name(), command.get_about().map(ToString::to_string));
            assert!(help.contains(&format!("\n  {name} ")), "{name} is not in {help}");
            assert!(help.contains(&about.unwrap()), "what {name} does is not in {help}");
        }
    }
}
