//! Drivers from shared libraries.
//!
//! A library exports one function that returns a table of C functions; its layout is
//! `docs/tensoryard_driver.h`, and no Rust type crosses the border. [`DynamicDriver::load`] checks
//! the table and everything that the library says through it, and offers its devices to a
//! registry. A library stays loaded while a device, buffer, program or queue of it lives.

mod abi;
mod backend;
mod describe;
mod device;
mod error;
#[cfg(test)]
mod hostile;
mod library;
mod memory;
mod program;

pub use device::DynamicDriver;
pub use error::DriverError;
