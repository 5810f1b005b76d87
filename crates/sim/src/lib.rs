//! Simulated devices, for tests and for planning with machines that one does not have.
//!
//! A [`SimDevice`] has memory of its own that is no host memory, runs the ops that it was told
//! to, has limits, works on its own with real delays, and fails when asked to. It computes
//! through a host device, so that its results can be checked, and it keeps virtual time by the
//! rates that planning predicts with: see [`SimClock`]. Real delays only provoke races.
//!
//! A [`SimDriver`] makes devices. In a registry it lists none; `sim:memory=2GiB;kind=gpu` makes
//! one.

mod clock;
mod device;
mod driver;
mod engine;
mod faults;
mod memory;
mod options;
mod pool;
mod program;
mod queue;

pub use clock::{BusyTime, SimClock};
pub use device::SimDevice;
pub use driver::SimDriver;
pub use faults::{Faults, SimCounts};
pub use options::{Shares, SimOptions};
