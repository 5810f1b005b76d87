//! The CPU device: thread team and kernels.
//!
//! [`Isa`] says which instructions this processor has, [`Team`] runs one
//! closure on several threads, and the kernels compute: functions over
//! slices for rows, over panels and row views for matrices. Kernels do not
//! split work among threads, allocate or know tensors; whoever calls them
//! does. Unsafe code is confined to the modules marked here.

mod cgroup;
mod check;
mod device;
mod hbm;
pub mod isa;
pub mod kernels;
pub mod pack;
mod packed;
mod program;
#[allow(unsafe_code)]
mod simd;
#[allow(unsafe_code)]
pub mod span;
mod steps;
mod system;
#[allow(unsafe_code)]
pub mod team;
mod turns;
mod view;

pub use device::{CpuDevice, CpuDriver};
pub use hbm::{HbmBufferType, hbm_buffer_type};
pub use isa::{Isa, Level};
pub use packed::{PackedBufferType, packed_buffer_type};
pub use team::{ChunkCounter, Member, Stopped, Team, TeamError};
