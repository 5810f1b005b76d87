//! `tensoryard plan`: what would run where, and why, before a weight is loaded.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use tensoryard::formats::AtomicFile;
use tensoryard::models::whisper::LoadOptions;
use tensoryard::plan_view::{Detail, Report};
use tensoryard::runtime::plan::{NamedPin, Strategy};
use tensoryard::speed::{SpeedFile, planning_rates};

use crate::app::App;
use crate::model;
use crate::output;

/// Shows which op of a model runs where and why, before anything is loaded.
///
/// Only the header of the model file is read. The plan tells the splits of each graph, what is
/// copied between devices, what each memory must hold, how long a run is predicted to take where
/// the speed of all devices is known, and what does not fit and by how much.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 1 when the model does not fit; the plan is shown all the same.")]
pub struct Args {
    /// Name of a model, or path of a model file, as for `transcribe --model`
    #[arg(value_name = "MODEL")]
    model: String,

    /// Devices in order of priority, separated by commas: see `tensoryard devices`
    ///
    /// Each is DRIVER[:INDEX|:"NAME"][:key=value[;key=value]...], such as cpu:threads=4.
    /// Quotes protect commas and other separators.
    #[arg(long, value_name = "DEVICES", default_value = "cpu")]
    devices: String,

    /// Keep what matches PATTERN on DEVICE; may be given again, the last match counts
    ///
    /// PATTERN is held against whole names of weights, state and ops: `*` stands for any
    /// characters, `?` for one. DEVICE is the number of a device in the list, from 0, or its name.
    #[arg(long = "pin", value_name = "PATTERN=DEVICE", value_parser = parse_pin)]
    pins: Vec<NamedPin>,

    /// How devices are chosen
    #[arg(long, value_name = "STRATEGY", default_value = "priority")]
    strategy: StrategyName,

    /// Form of the plan; by the ending of the output file, else text
    #[arg(long, short, value_name = "FORMAT")]
    format: Option<Format>,

    /// Write the plan to a file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// List every operation in the text, as with --verbose
    #[arg(long)]
    nodes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StrategyName {
    /// Where the weights are, in order of the devices
    Priority,
    /// Where the run is predicted to end soonest
    Cost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A summary for a terminal
    Text,
    /// A graph for Graphviz
    Dot,
    /// Everything, for programs
    Json,
    /// A picture of the splits as lanes by device
    Svg,
    /// A page to look into, without anything else to fetch
    Html,
}

fn parse_pin(text: &str) -> Result<NamedPin, String> {
    text.parse().map_err(|error: tensoryard::runtime::plan::PinSyntax| error.to_string())
}

/// The model does not fit, which the plan tells in full.
#[derive(Debug)]
struct DoesNotFit(String);

impl std::fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DoesNotFit {}

pub fn run(args: &Args, app: &App) -> anyhow::Result<()> {
    let registry = app.registry()?;
    let devices = registry.select_list(&args.devices)?;
    let path = model::find(&args.model, app)?;
    let mut options = LoadOptions::default();
    let plan = &mut options.session.plan;
    for pin in &args.pins {
        plan.named_pins.add(pin.clone());
    }
    plan.strategy = match args.strategy {
        StrategyName::Priority => Strategy::Priority,
        StrategyName::Cost => Strategy::Cost,
    };
    let speeds = SpeedFile::in_cache(app.hub()?.cache());
    plan.rates = planning_rates(&devices, Some(&speeds))?;
    let report = Report::of_model(&path, &devices, &options)
        .with_context(|| format!("cannot plan the model {}", path.display()))?;
    let detail = if args.nodes || app.verbose > 0 { Detail::Operations } else { Detail::Summary };
    let text = match format(args) {
        Format::Text => report.text(detail),
        Format::Dot => report.dot(),
        Format::Json => report.json() + "\n",
        Format::Svg => report.svg(),
        Format::Html => report.html(),
    };
    match &args.output {
        Some(file) => {
            write_file(file, &text)?;
            if !app.quiet {
                output::say(&format!("{} written", file.display()));
            }
        }
        None => output::print(&text)?,
    }
    if report.fits {
        return Ok(());
    }
    Err(DoesNotFit(format!("{}: {}", report.title, report.verdict())).into())
}

/// The form that was asked for, by name or by the ending of the file.
fn format(args: &Args) -> Format {
    let ending = args.output.as_ref().and_then(|file| file.extension()?.to_str());
    let by_ending = || match ending?.to_ascii_lowercase().as_str() {
        "dot" | "gv" => Some(Format::Dot),
        "json" => Some(Format::Json),
        "svg" => Some(Format::Svg),
        "html" | "htm" => Some(Format::Html),
        _ => None,
    };
    args.format.or_else(by_ending).unwrap_or(Format::Text)
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let mut file = AtomicFile::create(path)?;
        file.write_all(text.as_bytes())?;
        file.commit()?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
