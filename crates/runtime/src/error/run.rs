//! A run failed, before it began or on a device.
//!
//! What a device said is kept inside, and can be asked for.

use tensoryard_graph::Layout;

use super::{DeviceError, MemoryError, PlanError, WeightError};
use crate::exec::StateStatus;

/// A run failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A graph input that was not given.
    #[error("input {0:?} was not given")]
    MissingInput(String),
    /// A given input that the graph does not have.
    #[error("the graph has no input {0:?}")]
    UnknownInput(String),
    /// An input of the wrong size.
    #[error("input {name:?} has {given} bytes, {layout} takes {needed}")]
    InputSize {
        /// Name of the input.
        name: String,
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
        /// Layout in the graph.
        layout: Layout,
    },
    /// A read of something that was not marked as output, or of an earlier run.
    #[error("{0:?} is not an output of the last run")]
    NotAnOutput(String),
    /// An output read as another type than its own.
    #[error("output {name:?} is {layout}, it cannot be read as {wanted}")]
    OutputType {
        /// Name of the output.
        name: String,
        /// Its layout.
        layout: Layout,
        /// Type that was asked for.
        wanted: &'static str,
    },
    /// A state tensor that does not exist.
    #[error("state {0:?} does not exist")]
    UnknownState(String),
    /// A state tensor that a failed run left half written, or that was lost with its device.
    #[error("state {name:?} is {status}; write or clear it before the next run")]
    StateUnusable {
        /// Name of the state.
        name: String,
        /// What became of it.
        status: StateStatus,
    },
    /// A state tensor whose device was not decided.
    #[error("state {0:?} was not assigned to a device")]
    UnassignedState(String),
    /// Two graphs that disagree about a state tensor.
    #[error("state {name:?} is {first} in one graph and {second} in another")]
    StateLayout {
        /// Name of the state.
        name: String,
        /// Layout in the first graph.
        first: Layout,
        /// Layout in the second graph.
        second: Layout,
    },
    /// Weights, state or workspace that the plan was not made for.
    #[error("the plan does not fit: {0}")]
    PlanMismatch(String),
    /// Weights that were lost with a device could not be read again.
    #[error(transparent)]
    Weights(WeightError),
    /// The graph cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A device failed, or the run was cancelled.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Memory for the run failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl RunError {
    /// The device that can do no more, if that is what the error says.
    pub fn failed_device(&self) -> Option<&str> {
        match self {
            RunError::Device(error) | RunError::Plan(PlanError::Device(error)) => {
                error.failed_device()
            }
            RunError::Memory(MemoryError::Lost { device }) => Some(device),
            RunError::MissingInput(_)
            | RunError::UnknownInput(_)
            | RunError::InputSize { .. }
            | RunError::NotAnOutput(_)
            | RunError::OutputType { .. }
            | RunError::UnknownState(_)
            | RunError::UnassignedState(_)
            | RunError::StateUnusable { .. }
            | RunError::StateLayout { .. }
            | RunError::PlanMismatch(_)
            | RunError::Plan(_)
            | RunError::Weights(_)
            | RunError::Memory(_) => None,
        }
    }

    /// Whether the run ended because somebody asked for it.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, RunError::Device(DeviceError::Cancelled))
    }
}
