//! A device cannot be found or registered.
//!
//! Errors of selecting quote what the caller wrote and list what there is.

use std::borrow::Cow;

use super::{DeviceError, MemoryError};

/// A device cannot be found or registered.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Two drivers of one name.
    #[error("a driver named {0:?} is registered already")]
    DuplicateDriver(String),
    /// An unknown driver or device.
    #[error("no device {name:?}; there are: {known}")]
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// An unknown parameter.
    #[error("{device} has no parameter {key:?}; there are: {known}")]
    UnknownParameter {
        /// Name of the device.
        device: String,
        /// The parameter given.
        key: String,
        /// The parameters that exist.
        known: String,
    },
    /// A parameter value that cannot be read.
    #[error("{device}: {key} is {value:?}, wanted {wanted}")]
    ParameterValue {
        /// Name of the device.
        device: String,
        /// The parameter.
        key: String,
        /// The value given.
        value: String,
        /// What would do.
        wanted: Cow<'static, str>,
    },
    /// A text that does not name a device.
    #[error("device {text:?}: {problem}")]
    Syntax {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A device that offers no memory.
    #[error("{0} offers no memory")]
    NoMemory(String),
    /// The device's memory failed.
    #[error("{device}: {error}")]
    Memory {
        /// Name of the device.
        device: String,
        /// What happened.
        #[source]
        error: MemoryError,
    },
    /// A device that cannot be made or opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
