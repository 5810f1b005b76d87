//! `tensoryard convert`: from one model format to another.

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tensoryard::{ConvertOptions, WeightType};

use crate::app::App;
use crate::output;

/// Converts a Whisper model: CTranslate2, ggml .bin or GGUF in, GGUF or ggml .bin out.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model: a file, or a CTranslate2 folder
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// The file to write
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Type of the matrices
    #[arg(long = "type", value_enum, default_value_t = Type::Keep)]
    weights: Type,

    /// Replace OUT if it exists
    #[arg(long, short)]
    force: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Type {
    /// As they are in the input
    Keep,
    /// 16-bit floats
    F16,
    /// 32-bit floats
    F32,
}

pub fn run(args: &Args, app: &App) -> anyhow::Result<()> {
    if args.output.exists() && !args.force {
        anyhow::bail!("{} exists; --force replaces it", args.output.display());
    }
    let mut options = ConvertOptions::default();
    options.weights = match args.weights {
        Type::Keep => WeightType::Keep,
        Type::F16 => WeightType::F16,
        Type::F32 => WeightType::F32,
    };
    let target =
        if app.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos} of {len} tensors  {msg}") {
        bar.set_style(style);
    }
    let hold = app.interrupt.hold();
    let result = tensoryard::convert(&args.input, &args.output, None, options, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.tensor.to_owned());
        !app.interrupt.is_raised()
    });
    drop(hold);
    bar.finish_and_clear();
    result?;
    if !app.quiet {
        let bytes = args.output.metadata().map_or(0, |metadata| metadata.len());
        let megabytes = bytes.div_ceil(1_000_000);
        output::say(&format!("{}: {megabytes} MB", args.output.display()));
    }
    Ok(())
}
