//! Models by name for all commands: fetched when absent, with a progress bar.

use std::io::Write;
use std::path::{Path, PathBuf};

use tensoryard::hub::{Fetch, Hub, HubError};
use tensoryard::{ConvertOptions, ConvertProgress};

use crate::app::App;
use crate::progress::FetchBar;

/// The model that is used when none is named.
pub const DEFAULT_MODEL: &str = "tiny.en";

/// The path of a model of the catalogue, fetched and converted when absent.
/// Its published files are kept in a folder when one is given.
pub fn ensure(
    name: &str,
    keep_published: Option<&Path>,
    hub: &Hub,
    app: &App,
) -> anyhow::Result<PathBuf> {
    let mut progress = FetchBar::new(name, app);
    let mut fetch = Fetch {
        convert: &|from, to| {
            let options = ConvertOptions::default();
            let mut go_on = |_: ConvertProgress<'_>| !app.interrupt.is_raised();
            Ok(tensoryard::convert(from, to, Some(name), options, &mut go_on)?)
        },
        revision: tensoryard::CONVERSION_REVISION,
        progress: &mut progress,
        cancel: app.interrupt.flag(),
        keep_published,
    };
    Ok(hub.ensure(name, &mut fetch)?)
}

/// Removes a cached model whose content is not what was recorded.
pub fn discard_if_damaged(name: &str, hub: &Hub, app: &App) -> anyhow::Result<()> {
    match hub.verify(name, app.interrupt.flag()) {
        Ok(_) => Ok(()),
        Err(error @ HubError::Damaged { .. }) => {
            // With standard error gone there is nobody left to tell.
            let _ = writeln!(anstream::stderr(), "{name}: {error}; fetching it again");
            hub.remove(name, app.interrupt.flag())?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
