//! Driver libraries that the user names with `--driver`.
#![allow(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tensoryard::dynamic::DynamicDriver;
use tensoryard::runtime::Registry;

/// Loads the libraries and adds their drivers.
pub fn register(registry: &mut Registry, paths: &[PathBuf]) -> anyhow::Result<()> {
    for path in paths {
        // SAFETY: whoever names a driver on the command line makes it a part of this run, as the
        // help of the option says.
        let driver = unsafe { DynamicDriver::load(path) }?;
        let added = registry.register(Arc::new(driver));
        added.with_context(|| format!("cannot add the driver {}", path.display()))?;
    }
    Ok(())
}
