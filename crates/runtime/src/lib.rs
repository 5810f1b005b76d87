//! Devices, buffers, planning and execution of compute graphs.
//!
//! A [`Plan`] is made from an immutable graph and a list of devices by pure
//! functions, one stage a file: place, split, select, allocate, lower. Devices
//! receive resolved [`Step`]s, never graphs, placements or copies. This crate
//! names no concrete device; drivers are registered in a [`Registry`].
//!
//! Ownership is in one signature, [`exec::run`]: weights are shared and read
//! only, state and workspace are borrowed exclusively.

mod buffer;
pub mod calibrate;
mod check;
mod device;
mod error;
mod event;
pub mod exec;
mod host;
mod identity;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod multi;
pub mod plan;
pub mod rates;
mod registry;
mod session;
mod shared;
mod step;
mod submission;
mod sync;
pub mod tensors;
mod weights;

pub use buffer::{Buffer, BufferType, Memory, PlacedLayout, Usage, same_buffer_type};
pub use check::StepError;
pub use device::{
    AbortSignal, Backend, BackendOptions, Capabilities, Device, DeviceInfo, DeviceKind, Driver,
    MemoryInfo, OpCase, PendingRead, Program, Transfers, Unsupported, WeightUse,
};
pub use error::{DeviceError, MemoryError, PlanError, RegistryError, RunError, WeightError};
pub use event::{Event, Signal};
pub use exec::{
    Input, Observer, RunCounters, RunOptions, Seen, SplitTiming, State, StateStatus, StateTensor,
    Ticket, Workspace,
};
pub use host::{HostMemory, OwnedBytes, SharedBytes};
pub use memory::{HostBufferType, bytes_for, host_buffer_type};
pub use multi::MultiBuffer;
pub use plan::{Assignment, Blueprint, DeviceIndex, Plan, PlanDevice, PlanOptions};
pub use rates::DeviceRates;
pub use registry::{DeviceRequest, ParameterSpec, Parameters, Registry, Selected, Selector};
pub use session::{FailurePolicy, Outputs, Recovery, Session, SessionOptions, Submitted};
pub use step::{Aliasing, MatrixOp, Operand, Region, Step, StepOp};
pub use submission::{Bound, Location, Reveal, Submission};
pub use tensors::{TensorDataError, Tensors};
pub use weights::{LoadReport, Weight, WeightSource, Weights};
