//! What a device must offer: the contract between the planner, the executor
//! and the crates that compute.
//!
//! A [`Driver`] enumerates the devices of one family. A [`Device`] answers
//! questions and opens [`Backend`]s: ordered queues that compile steps into
//! [`Program`]s and run them. [`Device::supports_op`] is truthful: what it
//! claims runs for every type, shape and stride that it was asked about.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tensoryard_graph::{Layout, OpKind};

use crate::{BufferType, DeviceError, Memory, Region, Step, StepOp};

/// What kind of hardware a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ggml_backend_dev_type")]
pub enum DeviceKind {
    /// The machine's processor.
    Cpu,
    /// A graphics processor with memory of its own.
    Gpu,
    /// A graphics processor that shares the host's memory.
    IntegratedGpu,
    /// Something that helps the processor.
    Accelerator,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Short name, such as `CPU`.
    pub name: String,
    /// Name of the hardware.
    pub description: String,
    /// Stable identity, such as a PCI address, where there is one.
    pub id: Option<String>,
    /// Kind of hardware.
    pub kind: DeviceKind,
}

/// Memory of a device in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryInfo {
    /// Bytes that can be had now.
    pub free: usize,
    /// Bytes in all.
    pub total: usize,
}

/// An op with its operands, as a device is asked about it.
#[derive(Debug, Clone, Copy)]
pub struct OpCase<'a> {
    /// What to compute.
    pub op: &'a StepOp,
    /// Layouts of the sources; absent optional ones are `None`.
    pub sources: &'a [Option<Layout>],
    /// Kinds of memory that the sources lie in, where that is known already.
    pub buffer_types: &'a [Option<&'a dyn BufferType>],
    /// Layout of the destination.
    pub dst: &'a Layout,
}

impl<'a> OpCase<'a> {
    /// The kind of memory that a source is known to lie in.
    pub fn buffer_type(&self, source: usize) -> Option<&'a dyn BufferType> {
        self.buffer_types.get(source).copied().flatten()
    }
}

/// Why a device does not run an op.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub Cow<'static, str>);

/// How a graph uses a weight: an op and the number of the operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightUse {
    /// Kind of the op.
    pub op: OpKind,
    /// Number of the operand.
    pub operand: usize,
}

/// How a backend is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackendOptions {
    /// Threads of a CPU device; 0 lets the device choose. Other devices refuse it.
    pub threads: usize,
}

/// A family of devices.
#[doc(alias = "ggml_backend_reg")]
pub trait Driver: Send + Sync {
    /// Name, unique in a registry; compared without regard to case.
    fn name(&self) -> &str;

    /// The devices of the machine.
    fn devices(&self) -> Vec<Arc<dyn Device>>;
}

/// A device of the machine.
#[doc(alias = "ggml_backend_dev")]
pub trait Device: Send + Sync + fmt::Debug {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Memory that it has.
    fn memory(&self) -> MemoryInfo;

    /// Names and values of what the hardware offers, for display.
    fn features(&self) -> Vec<(String, String)>;

    /// The buffer types that it offers; the first is the default, for compute memory.
    fn buffer_types(&self) -> &[Arc<dyn BufferType>];

    /// The kind of memory that a weight of this layout and these uses is best kept in.
    fn weight_buffer_type(&self, layout: &Layout, uses: &[WeightUse]) -> Arc<dyn BufferType>;

    /// Whether the device runs the op.
    ///
    /// # Errors
    /// Why it does not.
    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported>;

    /// Whether the device can compute with tensors in that kind of memory.
    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool;

    /// Opens a queue.
    ///
    /// # Errors
    /// Options that the device does not take, or a device that cannot be had.
    #[doc(alias = "ggml_backend_dev_init")]
    fn open(&self, options: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError>;
}

/// Steps compiled by a backend, to be run any number of times.
#[doc(alias = "ggml_backend_graph_plan")]
pub trait Program: Send + Sync + fmt::Debug {
    /// For downcasts by the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// An opened, ordered queue of a device.
#[doc(alias = "ggml_backend")]
pub trait Backend: Send {
    /// Compiles steps, which are run in the order given.
    ///
    /// # Errors
    /// A step that the device does not support.
    fn compile(&self, steps: &[Step]) -> Result<Arc<dyn Program>, DeviceError>;

    /// Runs a program after what was submitted before. It may still run when this returns.
    ///
    /// # Errors
    /// A foreign program, a failed device, a wrong operand value, or the abort signal.
    fn submit(
        &mut self,
        program: &dyn Program,
        bindings: &mut Bindings<'_>,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError>;

    /// Waits for everything that was submitted.
    ///
    /// # Errors
    /// What went wrong since the last call.
    fn synchronize(&mut self) -> Result<(), DeviceError>;
}

/// The memory of one region, as long as nothing is submitted.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// The memory.
    pub memory: &'a dyn Memory,
    /// Where the region begins in it.
    pub offset_bytes: usize,
}

/// The memory that the regions of a program stand for.
///
/// Made by the executor from a shared borrow of the weights and exclusive borrows of state and
/// workspace that last as long as the run. What is looked up borrows the bindings, and submitting
/// borrows them exclusively: while a device writes where its steps have their destination, nobody
/// else looks.
#[derive(Debug)]
pub struct Bindings<'a> {
    pub(crate) weights: Vec<Bound<'a>>,
    pub(crate) states: Vec<Bound<'a>>,
    pub(crate) chunks: Vec<Bound<'a>>,
}

impl Bindings<'_> {
    /// The memory of a region, if the plan has it.
    pub fn get(&self, region: Region) -> Option<Bound<'_>> {
        match region {
            Region::Weight(n) => self.weights.get(n as usize),
            Region::State(n) => self.states.get(n as usize),
            Region::Chunk(n) => self.chunks.get(n as usize),
        }
        .copied()
    }
}

/// Asks running work to stop. Cheap to clone; all clones are one signal.
#[derive(Debug, Clone, Default)]
#[doc(alias = "ggml_abort_callback")]
pub struct AbortSignal(Arc<AtomicBool>);

impl AbortSignal {
    /// A signal that is not given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal.
    pub fn abort(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Takes the signal back, before the next run.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether the signal was given.
    pub fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
