//! The driver of a library and its devices.
//!
//! What a device is and what memory it has is read once, when the library is loaded, and refused
//! as a whole if any of it makes no sense.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use tensoryard_graph::Layout;
use tensoryard_runtime::{
    Backend, BackendOptions, BufferType, Capabilities, Device, DeviceError, DeviceInfo, DeviceKind,
    Driver, MemoryInfo, OpCase, Unsupported, WeightUse, same_buffer_type,
};

use crate::abi::{self, Text};
use crate::backend::DynamicBackend;
use crate::describe::FlatSteps;
use crate::error::DriverError;
use crate::library::{Failure, Library, copy_text};
use crate::memory::DynamicBufferType;

/// Larger counts are taken for a fault of the driver.
const MAX_COUNT: u64 = 1024;

/// The driver in a shared library.
#[derive(Debug)]
pub struct DynamicDriver {
    library: Arc<Library>,
    devices: Vec<Arc<dyn Device>>,
}

impl DynamicDriver {
    /// Loads a library and reads what devices it has.
    ///
    /// # Safety
    /// The library becomes a part of this program: its code runs when it is loaded and whenever
    /// its devices are used. It must be what it says it is, and its functions must do what
    /// `tensoryard_driver.h` asks of them. Load only what you would run.
    ///
    /// # Errors
    /// A file that is no shared library or no driver, a table of another version or with functions
    /// missing, devices that make no sense. Each error names the library.
    #[doc(alias = "ggml_backend_load")]
    pub unsafe fn load(path: impl AsRef<Path>) -> Result<Self, DriverError> {
        // SAFETY: the caller answers for the library.
        let library = unsafe { Library::load(path.as_ref()) }?;
        Self::of_library(library)
    }

    pub(crate) fn of_library(library: Arc<Library>) -> Result<Self, DriverError> {
        let count = library.count()?;
        let devices = (0..count).map(|index| -> Result<Arc<dyn Device>, DriverError> {
            Ok(Arc::new(DynamicDevice::read(&library, index)?))
        });
        let devices = devices.collect::<Result<_, _>>()?;
        Ok(Self { library, devices })
    }
}

impl Driver for DynamicDriver {
    fn name(&self) -> &str {
        &self.library.name
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.clone()
    }
}

/// A device of a library.
#[derive(Debug)]
struct DynamicDevice {
    library: Arc<Library>,
    index: u64,
    info: DeviceInfo,
    features: Vec<(String, String)>,
    reads_host_memory: bool,
    buffer_types: Vec<Arc<dyn BufferType>>,
}

/// Questions about devices, answers checked.
impl Library {
    fn count(&self) -> Result<u64, DriverError> {
        let mut count = 0;
        // SAFETY: the number is written through a pointer to it.
        let asked = unsafe { self.call(|f, error| (f.device_count)(&raw mut count, error)) };
        asked.map_err(|failure| self.failed("device_count", failure))?;
        self.checked_count("devices", count)
    }

    fn checked_count(&self, what: &str, count: u64) -> Result<u64, DriverError> {
        if count <= MAX_COUNT {
            return Ok(count);
        }
        Err(self.wrong(format!("it says that it has {count} {what}")))
    }

    fn failed(&self, function: &str, failure: Failure) -> DriverError {
        self.wrong(format!("{function}: {}", failure.reason))
    }

    fn text(&self, what: &str, text: Text) -> Result<String, DriverError> {
        // SAFETY: texts of the driver live while it is loaded.
        let copied = unsafe { copy_text(text) };
        copied.map_err(|problem| self.wrong(format!("the {what} {problem}")))
    }

    fn feature(&self, device: u64, index: u64) -> Result<(String, String), DriverError> {
        let (mut name, mut value) = (Text::EMPTY, Text::EMPTY);
        // SAFETY: device and feature exist by the driver's own count; texts are written through
        // pointers to them.
        let asked = unsafe {
            self.call(|f, error| {
                (f.device_feature)(device, index, &raw mut name, &raw mut value, error)
            })
        };
        asked.map_err(|failure| self.failed("device_feature", failure))?;
        Ok((self.text("name of a feature", name)?, self.text("value of a feature", value)?))
    }

    fn buffer_type(
        self: &Arc<Self>,
        (device, device_name): (u64, &str),
        index: u64,
    ) -> Result<Arc<dyn BufferType>, DriverError> {
        let mut info = abi::BufferTypeInfo {
            name: Text::EMPTY,
            alignment: 0,
            max_size: 0,
            flags: 0,
            reserved: 0,
        };
        // SAFETY: device and type exist by the driver's own count; the structure is written
        // through a pointer to it.
        let asked = unsafe {
            self.call(|f, error| (f.buffer_type_info)(device, index, &raw mut info, error))
        };
        asked.map_err(|failure| self.failed("buffer_type_info", failure))?;
        let name = self.text("name of a buffer type", info.name)?;
        if name.is_empty() {
            return Err(self.wrong(format!("buffer type {index} of device {device} has no name")));
        }
        let alignment = usize::try_from(info.alignment).ok();
        let alignment = alignment.filter(|a| a.is_power_of_two() && *a <= isize::MAX as usize);
        let alignment = alignment.ok_or_else(|| {
            let found = info.alignment;
            self.wrong(format!("buffer type {name:?} has alignment {found}, no power of two"))
        })?;
        let max_size = usize::try_from(info.max_size).unwrap_or(usize::MAX);
        let max_size = max_size.min(isize::MAX as usize - alignment);
        Ok(Arc::new(DynamicBufferType {
            library: Arc::clone(self),
            device,
            device_name: device_name.to_owned(),
            index,
            // Names are unique in a process, as names of drivers are in a registry.
            name: format!("{}/{name}", self.name),
            alignment,
            max_size,
            is_host: info.flags & abi::HOST_MEMORY != 0,
        }))
    }
}

impl DynamicDevice {
    fn read(library: &Arc<Library>, index: u64) -> Result<Self, DriverError> {
        let mut info = abi::DeviceInfo {
            name: Text::EMPTY,
            description: Text::EMPTY,
            id: Text::EMPTY,
            kind: 0,
            flags: 0,
            feature_count: 0,
            buffer_type_count: 0,
        };
        // SAFETY: the device exists by the driver's own count; the structure is written through a
        // pointer to it.
        let asked =
            unsafe { library.call(|f, error| (f.device_info)(index, &raw mut info, error)) };
        asked.map_err(|failure| library.failed("device_info", failure))?;
        let name = library.text("name of a device", info.name)?;
        if name.is_empty() {
            return Err(library.wrong(format!("device {index} has no name")));
        }
        let kind = match info.kind {
            abi::CPU => DeviceKind::Cpu,
            abi::GPU => DeviceKind::Gpu,
            abi::INTEGRATED_GPU => DeviceKind::IntegratedGpu,
            abi::ACCELERATOR => DeviceKind::Accelerator,
            other => return Err(library.wrong(format!("device {name:?} is of kind {other}"))),
        };
        if info.buffer_type_count == 0 {
            return Err(library.wrong(format!("device {name:?} has no buffer type")));
        }
        let id = library.text("id of a device", info.id)?;
        let types = library.checked_count("buffer types", info.buffer_type_count)?;
        let features = library.checked_count("features", info.feature_count)?;
        let buffer_types = (0..types).map(|number| library.buffer_type((index, &name), number));
        let features = (0..features).map(|number| library.feature(index, number));
        Ok(Self {
            index,
            features: features.collect::<Result<_, _>>()?,
            reads_host_memory: info.flags & abi::READS_HOST_MEMORY != 0,
            buffer_types: buffer_types.collect::<Result<_, _>>()?,
            info: DeviceInfo {
                name,
                description: library.text("description of a device", info.description)?,
                id: (!id.is_empty()).then_some(id),
                kind,
            },
            library: Arc::clone(library),
        })
    }

    fn check_memory(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        for source in 0..case.sources.len() {
            if let Some(kind) = case.buffer_type(source)
                && !self.supports_buffer_type(kind)
            {
                let reason = format!("source {source} lies in {}", kind.name());
                return Err(Unsupported(Cow::Owned(reason)));
            }
        }
        Ok(())
    }
}

impl Device for DynamicDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> MemoryInfo {
        let (mut free, mut total) = (0_u64, 0_u64);
        // SAFETY: the device exists; numbers are written through pointers to them.
        let asked = unsafe {
            self.library.call(|f, error| {
                (f.device_memory)(self.index, &raw mut free, &raw mut total, error)
            })
        };
        let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        match asked {
            Ok(()) => MemoryInfo { free: bytes(free.min(total)), total: bytes(total) },
            Err(_) => MemoryInfo::default(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            host_buffers: self.buffer_types.iter().any(|kind| kind.is_host()),
            from_host_memory: self.reads_host_memory,
            mapped_files: self.reads_host_memory,
            ..Capabilities::default()
        }
    }

    fn features(&self) -> Vec<(String, String)> {
        self.features.clone()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.buffer_types
    }

    fn weight_buffer_type(&self, _: &Layout, _: &[WeightUse]) -> Arc<dyn BufferType> {
        Arc::clone(&self.buffer_types[0])
    }

    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        self.check_memory(case)?;
        let flat = FlatSteps::of_case(case);
        let [step] = flat.as_slice() else { return Err(Unsupported(Cow::Borrowed("no step"))) };
        // SAFETY: the device exists; the step and what it points to live until the call returns.
        let asked =
            unsafe { self.library.call(|f, error| (f.supports_op)(self.index, step, error)) };
        asked.map_err(|failure| Unsupported(Cow::Owned(failure.reason)))
    }

    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool {
        self.reads_host_memory && buffer_type.is_host()
            || self.buffer_types.iter().any(|own| same_buffer_type(&**own, buffer_type))
    }

    fn open(&self, options: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError> {
        if options.threads > 0 {
            return Err(DeviceError::Option {
                device: self.info.name.clone(),
                option: "threads",
                value: options.threads.to_string(),
                wanted: "none: threads are for CPUs".to_owned(),
            });
        }
        let backend = DynamicBackend::open(
            &self.library,
            &self.info.name,
            self.index,
            self.reads_host_memory,
            &self.buffer_types[0],
        )?;
        Ok(Box::new(backend))
    }
}
