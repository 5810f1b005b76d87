//! A device could not be opened, or did not do what it was asked.
//!
//! Every error that a device caused names it, so that what recovers finds it.

use super::MemoryError;

/// A device could not be opened, or did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// An option that the device does not take.
    #[error("{device}: {option} is {value}, wanted {wanted}")]
    Option {
        /// Name of the device.
        device: String,
        /// Name of the option.
        option: &'static str,
        /// The value given.
        value: String,
        /// What would do.
        wanted: String,
    },
    /// A thread could not be started.
    #[error("{device}: a thread could not be started: {reason}")]
    Thread {
        /// Name of the device.
        device: String,
        /// What the system said.
        reason: String,
    },
    /// A step that the device cannot run. Planning asks first, so this is a fault of the device.
    #[error("{device}: step {step:?} cannot be compiled: {reason}")]
    Compile {
        /// Name of the device.
        device: String,
        /// Name of the step.
        step: String,
        /// Why not.
        reason: String,
    },
    /// An operand value that the op does not take, such as a row index outside its table.
    #[error("{device}: step {step:?}: {reason}")]
    Value {
        /// Name of the device.
        device: String,
        /// Name of the step.
        step: String,
        /// What is wrong.
        reason: String,
    },
    /// The abort signal was given.
    #[error("cancelled")]
    Cancelled,
    /// A kernel panicked; the device is usable, the values of the run are not.
    #[error("{device}: a kernel panicked: {message}")]
    Panicked {
        /// Name of the device.
        device: String,
        /// What it said.
        message: String,
    },
    /// The device did not do what it was asked, and goes on; the values of the run are lost.
    #[error("{device}: {reason}")]
    Failed {
        /// Name of the device.
        device: String,
        /// What it said.
        reason: String,
    },
    /// A program of another device, or of another kind.
    #[error("{device}: the program was compiled by another device")]
    ForeignProgram {
        /// Name of the device.
        device: String,
    },
    /// The device does not answer any more; nothing that lay in its memory can be had.
    #[error("{device} is lost: {reason}")]
    Lost {
        /// Name of the device.
        device: String,
        /// What happened.
        reason: String,
    },
    /// The device's memory failed.
    #[error("{device}: {error}")]
    Memory {
        /// Name of the device.
        device: String,
        /// What happened.
        #[source]
        error: MemoryError,
    },
}

impl DeviceError {
    /// The device that can do no more, if that is what the error says.
    pub fn failed_device(&self) -> Option<&str> {
        match self {
            DeviceError::Lost { device, .. } => Some(device),
            DeviceError::Memory { device, error } => error.is_device_failure().then_some(device),
            DeviceError::Option { .. }
            | DeviceError::Thread { .. }
            | DeviceError::Compile { .. }
            | DeviceError::Value { .. }
            | DeviceError::Panicked { .. }
            | DeviceError::Failed { .. }
            | DeviceError::ForeignProgram { .. }
            | DeviceError::Cancelled => None,
        }
    }

    /// Where several errors come of one cause, the lowest is the cause.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            DeviceError::Lost { .. } => 0,
            DeviceError::Memory { .. } => 1,
            DeviceError::Option { .. }
            | DeviceError::Thread { .. }
            | DeviceError::Compile { .. }
            | DeviceError::Value { .. }
            | DeviceError::Panicked { .. }
            | DeviceError::Failed { .. }
            | DeviceError::ForeignProgram { .. } => 2,
            DeviceError::Cancelled => 3,
        }
    }
}
