//! Simulated devices, for tests and for planning with machines that one does not have.
//!
//! A [`SimDevice`] has memory of its own that is no host memory, runs the ops that it was told
//! to, has limits, works on its own with real delays, and fails when asked to. It computes
//! through a host device, so that its results can be checked, and it keeps virtual time by the
//! rates that planning predicts with: see [`SimClock`]. Real delays only provoke races.
//!
//! A [`SimDriver`] makes devices. In a registry it lists none; `sim:memory=2GiB;kind=gpu` makes
//! one. Its parameters, all of them optional:
//!
//! | parameters | what they are |
//! |---|---|
//! | `name`, `kind` | name, unique among simulated devices; `cpu`, `gpu`, `igpu` or `accelerator` |
//! | `memory`, `max_buffer`, `alignment`, `padding` | its memory in bytes: `64MiB` |
//! | `shares` | whose memory it is: `own`, `host`, or the name of another simulated device |
//! | `reads` | `host`: weights in host memory are read where they lie |
//! | `ops`, `max_row` | what it runs: `mul_mat+add`; longest row of a source |
//! | `flops`, `matrix_f32_flops`, `matrix_f16_flops`, `matrix_quantised_flops`, `other_flops` | floating-point operations a second: `5e12`, `5T` |
//! | `bandwidth`, `to_device`, `from_device` | bytes a second of its memory, into it, out of it: `12G` |
//! | `latency`, `op_overhead`, `split_overhead` | virtual time of each transfer, op, split: `10us` |
//! | `pinned_speedup`, `slow_copies`, `counts_writes` | how transfers are done and counted |
//! | `asynchronous`, `delay`, `jitter`, `seed` | whether it works on its own, and real delays |
//! | `fail_allocation_at`, `lost_at_step`, `lost_at_transfer` | what goes wrong, counted from 0 |

mod clock;
mod device;
mod driver;
mod engine;
mod faults;
mod line;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod options;
mod pool;
mod program;
mod queue;

pub use clock::{BusyTime, SimClock};
pub use device::SimDevice;
pub use driver::SimDriver;
pub use faults::{Faults, SimCounts};
pub use options::{Shares, SimOptions};
