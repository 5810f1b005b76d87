//! `tensoryard plan`: what would run where, and why, before a weight is loaded.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use tensoryard::formats::AtomicFile;
use tensoryard::models::whisper::LoadOptions;
use tensoryard::plan_view::{Detail, Report};

use crate::app::App;
use crate::model;
use crate::output;
use crate::placement::{self, PlacementArgs};

/// Shows which op of a model runs where and why, before anything is loaded.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 1 when the model does not fit; the plan is shown all the same.")]
pub struct Args {
    /// Name of a model, or path of a model file, as for `transcribe --model`
    #[arg(value_name = "MODEL")]
    model: String,

    /// Form of the plan; by the ending of the output file, else text
    #[arg(long, short, value_name = "FORMAT")]
    format: Option<Format>,

    /// Write the plan to a file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// List every operation in the text, as with --verbose
    #[arg(long)]
    nodes: bool,

    #[command(flatten)]
    placement: PlacementArgs,
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
    let format = format(args)?;
    let (devices, plan) = args.placement.resolve(app)?;
    let path = model::find(&args.model, app)?;
    let mut options = LoadOptions::default();
    options.session.plan = plan;
    let report = Report::of_model(&path, &devices, &options)
        .with_context(|| format!("cannot plan the model {}", path.display()))?;
    for pattern in &report.unmatched_pins {
        placement::warn_of_unmatched(pattern);
    }
    let detail = if args.nodes || app.verbose > 0 { Detail::Operations } else { Detail::Summary };
    let text = match format {
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
fn format(args: &Args) -> anyhow::Result<Format> {
    if let Some(format) = args.format {
        return Ok(format);
    }
    let Some(file) = &args.output else { return Ok(Format::Text) };
    let ending = file.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    Ok(match ending.as_str() {
        "txt" => Format::Text,
        "dot" | "gv" => Format::Dot,
        "json" => Format::Json,
        "svg" => Format::Svg,
        "html" | "htm" => Format::Html,
        _ => anyhow::bail!(
            "the ending of {} is none that plans have: txt, dot, gv, json, svg, html, htm; \
             --format says the form in its place",
            file.display()
        ),
    })
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
