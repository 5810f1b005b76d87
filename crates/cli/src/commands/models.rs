//! `tensoryard models`: what can be fetched, what is cached, and removing it.

use clap::Subcommand;
use serde_json::json;
use tensoryard::hub::ModelStatus;

use crate::app::App;
use crate::output::{self, BOLD};

/// Lists the models that can be fetched by name, or removes some.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the list as JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Remove fetched models from the cache
    Remove {
        /// Names of the models
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

pub fn run(args: &Args, app: &App) -> anyhow::Result<()> {
    let hub = app.hub()?;
    match &args.action {
        Some(Action::Remove { names }) => {
            for name in names {
                let was_there = hub.remove(name, app.interrupt.flag())?;
                let what = if was_there { "removed" } else { "was not there" };
                output::print(&format!("{name}: {what}\n"))?;
            }
            Ok(())
        }
        None if args.json => {
            let models: Vec<_> = hub.list().iter().map(json_of).collect();
            output::print(&format!("{:#}\n", json!(models)))
        }
        None => output::print(&table(&hub.list())),
    }
}

fn json_of(status: &ModelStatus<'_>) -> serde_json::Value {
    let model = status.model;
    json!({
        "name": model.name,
        "description": model.description,
        "languages": model.languages,
        "licence": model.licence,
        "download_bytes": model.size_bytes(),
        "sources": model.sources.iter().map(tensoryard::hub::Source::label).collect::<Vec<_>>(),
        "path": status.path,
        "size_bytes": status.path.as_ref().map(|_| status.size_bytes),
        "sha256": status.manifest.as_ref().map(|manifest| &manifest.sha256),
    })
}

fn table(models: &[ModelStatus<'_>]) -> String {
    let head = ["NAME", "SIZE", "FETCHED", "LANGUAGES", "DESCRIPTION"].map(str::to_owned);
    let rows: Vec<[String; 5]> = models
        .iter()
        .map(|status| {
            let model = status.model;
            let fetched = if status.path.is_some() { "yes" } else { "no" };
            [
                model.name.clone(),
                megabytes(model.size_bytes()),
                fetched.to_owned(),
                model.languages.clone(),
                model.description.clone(),
            ]
        })
        .collect();
    let mut widths = [0; 5];
    for row in std::iter::once(&head).chain(&rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 5]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut text = format!("{BOLD}{}{BOLD:#}\n", line(&head));
    for row in &rows {
        text.push_str(&line(row));
        text.push('\n');
    }
    text
}

/// A size in millions of bytes, as downloads are commonly stated.
fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::megabytes;

    #[test]
    fn sizes_round_up() {
        assert_eq!(megabytes(75_537_502), "76 MB");
        assert_eq!(megabytes(1), "1 MB");
        assert_eq!(megabytes(2_000_000), "2 MB");
    }
}
