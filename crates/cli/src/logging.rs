//! Log lines of the library on standard error.

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Starts logging: errors, and more with each `--verbose`; or what the
/// variable `TENSORYARD_LOG` asks for.
pub fn start(verbose: u8) -> anyhow::Result<()> {
    let wanted = match std::env::var("TENSORYARD_LOG") {
        Ok(wanted) => wanted,
        Err(_) => match verbose {
            // What concerns the user is said by the commands themselves.
            0 => "tensoryard=error".to_owned(),
            1 => "tensoryard=info".to_owned(),
            2 => "tensoryard=debug".to_owned(),
            _ => "tensoryard=trace".to_owned(),
        },
    };
    let filter = EnvFilter::builder().parse(wanted).context("TENSORYARD_LOG cannot be read")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(anstream::stderr)
        .with_target(verbose > 1)
        .without_time()
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
