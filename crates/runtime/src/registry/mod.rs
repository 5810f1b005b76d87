//! The registry of drivers and their devices: a value that callers make and pass on.
//!
//! Devices are named `DRIVER[:INDEX|:"NAME"][:key=value[;key=value]…]`, for example
//! `cpu:threads=4`, lists of devices with commas. Names are compared without regard to case.
//! Unknown names and keys are errors that list the known ones.
//!
//! Hardware that two drivers offer under one [`DeviceInfo::id`](crate::DeviceInfo::id) is listed
//! once, with the driver that was registered first.

mod parameters;
mod spec;

use std::fmt;
use std::sync::Arc;

pub use parameters::{ParameterSpec, Parameters};
pub use spec::Selector;

use self::spec::DeviceSpec;
use crate::{
    Backend, BackendOptions, Buffer, BufferType, Device, DeviceError, DeviceKind, Driver,
    RegistryError, Usage,
};

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

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.known()).finish()
    }
}

/// A device found by its name, with the options that stood behind it.
#[derive(Debug, Clone)]
pub struct Selected {
    /// The device.
    #[doc(alias = "ggml_backend_get_device")]
    pub device: Arc<dyn Device>,
    /// How to open it.
    pub options: BackendOptions,
}

impl Selected {
    /// A device that is opened as it likes.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, options: BackendOptions::default() }
    }

    /// Opens a queue.
    ///
    /// # Errors
    /// Options that the device does not take, or a device that cannot be had.
    pub fn open(&self) -> Result<Box<dyn Backend>, DeviceError> {
        self.device.open(&self.options)
    }
}

/// What a driver is asked for: see [`Driver::select`].
#[derive(Debug)]
pub struct DeviceRequest<'a> {
    driver: &'a str,
    listed: &'a [Arc<dyn Device>],
    which: &'a Selector,
    parameters: &'a Parameters,
}

impl<'a> DeviceRequest<'a> {
    /// Which device.
    pub fn which(&self) -> &'a Selector {
        self.which
    }

    /// The parameters given, all of them declared by the driver.
    pub fn parameters(&self) -> &'a Parameters {
        self.parameters
    }

    /// The one of the driver's listed devices that is asked for.
    ///
    /// # Errors
    /// There is none; the error lists those that there are.
    pub fn listed(&self) -> Result<&'a Arc<dyn Device>, RegistryError> {
        let named = |text: fn(&dyn Device) -> &str, name: &str| {
            let mut devices = self.listed.iter();
            devices.find(move |device| text(&***device).eq_ignore_ascii_case(name))
        };
        let found = match self.which {
            Selector::First => self.listed.first(),
            Selector::Index(index) => self.listed.get(*index),
            Selector::Name(name) => named(|device| &device.info().name, name)
                .or_else(|| named(|device| &device.info().description, name)),
        };
        found.ok_or_else(|| self.unknown())
    }

    /// The error for a device that the driver does not have.
    pub fn unknown(&self) -> RegistryError {
        RegistryError::UnknownDevice {
            name: format!("{}{}", self.driver, self.which),
            known: list_devices(self.driver, self.listed),
        }
    }
}

impl Registry {
    /// A registry without drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver and enumerates its devices. A device whose id is listed already is left out.
    ///
    /// # Errors
    /// A driver of that name is there already.
    #[doc(alias = "ggml_backend_register")]
    #[doc(alias = "ggml_backend_device_register")]
    pub fn register(&mut self, driver: Arc<dyn Driver>) -> Result<(), RegistryError> {
        let name = driver.name();
        if self.find_driver(name).is_some() {
            return Err(RegistryError::DuplicateDriver(name.to_owned()));
        }
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        for device in driver.devices() {
            let is_listed = device.info().id.as_deref().is_some_and(|id| {
                let same = |listed: &Arc<dyn Device>| {
                    listed.info().id.as_deref().is_some_and(|other| other.eq_ignore_ascii_case(id))
                };
                self.devices().chain(&devices).any(same)
            });
            if !is_listed {
                devices.push(device);
            }
        }
        self.entries.push(Entry { driver, devices });
        Ok(())
    }

    /// All drivers, in the order of registration.
    #[doc(alias = "ggml_backend_reg_get")]
    #[doc(alias = "ggml_backend_reg_count")]
    pub fn drivers(&self) -> impl ExactSizeIterator<Item = &Arc<dyn Driver>> {
        self.entries.iter().map(|entry| &entry.driver)
    }

    /// The driver of a name, compared without regard to case.
    #[doc(alias = "ggml_backend_reg_by_name")]
    #[doc(alias = "ggml_backend_reg_find_by_name")]
    pub fn find_driver(&self, name: &str) -> Option<&Arc<dyn Driver>> {
        self.entry(name).map(|entry| &entry.driver)
    }

    fn entry(&self, driver: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.driver.name().eq_ignore_ascii_case(driver))
    }

    /// All devices, in the order of registration.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<dyn Device>> {
        self.entries.iter().flat_map(|entry| &entry.devices)
    }

    /// All devices with the text that selects each, such as `CPU:0`.
    #[doc(alias = "ggml_backend_dev_backend_reg")]
    pub fn named_devices(&self) -> impl Iterator<Item = (String, &Arc<dyn Device>)> {
        self.entries.iter().flat_map(|entry| {
            let numbered = entry.devices.iter().enumerate();
            numbered.map(|(index, device)| (format!("{}:{index}", entry.driver.name()), device))
        })
    }

    /// Number of devices.
    #[doc(alias = "ggml_backend_dev_count")]
    #[doc(alias = "ggml_backend_reg_get_count")]
    pub fn len(&self) -> usize {
        self.entries.iter().map(|entry| entry.devices.len()).sum()
    }

    /// Whether there is no device.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device of a number, in the order of registration.
    ///
    /// # Errors
    /// There is none; the error lists those that there are.
    #[doc(alias = "ggml_backend_dev_get")]
    #[doc(alias = "ggml_backend_reg_get_name")]
    pub fn device(&self, index: usize) -> Result<&Arc<dyn Device>, RegistryError> {
        self.devices().nth(index).ok_or_else(|| self.unknown(&index.to_string()))
    }

    /// The first device of a name, compared without regard to case.
    #[doc(alias = "ggml_backend_dev_by_name")]
    #[doc(alias = "ggml_backend_reg_find_by_name")]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Device>> {
        self.devices().find(|device| device.info().name.eq_ignore_ascii_case(name))
    }

    /// The first device of a kind.
    #[doc(alias = "ggml_backend_dev_by_type")]
    pub fn by_kind(&self, kind: DeviceKind) -> Option<&Arc<dyn Device>> {
        self.devices().find(|device| device.info().kind == kind)
    }

    /// The best device: a GPU, else an integrated GPU, else the CPU.
    pub fn best(&self) -> Option<&Arc<dyn Device>> {
        [DeviceKind::Gpu, DeviceKind::IntegratedGpu, DeviceKind::Cpu]
            .into_iter()
            .find_map(|kind| self.by_kind(kind))
    }

    /// The kind of memory that a device computes in, by the device's number.
    ///
    /// # Errors
    /// No such device, or a device without memory.
    #[doc(alias = "ggml_backend_dev_buffer_type")]
    #[doc(alias = "ggml_backend_get_default_buffer_type")]
    #[doc(alias = "ggml_backend_reg_get_default_buffer_type")]
    pub fn default_buffer_type(&self, index: usize) -> Result<&Arc<dyn BufferType>, RegistryError> {
        let device = self.device(index)?;
        let default = device.buffer_types().first();
        default.ok_or_else(|| RegistryError::NoMemory(device.info().name.clone()))
    }

    /// Allocates memory of a device, by the device's number.
    ///
    /// # Errors
    /// No such device, or no memory.
    #[doc(alias = "ggml_backend_alloc_buffer")]
    #[doc(alias = "ggml_backend_reg_alloc_buffer")]
    pub fn allocate(&self, index: usize, size: usize) -> Result<Buffer, RegistryError> {
        let kind = self.default_buffer_type(index)?;
        Buffer::allocate(kind, size, Usage::Any).map_err(|error| RegistryError::Memory {
            device: self.device(index).map_or_else(|_| String::new(), |d| d.info().name.clone()),
            error,
        })
    }

    /// Opens the first device of a kind.
    ///
    /// # Errors
    /// There is none, or it cannot be had.
    #[doc(alias = "ggml_backend_init_by_type")]
    pub fn open_by_kind(
        &self,
        kind: DeviceKind,
        options: &BackendOptions,
    ) -> Result<Box<dyn Backend>, RegistryError> {
        let device = self.by_kind(kind).ok_or_else(|| self.unknown(kind.name()))?;
        Ok(device.open(options)?)
    }

    /// Opens the best device: see [`Registry::best`].
    ///
    /// # Errors
    /// There is none, or it cannot be had.
    #[doc(alias = "ggml_backend_init_best")]
    pub fn open_best(&self) -> Result<Box<dyn Backend>, RegistryError> {
        let device = self.best().ok_or_else(|| self.unknown("best"))?;
        Ok(device.open(&BackendOptions::default())?)
    }

    /// Opens the device of a name with parameters: see [`Registry::select`].
    ///
    /// # Errors
    /// As [`Registry::select`]; a device that cannot be had.
    #[doc(alias = "ggml_backend_init_by_name")]
    #[doc(alias = "ggml_backend_cpu_init")]
    #[doc(alias = "ggml_backend_reg_init_backend_from_str")]
    pub fn open(&self, spec: &str) -> Result<Box<dyn Backend>, RegistryError> {
        Ok(self.select(spec)?.open()?)
    }

    /// The device of a name with parameters, such as `cpu:threads=4`.
    ///
    /// # Errors
    /// A text that names no device, an unknown driver, device or parameter, or a value that
    /// cannot be read.
    pub fn select(&self, spec: &str) -> Result<Selected, RegistryError> {
        self.resolve(spec::parse_one(spec)?)
    }

    /// The devices of a list, separated by commas.
    ///
    /// # Errors
    /// As [`Registry::select`].
    pub fn select_list(&self, specs: &str) -> Result<Vec<Selected>, RegistryError> {
        spec::parse_list(specs)?.into_iter().map(|spec| self.resolve(spec)).collect()
    }

    fn resolve(&self, spec: DeviceSpec) -> Result<Selected, RegistryError> {
        let entry = self.entry(&spec.driver);
        let entry = entry.ok_or_else(|| self.unknown(&format!("{}{}", spec.driver, spec.which)))?;
        let driver = entry.driver.name();
        let parameters = Parameters::new(driver, entry.driver.parameters(), spec.parameters)?;
        entry.driver.select(&DeviceRequest {
            driver,
            listed: &entry.devices,
            which: &spec.which,
            parameters: &parameters,
        })
    }

    fn known(&self) -> String {
        if self.entries.is_empty() {
            return "none".to_owned();
        }
        let of = |entry: &Entry| list_devices(entry.driver.name(), &entry.devices);
        self.entries.iter().map(of).collect::<Vec<_>>().join(", ")
    }

    fn unknown(&self, name: &str) -> RegistryError {
        RegistryError::UnknownDevice { name: name.to_owned(), known: self.known() }
    }
}

/// A driver that lists no devices makes them on request, or has none.
fn list_devices(driver: &str, devices: &[Arc<dyn Device>]) -> String {
    if devices.is_empty() {
        return format!("{driver} (none listed)");
    }
    let numbered = devices.iter().enumerate();
    let texts =
        numbered.map(|(index, device)| format!("{driver}:{index} ({})", device.info().description));
    texts.collect::<Vec<_>>().join(", ")
}
