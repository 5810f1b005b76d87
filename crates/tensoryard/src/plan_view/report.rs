//! What a plan says, as plain data: the one source of every renderer.
//!
//! The JSON form is this data field by field. Bytes are whole bytes, times are
//! nanoseconds, shapes are fastest dimension first, positions count from 0.
//! A time or limit that is not known is absent, never 0.

use serde::Serialize;

/// Version of the JSON form; raised when a field changes its meaning or goes away.
pub const REPORT_VERSION: u32 = 1;

/// The plans of one or more graphs that share weights, state and devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// What was planned, commonly the name of a model.
    pub title: String,
    /// How devices were chosen, such as `priority`.
    pub strategy: String,
    /// Whether everything fits into its memory.
    pub fits: bool,
    /// What planning said where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Threads that the first device of unknown speed was opened with, 0 for automatic.
    #[serde(skip)]
    pub threads: usize,
    /// Patterns of pins that match nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmatched_pins: Vec<String>,
    /// The devices in order of priority.
    pub devices: Vec<DeviceReport>,
    /// Each memory, with what it must hold.
    pub memory: Vec<MemoryReport>,
    /// The graphs.
    pub graphs: Vec<GraphReport>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Short name.
    pub name: String,
    /// Name of the hardware.
    pub description: String,
    /// `cpu`, `gpu`, `integrated gpu` or `accelerator`.
    pub kind: &'static str,
    /// The kind of memory that its results go to.
    pub compute_memory: String,
    /// Whether it is known how fast it is; times are predicted when all devices are.
    pub speed_known: bool,
}

/// What one memory must hold for all graphs together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryReport {
    /// Name of the memory.
    pub name: String,
    /// Positions of the devices that compute in it.
    pub devices: Vec<usize>,
    /// Weights, each once.
    pub weights_bytes: usize,
    /// State that outlives a run, each tensor once.
    pub state_bytes: usize,
    /// Compute memory, at the most.
    pub compute_bytes: usize,
    /// All of it together.
    pub peak_bytes: usize,
    /// What it may hold, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<usize>,
    /// Bytes beyond the limit; 0 when all fits.
    pub over_bytes: usize,
}

/// The plan of one graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraphReport {
    /// Short name, unique in the report.
    pub name: String,
    /// What the graph computes, in words.
    pub purpose: String,
    /// Nodes of the graph that compute something.
    pub nodes: usize,
    /// Floating-point operations of a run.
    pub flops: f64,
    /// Bytes copied between devices in a run.
    pub copied_bytes: usize,
    /// Predicted time of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ns: Option<u64>,
    /// Compute memory by kind.
    pub compute: Vec<ComputeReport>,
    /// The splits in order.
    pub splits: Vec<SplitReport>,
    /// The copies in order.
    pub copies: Vec<CopyReport>,
    /// The operations of all splits in order.
    pub operations: Vec<OperationReport>,
}

/// Compute memory of one graph in one kind of memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComputeReport {
    /// Name of the kind of memory.
    pub memory: String,
    /// Bytes.
    pub bytes: usize,
}

/// A run of operations on one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitReport {
    /// Position of the device.
    pub device: usize,
    /// Position of its first operation.
    pub first_operation: usize,
    /// Number of operations.
    pub operations: usize,
    /// Positions of the copies that it waits for.
    pub copies: Vec<usize>,
    /// Bytes of these copies.
    pub copied_bytes: usize,
    /// When and how long, if a prediction was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<SplitTime>,
}

/// The predicted time of a split, from the begin of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SplitTime {
    /// When its operations begin.
    pub start_ns: u64,
    /// When they have ended.
    pub end_ns: u64,
    /// Time of its copies, which may run beside other work.
    pub copy_ns: u64,
    /// Time of its operations, with what a split costs in itself.
    pub compute_ns: u64,
}

/// The predicted time of a copy, from the begin of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CopyTime {
    /// Position of the device that is busy with it.
    pub queue: usize,
    /// When it begins.
    pub start_ns: u64,
    /// When it has come.
    pub end_ns: u64,
}

/// A tensor that is copied from one device to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CopyReport {
    /// Name of the tensor.
    pub tensor: String,
    /// `weight`, `state`, `input` or `operation`.
    pub origin: &'static str,
    /// Position of the device that it comes from, if it lies on one.
    pub from: Option<usize>,
    /// Position of the device that it goes to.
    pub to: usize,
    /// The split before which it is copied.
    pub split: usize,
    /// Type and shape.
    pub tensor_type: TypeReport,
    /// Bytes copied.
    pub bytes: usize,
    /// Whether the copy is still there in the next run while the input stays the same.
    pub kept: bool,
    /// Position of the operation that computes it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<usize>,
    /// When and how long, if a prediction was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<CopyTime>,
}

/// Type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TypeReport {
    /// Element type.
    pub dtype: &'static str,
    /// Number of elements along each dimension, fastest first.
    pub shape: Vec<usize>,
}

/// One step of a device: an op of the graph, or several fused into one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperationReport {
    /// Name of the tensor that it computes.
    pub name: String,
    /// The part of the model that it belongs to, from the names of the weights around it.
    pub group: Vec<String>,
    /// A short name inside the group, such as that of its weight.
    pub label: String,
    /// What it computes; fused ops joined by `+`.
    pub op: String,
    /// Which kind of op it is, for colours and sums.
    pub family: Family,
    /// Position of its split.
    pub split: usize,
    /// Position of its device.
    pub device: usize,
    /// Why it runs there: the rule of placement, such as `weight 0`.
    pub reason: String,
    /// Why it runs there, in a few words.
    pub why: &'static str,
    /// Why it runs there, in a sentence with names.
    pub because: String,
    /// Type and shape of the result.
    pub result: TypeReport,
    /// Bytes of the result.
    pub bytes: usize,
    /// Where the result lies.
    pub memory: PlaceReport,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written, each operand once.
    pub moved_bytes: f64,
    /// Predicted time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ns: Option<u64>,
    /// The nodes of the graph that it computes, in order.
    pub nodes: Vec<NodeReport>,
    /// What it reads.
    pub sources: Vec<SourceReport>,
}

/// Ops that belong together in the eyes of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Matrix products and convolutions.
    Matrix,
    /// Attention and softmax.
    Attention,
    /// Normalisation.
    Norm,
    /// One element at a time.
    Elementwise,
    /// Moves elements without computing with them.
    Movement,
}

impl Family {
    /// All of them, in the order of legends.
    pub const ALL: [Family; 5] =
        [Family::Matrix, Family::Attention, Family::Norm, Family::Elementwise, Family::Movement];

    /// Name, as in the JSON form.
    pub fn name(self) -> &'static str {
        match self {
            Family::Matrix => "matrix",
            Family::Attention => "attention",
            Family::Norm => "norm",
            Family::Elementwise => "elementwise",
            Family::Movement => "movement",
        }
    }
}

/// Where a result lies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlaceReport {
    /// Name of the kind of memory.
    pub kind: String,
    /// `compute`, `state` or `weight`.
    pub region: &'static str,
    /// Number of the chunk, state tensor or weight in the plan.
    pub number: u32,
    /// Distance in bytes from its start.
    pub offset_bytes: usize,
    /// The source whose memory the result takes over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_over: Option<String>,
}

/// A node of the graph inside an operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeReport {
    /// Name of the tensor that it computes.
    pub name: String,
    /// Name of the op.
    pub op: &'static str,
    /// Which kind of op it is.
    pub family: Family,
    /// Parameters, as `name=value`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parameters: String,
    /// Type and shape of the result.
    pub result: TypeReport,
    /// Why it is placed where it is.
    pub reason: String,
}

/// Something that an operation reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceReport {
    /// Name of the tensor.
    pub name: String,
    /// `weight`, `state`, `input`, `operation` or `temporary`.
    pub origin: &'static str,
    /// Type and shape.
    pub tensor_type: TypeReport,
    /// Name of the kind of memory that it is read from.
    pub memory: String,
    /// Bytes.
    pub bytes: usize,
    /// Position of the operation that computes it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<usize>,
    /// Position of the copy that brings it, if it comes from another device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<usize>,
}
