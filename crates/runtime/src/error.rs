//! The errors of this crate, one enum for each thing that a caller can do.

use std::borrow::Cow;

use tensoryard_graph::Layout;

use crate::exec::StateStatus;

/// A buffer or a tensor in one could not be allocated, read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system or the device did not give the memory.
    #[error("{bytes} bytes could not be allocated")]
    Allocation {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The memory went with its device.
    #[error("the memory of {device} is lost")]
    Lost {
        /// Name of the device.
        device: String,
    },
    /// More than the largest buffer of the type.
    #[error("{bytes} bytes exceed the largest buffer of {buffer_type}, {max} bytes")]
    TooLarge {
        /// Name of the buffer type.
        buffer_type: String,
        /// Bytes asked for.
        bytes: usize,
        /// Largest possible buffer.
        max: usize,
    },
    /// A device that has no room, or does not give it.
    #[error(
        "{buffer_type} has no {bytes} bytes (alignment {alignment}, {padding} bytes added to each \
         tensor, largest buffer {max}): {reason}"
    )]
    NoRoom {
        /// Name of the buffer type.
        buffer_type: String,
        /// Bytes asked for.
        bytes: usize,
        /// Alignment of tensors.
        alignment: usize,
        /// Bytes added to each tensor.
        padding: usize,
        /// Largest possible buffer.
        max: usize,
        /// What stands against it.
        reason: String,
    },
    /// A range that reaches beyond the buffer.
    #[error("{bytes} bytes at offset {offset} reach beyond the buffer of {size} bytes")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Length of the range.
        bytes: usize,
        /// Size of the buffer.
        size: usize,
    },
    /// A write into memory that may only be read.
    #[error("the buffer is read only")]
    ReadOnly,
    /// An access that the buffer type does not offer.
    #[error("{buffer_type} holds whole tensors only: {what}")]
    WholeTensorsOnly {
        /// Name of the buffer type.
        buffer_type: String,
        /// The access that was tried.
        what: &'static str,
    },
    /// A layout that the buffer type cannot hold.
    #[error("{buffer_type} cannot hold {layout}")]
    Layout {
        /// Name of the buffer type.
        buffer_type: String,
        /// The layout.
        layout: Layout,
    },
    /// A kind of memory that this machine does not have.
    #[error("there is no {buffer_type} here: {reason}")]
    Unavailable {
        /// Name of the buffer type.
        buffer_type: String,
        /// What is missing.
        reason: String,
    },
    /// A tensor that the memory refuses to hold.
    #[error("{buffer_type} refuses the tensor: {reason}")]
    Refused {
        /// Name of the buffer type.
        buffer_type: String,
        /// Why.
        reason: String,
    },
    /// The device that has the memory did not do what it was asked.
    #[error("{buffer_type}: {reason}")]
    Failed {
        /// Name of the buffer type.
        buffer_type: String,
        /// What it said.
        reason: String,
    },
    /// Buffers of several kinds where one is wanted.
    #[error("a {found} buffer among buffers of {wanted}")]
    MixedBuffers {
        /// The kind of the first buffer.
        wanted: String,
        /// The kind of another.
        found: String,
    },
    /// A number of bytes that is not the tensor's.
    #[error("{given} bytes given for {layout}, which takes {needed}")]
    ByteCount {
        /// The layout.
        layout: Layout,
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
}

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

impl MemoryError {
    /// Whether the device of the memory can do no more, for want of memory or because it is gone.
    fn is_device_failure(&self) -> bool {
        match self {
            MemoryError::Allocation { .. }
            | MemoryError::NoRoom { .. }
            | MemoryError::Lost { .. }
            | MemoryError::Failed { .. } => true,
            MemoryError::TooLarge { .. }
            | MemoryError::OutOfRange { .. }
            | MemoryError::ReadOnly
            | MemoryError::WholeTensorsOnly { .. }
            | MemoryError::Layout { .. }
            | MemoryError::ByteCount { .. }
            | MemoryError::Unavailable { .. }
            | MemoryError::Refused { .. }
            | MemoryError::MixedBuffers { .. } => false,
        }
    }
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

/// A device cannot be found or registered.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Two drivers of one name.
    #[error("a driver named {0:?} is registered already")]
    DuplicateDriver(String),
    /// An unknown driver or device.
    #[error("no device {name:?}; there are: {known}")]
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// An unknown parameter.
    #[error("{device} has no parameter {key:?}; there are: {known}")]
    UnknownParameter {
        /// Name of the device.
        device: String,
        /// The parameter given.
        key: String,
        /// The parameters that exist.
        known: String,
    },
    /// A parameter value that cannot be read.
    #[error("{device}: {key} is {value:?}, wanted {wanted}")]
    ParameterValue {
        /// Name of the device.
        device: String,
        /// The parameter.
        key: String,
        /// The value given.
        value: String,
        /// What would do.
        wanted: Cow<'static, str>,
    },
    /// A text that does not name a device.
    #[error("device {text:?}: {problem}")]
    Syntax {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A device that offers no memory.
    #[error("{0} offers no memory")]
    NoMemory(String),
    /// The device's memory failed.
    #[error("{device}: {error}")]
    Memory {
        /// Name of the device.
        device: String,
        /// What happened.
        #[source]
        error: MemoryError,
    },
    /// A device that cannot be made or opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
