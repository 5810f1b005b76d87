//! Where a model runs: devices, pins and strategy, as several commands take them.
//!
//! Nothing is loaded or fetched here, so that what is wrong with devices is told at once.

use std::sync::Arc;

use clap::ValueEnum;
use tensoryard::runtime::plan::{DeviceSelector, NamedPin, PinSyntax, Strategy};
use tensoryard::runtime::{PlanOptions, Selected};
use tensoryard::speech::ModelOptions;
use tensoryard::speed::{SpeedFile, known_rates, planning_rates};

use crate::app::App;
use crate::output;

/// Which devices, and what of a model they run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct PlacementArgs {
    /// Devices in order of priority, separated by commas: see `tensoryard devices`
    ///
    /// Each is DRIVER[:INDEX|:"NAME"][:key=value[;key=value]...], such as cpu:threads=4 or
    /// 'sim:memory=2GiB'. Quotes protect commas and other separators; the shell wants its own
    /// around a semicolon.
    #[arg(long, value_name = "DEVICES", default_value = "cpu")]
    pub devices: String,

    /// Threads of the CPU; 0 uses every processor
    #[arg(
        long,
        short,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = parse_threads
    )]
    pub threads: usize,

    /// Keep what matches PATTERN on DEVICE; may be given again, the last match counts
    ///
    /// PATTERN is held against whole names of weights, state and ops: `*` stands for any
    /// characters, `?` for one. DEVICE is the number of a device in the list, from 0, or its name.
    /// `tensoryard plan --format json` tells the names.
    #[arg(long = "pin", value_name = "PATTERN=DEVICE", value_parser = parse_pin)]
    pub pins: Vec<NamedPin>,

    /// How devices are chosen
    #[arg(long, value_name = "STRATEGY", default_value = "priority")]
    pub strategy: StrategyName,
}

/// A strategy by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StrategyName {
    /// Where the weights are, which fill the devices in order
    Priority,
    /// Where the run is predicted to end soonest; the speed of all devices must be known
    Cost,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "wanted a whole number, 0 or more".to_owned())
}

fn parse_pin(text: &str) -> Result<NamedPin, String> {
    text.parse().map_err(|error: PinSyntax| error.to_string())
}

impl PlacementArgs {
    /// The devices, and how to plan for them.
    pub fn resolve(&self, app: &App) -> anyhow::Result<(Vec<Selected>, PlanOptions)> {
        let mut choice = ModelOptions::default();
        choice.devices = vec![self.devices.clone()];
        choice.registry = Some(Arc::new(app.registry()?));
        choice.threads = self.threads;
        let devices = choice.select()?;
        let mut options = PlanOptions::default();
        for pin in &self.pins {
            check_pin(pin, &devices)?;
            options.named_pins.add(pin.clone());
        }
        let speeds = speeds(app)?;
        options.strategy = match self.strategy {
            StrategyName::Priority => Strategy::Priority,
            StrategyName::Cost => {
                check_speeds(&devices, &speeds)?;
                Strategy::Cost
            }
        };
        options.rates = planning_rates(&devices, Some(&speeds));
        Ok((devices, options))
    }
}

/// Refuses a pin to a device that is not in the list, before a model is fetched.
fn check_pin(pin: &NamedPin, devices: &[Selected]) -> anyhow::Result<()> {
    let names = devices.iter().map(|selected| &selected.device.info().name);
    let is_known = match &pin.device {
        DeviceSelector::Index(index) => *index < devices.len(),
        DeviceSelector::Name(wanted) => names.clone().any(|name| name.eq_ignore_ascii_case(wanted)),
    };
    if is_known {
        return Ok(());
    }
    let known = names.enumerate().map(|(index, name)| format!("{index} ({name})"));
    let known = known.collect::<Vec<_>>().join(", ");
    let NamedPin { pattern, device } = pin;
    anyhow::bail!("{pattern:?} cannot be pinned to {device}: --devices has {known}")
}

/// Refuses devices whose speed nobody knows, and says how to find out.
fn check_speeds(devices: &[Selected], speeds: &SpeedFile) -> anyhow::Result<()> {
    for selected in devices {
        if known_rates(selected, Some(speeds)).is_some() {
            continue;
        }
        let name = &selected.device.info().name;
        let threads = selected.options.threads;
        let option = threads_option(threads);
        let what = match threads {
            0 => name.clone(),
            1 => format!("{name} with 1 thread"),
            n => format!("{name} with {n} threads"),
        };
        anyhow::bail!(
            "--strategy cost needs to know how fast {what} is; \
             `tensoryard devices --calibrate{option}` measures it"
        );
    }
    Ok(())
}

/// What `tensoryard devices --calibrate` needs besides to measure with so many threads.
fn threads_option(threads: usize) -> String {
    if threads == 0 { String::new() } else { format!(" --threads {threads}") }
}

/// The file of rates. One that is damaged is told, and counts as one without rates.
pub fn speeds(app: &App) -> anyhow::Result<SpeedFile> {
    let file = SpeedFile::in_cache(app.hub()?.cache());
    if let Err(error) = file.check() {
        output::say(&format!(
            "warning: the speed of devices counts as unknown: {error}; \
             `tensoryard devices --calibrate` replaces the file"
        ));
    }
    Ok(file)
}

/// Tells of a pin that pins nothing.
pub fn warn_of_unmatched(pattern: &str) {
    output::say(&format!("warning: no tensor of the model matches the pin {pattern:?}"));
}
