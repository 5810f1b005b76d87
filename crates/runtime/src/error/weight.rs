//! Weights could not be loaded.
//!
//! Each error names the weight, and what was found where something else was wanted.

use tensoryard_graph::Layout;

use super::{MemoryError, PlanError};

/// Weights could not be loaded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// The source has no tensor of that name.
    #[error("weight {name:?} is missing")]
    Missing {
        /// The name.
        name: String,
    },
    /// The source has another type or shape than the graph.
    #[error("weight {name:?} is {found}, the model wants {wanted}")]
    Layout {
        /// The name.
        name: String,
        /// Layout in the source.
        found: Layout,
        /// Layout in the graph.
        wanted: Layout,
    },
    /// The source could not be read.
    #[error("weight {name:?}: {reason}")]
    Source {
        /// The name.
        name: String,
        /// What happened.
        reason: String,
    },
    /// The memory for it failed.
    #[error("weight {name:?}: {error}")]
    Memory {
        /// The name.
        name: String,
        /// What happened.
        #[source]
        error: MemoryError,
    },
    /// A weight whose device was not decided.
    #[error("weight {name:?} was not assigned to a device")]
    Unassigned {
        /// The name.
        name: String,
    },
    /// Where the weights go could not be decided.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Loading was stopped.
    #[error("cancelled")]
    Cancelled,
}
