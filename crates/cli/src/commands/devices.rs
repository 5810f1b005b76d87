//! `tensoryard devices`: what this machine computes with.

use serde_json::json;

use crate::output::{self, BOLD};

/// Lists the devices of this machine with their memory and features.
///
/// A device is chosen by `--devices NAME[:INDEX][:threads=N]`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the list as JSON, for programs
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let registry = tensoryard::speech::default_registry()?;
    if args.json {
        let devices: Vec<_> = registry
            .devices()
            .map(|device| {
                let (info, memory) = (device.info(), device.memory());
                json!({
                    "name": info.name,
                    "description": info.description,
                    "kind": format!("{:?}", info.kind).to_lowercase(),
                    "memory_free_bytes": memory.free,
                    "memory_total_bytes": memory.total,
                    "features": device.features().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
                    "buffer_types": device.buffer_types().iter().map(|kind| kind.name().to_owned()).collect::<Vec<_>>(),
                })
            })
            .collect();
        return output::print(&format!("{:#}\n", json!(devices)));
    }
    let mut text = String::new();
    for device in registry.devices() {
        let (info, memory) = (device.info(), device.memory());
        let mebibytes = |bytes: usize| bytes / (1024 * 1024);
        text.push_str(&format!("{BOLD}{}{BOLD:#}  {}\n", info.name, info.description));
        let (free, total) = (mebibytes(memory.free), mebibytes(memory.total));
        text.push_str(&format!("  memory    {free} MiB free of {total} MiB\n"));
        let features = device.features().into_iter().map(|(name, value)| match value.as_str() {
            "1" => name,
            _ => format!("{name}={value}"),
        });
        text.push_str(&format!("  features  {}\n", features.collect::<Vec<_>>().join(" ")));
    }
    output::print(&text)
}
