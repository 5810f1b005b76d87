//! The registry of drivers and their devices: a value that callers make and pass on.
//!
//! Devices are named `DRIVER`, `DRIVER:INDEX` or `DRIVER:"NAME"`, followed by parameters as
//! `:key=value;key=value`, for example `cpu:threads=4`. Names are compared without regard to
//! case. Unknown names and keys are errors that list the known ones.

use std::sync::Arc;

use crate::{BackendOptions, Device, DeviceKind, Driver, RegistryError};

/// Drivers and the devices that they found.
#[derive(Default)]
#[doc(alias = "ggml_backend_registry")]
pub struct Registry {
    entries: Vec<Entry>,
}

struct Entry {
    driver: Arc<dyn Driver>,
    devices: Vec<Arc<dyn Device>>,
}

/// A device found by its name, with the options that stood behind it.
#[derive(Debug, Clone)]
pub struct Selected {
    /// The device.
    pub device: Arc<dyn Device>,
    /// How to open it.
    pub options: BackendOptions,
}

impl Registry {
    /// A registry without drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver and enumerates its devices.
    ///
    /// # Errors
    /// A driver of that name is there already.
    #[doc(alias = "ggml_backend_register")]
    pub fn register(&mut self, driver: Arc<dyn Driver>) -> Result<(), RegistryError> {
        let name = driver.name();
        if self.entries.iter().any(|entry| entry.driver.name().eq_ignore_ascii_case(name)) {
            return Err(RegistryError::DuplicateDriver(name.to_owned()));
        }
        let devices = driver.devices();
        self.entries.push(Entry { driver, devices });
        Ok(())
    }

    /// All devices, in the order of registration.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<dyn Device>> {
        self.entries.iter().flat_map(|entry| &entry.devices)
    }

    /// The first device of a kind.
    #[doc(alias = "ggml_backend_dev_by_type")]
    pub fn by_kind(&self, kind: DeviceKind) -> Option<&Arc<dyn Device>> {
        self.devices().find(|device| device.info().kind == kind)
    }

    /// The best device: a GPU, else an integrated GPU, else the CPU.
    #[doc(alias = "ggml_backend_init_best")]
    pub fn best(&self) -> Option<&Arc<dyn Device>> {
        [DeviceKind::Gpu, DeviceKind::IntegratedGpu, DeviceKind::Cpu]
            .into_iter()
            .find_map(|kind| self.by_kind(kind))
    }

    /// The device of a name with parameters, such as `cpu:threads=4`.
    ///
    /// # Errors
    /// An unknown driver, device or parameter, or a value that cannot be read.
    pub fn select(&self, spec: &str) -> Result<Selected, RegistryError> {
        let mut parts = split_outside_quotes(spec, ':').into_iter();
        let driver = parts.next().unwrap_or_default().trim();
        let entry = self
            .entries
            .iter()
            .find(|entry| entry.driver.name().eq_ignore_ascii_case(driver))
            .ok_or_else(|| self.unknown(driver))?;
        let mut device = entry.devices.first();
        let mut options = BackendOptions::default();
        let parts: Vec<&str> = parts.collect();
        for (position, part) in parts.iter().enumerate() {
            if position == 0 && !part.contains('=') {
                device = entry.find(part.trim());
            } else {
                let name = entry.driver.name();
                for pair in part.split(';').filter(|pair| !pair.trim().is_empty()) {
                    set_parameter(name, pair, &mut options)?;
                }
            }
        }
        let device = device.ok_or_else(|| self.unknown(spec))?;
        Ok(Selected { device: Arc::clone(device), options })
    }

    fn unknown(&self, name: &str) -> RegistryError {
        let mut known = Vec::new();
        for entry in &self.entries {
            for (index, device) in entry.devices.iter().enumerate() {
                let driver = entry.driver.name();
                known.push(format!("{driver}:{index} ({})", device.info().description));
            }
        }
        RegistryError::UnknownDevice { name: name.to_owned(), known: known.join(", ") }
    }
}

impl Entry {
    fn find(&self, selector: &str) -> Option<&Arc<dyn Device>> {
        let quoted = selector.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match (quoted, selector.parse::<usize>()) {
            (None, Ok(index)) => self.devices.get(index),
            (quoted, _) => {
                let wanted = quoted.unwrap_or(selector);
                self.devices.iter().find(|device| device.info().name.eq_ignore_ascii_case(wanted))
            }
        }
    }
}

fn set_parameter(
    device: &str,
    pair: &str,
    options: &mut BackendOptions,
) -> Result<(), RegistryError> {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    match key.trim() {
        "threads" => {
            options.threads = value.trim().parse().map_err(|_| RegistryError::ParameterValue {
                device: device.to_owned(),
                key: "threads".to_owned(),
                value: value.to_owned(),
                wanted: "a number, 0 for automatic",
            })?;
            Ok(())
        }
        unknown => Err(RegistryError::UnknownParameter {
            device: device.to_owned(),
            key: unknown.to_owned(),
            known: "threads".to_owned(),
        }),
    }
}

fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let mut quoted = false;
    text.split(|c| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
    .collect()
}
