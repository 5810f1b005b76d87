//! `tensoryard devices`: what this machine computes with.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::json;
use tensoryard::runtime::calibrate::Calibration;
use tensoryard::runtime::{
    BackendOptions, Device, DeviceKind, DeviceRates, Driver, Registry, Selected,
};
use tensoryard::speed::{SpeedFile, known_rates, measure};

use crate::app::App;
use crate::output::{self, BOLD};
use crate::placement;

/// Lists the devices of this machine with their memory, features, parameters, and their speed
/// where it is known.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the list as JSON, for programs
    #[arg(long)]
    json: bool,
    /// Measure how fast each device is, which takes about a second, and keep it for planning
    #[arg(long)]
    calibrate: bool,
    /// Threads of the CPU to measure, or to show figures for; 0 uses all processors
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
}

/// Spread of measurements from which on they are doubtful.
const BUSY: f64 = 1.5;

/// The rates of devices by their text in the list.
type Speeds = HashMap<String, DeviceRates>;

pub fn run(args: &Args, app: &App) -> anyhow::Result<()> {
    let registry = app.registry()?;
    let file = match args.calibrate {
        true => SpeedFile::in_cache(app.hub()?.cache()),
        false => placement::speeds(app)?,
    };
    let mut speeds = Speeds::new();
    for (text, device) in registry.named_devices() {
        let is_cpu = device.info().kind == DeviceKind::Cpu;
        let options = BackendOptions { threads: if is_cpu { args.threads } else { 0 } };
        let device = Selected { device: Arc::clone(device), options };
        let rates = match device.device.rates() {
            None if args.calibrate => {
                let Calibration { rates, spread } = measure(&device, Some(&file))?;
                if spread > BUSY {
                    output::say(&format!(
                        "warning: the machine seems busy: runs on {text} took {spread:.1} times \
                         as long as the best; measure again when it is quiet"
                    ));
                }
                Some(rates)
            }
            None | Some(_) => known_rates(&device, Some(&file)),
        };
        speeds.extend(rates.map(|rates| (text, rates)));
    }
    if args.json {
        let devices = registry.named_devices().map(|(text, device)| {
            let rates = speeds.get(&text);
            as_json(&text, &**device, rates)
        });
        return output::print(&format!("{:#}\n", json!(devices.collect::<Vec<_>>())));
    }
    output::print(&in_words(&registry, &speeds))
}

fn as_json(text: &str, device: &dyn Device, rates: Option<&DeviceRates>) -> serde_json::Value {
    let (info, memory) = (device.info(), device.memory());
    let kind = match info.kind {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Gpu => "gpu",
        DeviceKind::IntegratedGpu => "integratedgpu",
        DeviceKind::Accelerator => "accelerator",
    };
    let buffer_types = device.buffer_types().iter().map(|kind| kind.name().to_owned());
    let rates = rates.map(|rates| {
        DeviceRates::NAMES.into_iter().zip(rates.figures()).collect::<BTreeMap<_, _>>()
    });
    json!({
        "device": text,
        "name": info.name,
        "description": info.description,
        "id": info.id,
        "kind": kind,
        "memory_free_bytes": memory.free,
        "memory_total_bytes": memory.total,
        "features": device.features().into_iter().collect::<BTreeMap<_, _>>(),
        "rates": rates,
        "buffer_types": buffer_types.collect::<Vec<_>>(),
    })
}

fn in_words(registry: &Registry, speeds: &Speeds) -> String {
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
            match speeds.get(&name) {
                Some(rates) => text.push_str(&speed(rates)),
                None => text.push_str("  speed       not measured; --calibrate does\n"),
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

/// The rates in units that people use.
fn speed(rates: &DeviceRates) -> String {
    let giga = |per_s: f64, unit: &str| match per_s / 1e9 {
        // Not measured, because the device does not do it.
        giga if giga.is_infinite() => "–".to_owned(),
        giga if giga < 10.0 => format!("{giga:.1} G{unit}"),
        giga => format!("{giga:.0} G{unit}"),
    };
    let time = |ns: f64| match ns {
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns => format!("{:.1} µs", ns / 1e3),
    };
    let [f32_rate, f16_rate, quantised, other, memory, op, split, to, from, latency] =
        rates.figures();
    let [f32_rate, f16_rate, quantised, other] =
        [f32_rate, f16_rate, quantised, other].map(|rate| giga(rate, "flop/s"));
    let [memory, to, from] = [memory, to, from].map(|rate| giga(rate, "B/s"));
    let (op, split, latency) = (time(op), time(split), time(latency));
    format!(
        "  products    {f32_rate} f32, {f16_rate} f16, {quantised} quantised\n  \
         other       {other}, {memory} of memory, {op} an op, {split} a split\n  \
         transfers   {to} in, {from} out, {latency} at least\n"
    )
}
