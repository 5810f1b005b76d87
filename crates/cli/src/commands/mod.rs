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
    ///
    /// WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A, WebM and AIFF are read, at any rate. With no file, a
    /// short spoken sample that comes with the program is transcribed. The model is fetched when
    /// it is not there yet.
    Transcribe(transcribe::Args),
    /// Measure word and character error rates over a list of clips
    ///
    /// The manifest is a table with tabs between columns and a first line that names them: `file`
    /// (relative to the manifest), `transcript`, and optionally `split` and `language`. Text is
    /// normalised as in the Whisper paper before it is compared.
    Eval(eval::Args),
    /// Fetch models by name
    ///
    /// A model is downloaded from the first of its sources that works, checked by its SHA-256,
    /// converted and kept in the cache. One that is already there is checked and left alone; an
    /// interrupted download goes on where it stopped.
    Pull(pull::Args),
    /// List the models that can be fetched by name, or remove some
    Models(models::Args),
    /// Convert a model file to another format
    ///
    /// The format of OUT goes by its name: .gguf or .bin. OUT appears only when it is complete.
    Convert(convert::Args),
    /// Show what is inside a model file
    Inspect(inspect::Args),
    /// Show what of a model would run where and why, before it is loaded
    ///
    /// Only the header of the model file is read. The plan tells the splits of each graph, what
    /// is copied between devices, what each memory must hold, how long a run is predicted to take
    /// where the speed of all devices is known, and what does not fit and by how much.
    Plan(plan::Args),
    /// List the devices of this machine
    ///
    /// A device is chosen by `--devices DRIVER[:INDEX|:"NAME"][:key=value[;key=value]...]`, such
    /// as cpu:threads=4.
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
