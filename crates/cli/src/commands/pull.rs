//! `tensoryard pull`: models by name, fetched once.

use std::path::PathBuf;

use crate::app::App;
use crate::fetch::{self, DEFAULT_MODEL};
use crate::output;

/// Fetches models by name and prints where they are.
#[derive(Debug, clap::Args)]
#[command(after_help = "`tensoryard models` lists the names.")]
pub struct Args {
    /// Names of the models
    #[arg(value_name = "NAME", default_values_t = [DEFAULT_MODEL.to_owned()])]
    names: Vec<String>,

    /// Keep the published files too, in DIR/NAME
    #[arg(long, value_name = "DIR")]
    keep_published: Option<PathBuf>,
}

pub fn run(args: &Args, app: &App) -> anyhow::Result<()> {
    let hub = app.hub()?;
    // A wrong name is told before anything is downloaded.
    for name in &args.names {
        hub.catalogue().find(name)?;
    }
    for name in &args.names {
        fetch::discard_if_damaged(name, &hub, app)?;
        let folder = args.keep_published.as_ref().map(|dir| dir.join(name));
        let path = fetch::ensure(name, folder.as_deref(), &hub, app)?;
        output::print(&format!("{}\n", path.display()))?;
    }
    Ok(())
}
