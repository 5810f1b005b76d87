//! A graph cannot be run on the devices given.
//!
//! Errors of planning name the graph, the tensor and the numbers that do not fit.

use tensoryard_graph::Layout;

use super::DeviceError;

/// A graph cannot be run on the devices given.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No device at all.
    #[error("no device was given")]
    NoDevice,
    /// One device twice.
    #[error("device {0} was given twice")]
    DuplicateDevice(String),
    /// A weight that is not loaded.
    #[error("weight {0:?} is not loaded")]
    MissingWeight(String),
    /// A state tensor that does not exist.
    #[error("state {0:?} does not exist")]
    MissingState(String),
    /// A leaf whose memory has another layout than the graph's.
    #[error("{kind} {name:?} is {found} in memory, {wanted} in the graph")]
    LeafLayout {
        /// `weight` or `state`.
        kind: &'static str,
        /// Name of the leaf.
        name: String,
        /// Layout in memory.
        found: Layout,
        /// Layout in the graph.
        wanted: Layout,
    },
    /// A view of a tensor in memory that holds whole tensors only.
    #[error("{tensor:?} is a view of {root:?}, which {buffer_type} holds as a whole")]
    WholeTensorsOnly {
        /// Name of the view.
        tensor: String,
        /// Name of the tensor that it looks into.
        root: String,
        /// Name of the buffer type.
        buffer_type: String,
    },
    /// No device can run the op.
    #[error("no device runs {op} {tensor:?}: {reasons}")]
    Unsupported {
        /// Name of the op.
        op: &'static str,
        /// Name of the tensor.
        tensor: String,
        /// What each device said.
        reasons: String,
    },
    /// A tensor lies in memory where no device can run the op that writes it.
    #[error("{op} {tensor:?} lies in {buffer_type}, where no device runs it: {reasons}")]
    Fixed {
        /// Name of the op.
        op: &'static str,
        /// Name of the tensor.
        tensor: String,
        /// Name of the buffer type.
        buffer_type: String,
        /// What each device said.
        reasons: String,
    },
    /// A pin that cannot be honoured.
    #[error("{tensor:?} cannot be pinned to {device}: {reason}")]
    Pin {
        /// Name of the tensor.
        tensor: String,
        /// Name of the device.
        device: String,
        /// Why not.
        reason: String,
    },
    /// Graphs that disagree about a leaf which they share.
    #[error("{kind} {name:?} is {first} in one graph and {second} in another")]
    LeavesDisagree {
        /// `weight` or `state`.
        kind: &'static str,
        /// Name of the leaf.
        name: String,
        /// Layout in the first graph.
        first: Layout,
        /// Layout in the second graph.
        second: Layout,
    },
    /// A weight or state tensor that no device can hold.
    #[error("no device has room for {kind} {name:?} of {bytes} bytes: {reasons}")]
    NoRoom {
        /// `weight` or `state`.
        kind: &'static str,
        /// Name of the leaf.
        name: String,
        /// Bytes of its elements.
        bytes: usize,
        /// What stands against each device.
        reasons: String,
    },
    /// More than a memory may hold.
    #[error(
        "{device}: {needed} bytes are needed ({weights} for weights, {state} for state, {compute} \
         for computing), {by} more than the limit of {limit}"
    )]
    DoesNotFit {
        /// Names of the devices that use the memory.
        device: String,
        /// Bytes of everything together.
        needed: usize,
        /// Bytes that it may hold.
        limit: usize,
        /// Bytes beyond the limit.
        by: usize,
        /// Bytes of weights.
        weights: usize,
        /// Bytes of state.
        state: usize,
        /// Bytes of compute memory.
        compute: usize,
    },
    /// A device whose speed is not known, so that no time can be predicted.
    #[error("the rates of {0} are not known; measure the device or state them")]
    NoRates(String),
    /// The memory that the graph needs exceeds what can be addressed.
    #[error("the compute memory of the graph exceeds the address space")]
    Overflow,
    /// A tensor larger than the largest buffer of its device.
    #[error("{tensor:?} takes {bytes} bytes, the largest buffer of {buffer_type} is {max}")]
    TooLarge {
        /// Name of the tensor.
        tensor: String,
        /// Bytes needed.
        bytes: usize,
        /// Name of the buffer type.
        buffer_type: String,
        /// Largest possible buffer.
        max: usize,
    },
    /// A blueprint whose tables contradict each other.
    #[error("the blueprint contradicts itself: {0}")]
    Blueprint(String),
    /// A device refused a step that it claimed to support.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
