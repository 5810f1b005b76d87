//! The errors of this crate, one enum for each thing that a caller can do.
//!
//! Each says what happened with the names and numbers that it is about; what caused it is its
//! source. New variants may be added to all of them.

mod device;
mod memory;
mod plan;
mod registry;
mod run;
mod weight;

pub use device::DeviceError;
pub use memory::MemoryError;
pub use plan::PlanError;
pub use registry::RegistryError;
pub use run::RunError;
pub use weight::WeightError;
