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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tensoryard_graph::{Layout, OpKind};

use crate::{
    BufferType, DeviceError, DeviceRates, DeviceRequest, Event, Location, ParameterSpec,
    RegistryError, Selected, Step, StepOp, Submission,
};

/// What kind of hardware a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ggml_backend_dev_type")]
pub enum DeviceKind {
    /// The machine's processor.
    #[doc(alias = "GGML_BACKEND_DEVICE_TYPE_CPU")]
    Cpu,
    /// A graphics processor with memory of its own.
    #[doc(alias = "GGML_BACKEND_DEVICE_TYPE_GPU")]
    Gpu,
    /// A graphics processor that shares the host's memory.
    #[doc(alias = "GGML_BACKEND_DEVICE_TYPE_IGPU")]
    IntegratedGpu,
    /// Something that helps the processor.
    #[doc(alias = "GGML_BACKEND_DEVICE_TYPE_ACCEL")]
    Accelerator,
}

impl DeviceKind {
    /// The kind in words.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "CPU",
            DeviceKind::Gpu => "GPU",
            DeviceKind::IntegratedGpu => "integrated GPU",
            DeviceKind::Accelerator => "accelerator",
        }
    }
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "ggml_backend_dev_props")]
pub struct DeviceInfo {
    /// Short name, such as `CPU`.
    #[doc(alias = "ggml_backend_dev_name")]
    #[doc(alias = "ggml_backend_name")]
    pub name: String,
    /// Name of the hardware.
    #[doc(alias = "ggml_backend_dev_description")]
    pub description: String,
    /// Stable identity, such as a PCI address, where there is one.
    #[doc(alias = "ggml_backend_guid")]
    pub id: Option<String>,
    /// Kind of hardware.
    #[doc(alias = "ggml_backend_is_cpu")]
    pub kind: DeviceKind,
}

/// Memory of a device in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ggml_backend_dev_memory")]
pub struct MemoryInfo {
    /// Bytes that can be had now.
    pub free: usize,
    /// Bytes in all.
    pub total: usize,
}

/// An op with its operands, as a device is asked about it.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "ggml_backend_dev_supports_op")]
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
    #[doc(alias = "ggml_backend_set_n_threads_t")]
    #[doc(alias = "ggml_backend_cpu_set_n_threads")]
    pub threads: usize,
}

/// A family of devices.
#[doc(alias = "ggml_backend_reg")]
#[doc(alias = "ggml_backend_reg_i")]
pub trait Driver: Send + Sync {
    /// Name, unique in a registry; compared without regard to case.
    #[doc(alias = "ggml_backend_reg_name")]
    #[doc(alias = "ggml_backend_reg_get_name")]
    fn name(&self) -> &str;

    /// The devices of the machine. A driver that makes devices on request may list none.
    #[doc(alias = "ggml_backend_reg_dev_count")]
    #[doc(alias = "ggml_backend_reg_dev_get")]
    fn devices(&self) -> Vec<Arc<dyn Device>>;

    /// The parameters that may stand behind the names of its devices.
    fn parameters(&self) -> &[ParameterSpec] {
        &[]
    }

    /// The device that somebody asks for, with the options that its parameters stand for.
    ///
    /// # Errors
    /// No such device, or a parameter's value that cannot be read.
    fn select(&self, request: &DeviceRequest<'_>) -> Result<Selected, RegistryError> {
        Ok(Selected::new(Arc::clone(request.listed()?)))
    }
}

/// A device of the machine.
#[doc(alias = "ggml_backend_device")]
#[doc(alias = "ggml_backend_dev_t")]
#[doc(alias = "ggml_backend_device_i")]
pub trait Device: Send + Sync + fmt::Debug {
    /// What the device is.
    #[doc(alias = "ggml_backend_dev_get_props")]
    fn info(&self) -> &DeviceInfo;

    /// Memory that it has.
    #[doc(alias = "ggml_backend_dev_memory")]
    fn memory(&self) -> MemoryInfo;

    /// What it can do besides computing.
    #[doc(alias = "ggml_backend_dev_get_props")]
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// How fast it is, where that is known without measuring.
    fn rates(&self) -> Option<DeviceRates> {
        None
    }

    /// Names and values of what the hardware offers, for display.
    #[doc(alias = "ggml_backend_feature")]
    #[doc(alias = "ggml_backend_get_features_t")]
    fn features(&self) -> Vec<(String, String)>;

    /// The buffer types that it offers; the first is the default, for compute memory.
    #[doc(alias = "ggml_backend_dev_buffer_type")]
    #[doc(alias = "ggml_backend_dev_host_buffer_type")]
    #[doc(alias = "ggml_backend_dev_get_extra_bufts_t")]
    #[doc(alias = "ggml_backend_buft_get_device")]
    #[doc(alias = "ggml_backend_get_default_buffer_type")]
    fn buffer_types(&self) -> &[Arc<dyn BufferType>];

    /// The kind of memory that a weight of this layout and these uses is best kept in.
    #[doc(alias = "ggml_backend_dev_get_extra_bufts_t")]
    fn weight_buffer_type(&self, layout: &Layout, uses: &[WeightUse]) -> Arc<dyn BufferType>;

    /// Whether the device runs the op.
    ///
    /// # Errors
    /// Why it does not.
    #[doc(alias = "ggml_backend_dev_supports_op")]
    #[doc(alias = "ggml_backend_supports_op")]
    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported>;

    /// Whether the device wants an op that it runs, although its weights lie in host memory and
    /// have to be copied for it.
    #[doc(alias = "ggml_backend_dev_offload_op")]
    #[doc(alias = "ggml_backend_offload_op")]
    fn wants_offload(&self, case: &OpCase<'_>) -> bool {
        let _ = case;
        false
    }

    /// Whether the device can compute with tensors in that kind of memory.
    #[doc(alias = "ggml_backend_dev_supports_buft")]
    #[doc(alias = "ggml_backend_supports_buft")]
    #[doc(alias = "ggml_backend_buft_supports_backend")]
    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool;

    /// Opens a queue.
    ///
    /// # Errors
    /// Options that the device does not take, or a device that cannot be had.
    #[doc(alias = "ggml_backend_dev_init")]
    #[doc(alias = "ggml_backend_reg_init_backend")]
    fn open(&self, options: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError>;
}

/// Steps compiled by a backend, to be run any number of times.
#[doc(alias = "ggml_backend_graph_plan_t")]
pub trait Program: Send + Sync + fmt::Debug {
    /// For downcasts by the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// What a device can do besides computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ggml_backend_dev_caps")]
pub struct Capabilities {
    /// Its backends return from submitting before the work is done.
    pub asynchronous: bool,
    /// It offers host memory that it transfers from and to without a copy in between.
    pub host_buffers: bool,
    /// It computes with memory that the caller already has.
    pub from_host_memory: bool,
    /// Its queues reach events without the host waiting for them.
    pub events: bool,
    /// It computes with weights in mapped files.
    pub mapped_files: bool,
}

/// An opened, ordered queue of a device.
///
/// # Safety
/// Queues that touch one memory are kept apart by what they say of themselves. Work that was
/// submitted is over when its [`Submission`] is dropped; when [`Backend::submit`] returns, unless
/// the queue is asynchronous; when an event that was recorded behind it is signalled; and when
/// [`Backend::synchronize`] returns. Nothing that is submitted after [`Backend::wait`] begins
/// before the event, unless `wait` is an error.
#[doc(alias = "ggml_backend")]
#[doc(alias = "ggml_backend_i")]
#[allow(unsafe_code, reason = "the executor trusts what implementations promise")]
pub unsafe trait Backend: Send {
    /// Name of the device.
    #[doc(alias = "ggml_backend_name")]
    fn name(&self) -> &str;

    /// The kind of memory that compute memory for this queue is allocated in: the first of its
    /// device's.
    #[doc(alias = "ggml_backend_get_default_buffer_type")]
    fn default_buffer_type(&self) -> &Arc<dyn BufferType>;

    /// Compiles steps, which are run in the order given.
    ///
    /// # Errors
    /// A step that the device does not support.
    #[doc(alias = "ggml_backend_graph_plan_create")]
    fn compile(&self, steps: &[Step]) -> Result<Arc<dyn Program>, DeviceError>;

    /// Runs a program after what was submitted before. It may still run when this returns; the
    /// memory is let go when it is done.
    ///
    /// # Errors
    /// A foreign program, a failed device, a wrong operand value, or the abort signal. What goes
    /// wrong later is told by events and by [`Backend::synchronize`].
    #[doc(alias = "ggml_backend_graph_compute_async")]
    #[doc(alias = "ggml_backend_graph_plan_compute")]
    fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        memory: Submission,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError>;

    /// Waits for everything that was submitted.
    ///
    /// # Errors
    /// What went wrong since the last call. Afterwards the queue takes work again, unless its
    /// device is lost.
    #[doc(alias = "ggml_backend_synchronize")]
    fn synchronize(&mut self) -> Result<(), DeviceError>;

    /// Whether work may still run when [`Backend::submit`] returns.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// An event that the queue reaches after what was submitted before. A device without events
    /// waits for its queue.
    ///
    /// # Errors
    /// What went wrong in the queue, where it had to be waited for.
    #[doc(alias = "ggml_backend_event_record")]
    fn record(&mut self) -> Result<Event, DeviceError> {
        self.synchronize()?;
        Ok(Event::done())
    }

    /// What is submitted later starts after the event. A device without events waits for it now.
    ///
    /// # Errors
    /// What went wrong before the event.
    #[doc(alias = "ggml_backend_event_wait")]
    fn wait(&mut self, event: &Event) -> Result<(), DeviceError> {
        event.wait()
    }

    /// Transfers in the queue, if the device has them.
    fn transfers(&mut self) -> Option<&mut dyn Transfers> {
        None
    }
}

/// Transfers of tensors in the order of a queue.
pub trait Transfers {
    /// Writes a tensor from contiguous bytes, which are copied before this returns.
    ///
    /// # Errors
    /// A failed device, or memory that the queue does not write.
    #[doc(alias = "ggml_backend_tensor_set_async")]
    fn write(&mut self, memory: Submission, to: &Location, bytes: &[u8])
    -> Result<(), DeviceError>;

    /// Reads a tensor as contiguous bytes.
    ///
    /// # Errors
    /// A failed device, or memory that the queue does not read.
    #[doc(alias = "ggml_backend_tensor_get_async")]
    fn read(&mut self, memory: Submission, from: &Location) -> Result<PendingRead, DeviceError>;

    /// Whether [`Transfers::copy`] goes between these kinds of memory.
    fn copies(&self, from: &dyn BufferType, to: &dyn BufferType) -> bool;

    /// Copies a tensor between two memories, layout kept, in this queue.
    ///
    /// # Errors
    /// A failed device, or kinds of memory that the queue does not copy between.
    #[doc(alias = "ggml_backend_tensor_copy_async")]
    fn copy(
        &mut self,
        memory: Submission,
        from: &Location,
        to: &Location,
    ) -> Result<(), DeviceError>;
}

/// Bytes that a queue will have read.
#[derive(Debug)]
pub struct PendingRead {
    event: Event,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl PendingRead {
    /// Bytes that lie in `bytes` once `event` is reached.
    pub fn new(event: Event, bytes: Arc<Mutex<Vec<u8>>>) -> Self {
        Self { event, bytes }
    }

    /// When the bytes are there.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The bytes, once they are there.
    ///
    /// # Errors
    /// What went wrong in the queue.
    pub fn wait(self) -> Result<Vec<u8>, DeviceError> {
        self.event.wait()?;
        Ok(std::mem::take(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Asks running work to stop. Cheap to clone; all clones are one signal.
#[derive(Debug, Clone, Default)]
#[doc(alias = "ggml_abort_callback")]
#[doc(alias = "ggml_backend_set_abort_callback_t")]
#[doc(alias = "ggml_backend_cpu_set_abort_callback")]
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

    /// The flag behind the signal, for devices that pass it on.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Whether the signal was given.
    pub fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
