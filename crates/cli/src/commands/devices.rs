//! `tensoryard devices`: what this machine computes with.

use std::collections::BTreeMap;

use serde_json::json;
use tensoryard::runtime::{Device, DeviceKind, Driver, Registry};

use crate::app::App;
use crate::output::{self, BOLD};

/// Lists the devices of this machine with their memory, features and parameters.
///
/// A device is chosen by `--devices DRIVER[:INDEX|:"NAME"][:key=value[;key=value]...]`,
/// such as cpu:threads=4.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the list as JSON, for programs
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, app: &App) -> anyhow::Result<()> {
    let registry = app.registry()?;
    if args.json {
        let devices = registry.named_devices().map(|(text, device)| as_json(&text, &**device));
        return output::print(&format!("{:#}\n", json!(devices.collect::<Vec<_>>())));
    }
    output::print(&in_words(&registry))
}

fn as_json(text: &str, device: &dyn Device) -> serde_json::Value {
    let (info, memory) = (device.info(), device.memory());
    let kind = match info.kind {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Gpu => "gpu",
        DeviceKind::IntegratedGpu => "integratedgpu",
        DeviceKind::Accelerator => "accelerator",
    };
    let buffer_types = device.buffer_types().iter().map(|kind| kind.name().to_owned());
    json!({
        "device": text,
        "name": info.name,
        "description": info.description,
        "id": info.id,
        "kind": kind,
        "memory_free_bytes": memory.free,
        "memory_total_bytes": memory.total,
        "features": device.features().into_iter().collect::<BTreeMap<_, _>>(),
        "buffer_types": buffer_types.collect::<Vec<_>>(),
    })
}

fn in_words(registry: &Registry) -> String {
    let mut text = String::new();
    for driver in registry.drivers() {
        let prefix = format!("{}:", driver.name());
        let mut devices =
            registry.named_devices().filter(|(name, _)| name.starts_with(&prefix)).peekable();
        if devices.peek().is_none() {
            let name = driver.name();
            text.push_str(&format!("{BOLD}{name}{BOLD:#}  makes devices on request\n"));
            text.push_str(&parameters(&**driver));
        }
        for (name, device) in devices {
            let (info, memory) = (device.info(), device.memory());
            let mebibytes = |bytes: usize| bytes / (1024 * 1024);
            text.push_str(&format!("{BOLD}{name}{BOLD:#}  {}\n", info.description));
            let (free, total) = (mebibytes(memory.free), mebibytes(memory.total));
            text.push_str(&format!("  memory      {free} MiB free of {total} MiB\n"));
            let features =
                device.features().into_iter().map(|(name, value)| match value.as_str() {
                    "1" => name,
                    _ => format!("{name}={value}"),
                });
            let features = features.collect::<Vec<_>>().join(" ");
            if !features.is_empty() {
                text.push_str(&format!("  features    {features}\n"));
            }
            text.push_str(&parameters(&**driver));
        }
    }
    text
}

fn parameters(driver: &dyn Driver) -> String {
    let mut text = String::new();
    for (index, spec) in driver.parameters().iter().enumerate() {
        let heading = if index == 0 { "parameters" } else { "" };
        text.push_str(&format!("  {heading:10}  {}: {}\n", spec.name, spec.wanted));
    }
    text
}
