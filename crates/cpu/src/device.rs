//! The CPU as a device of the runtime.
//!
//! Results go to plain host memory; weights of matrix products and
//! convolutions are kept packed. Backends of one device that use the same
//! number of threads share one team and take turns in the order of asking, so
//! that any number of sessions has no more threads than one and none starves. A backend of one thread computes on
//! the caller's and shares nothing.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tensoryard_graph::ops::Op;
use tensoryard_graph::{DType, Layout, OpKind};
use tensoryard_runtime::{
    AbortSignal, Backend, BackendOptions, BufferType, Capabilities, Device, DeviceError,
    DeviceInfo, DeviceKind, DeviceRequest, Driver, MemoryInfo, OpCase, ParameterSpec, Program,
    RegistryError, Selected, Step, StepOp, Submission, Unsupported, WeightUse, host_buffer_type,
};

use crate::check::takes_panels;
use crate::hbm::{HbmBufferType, hbm_buffer_type};
use crate::isa::{Isa, feature_names};
use crate::packed::{PackedMatrix, is_packed, packed_buffer_type};
use crate::program::{CpuProgram, Runner};
use crate::steps::activation_of;
use crate::system;
use crate::team::Team;
use crate::turns::Turns;

/// More threads than this are taken for a mistake.
const MAX_THREADS: usize = 1024;

/// The driver of the machine's processor.
#[derive(Debug, Clone, Default)]
#[doc(alias = "ggml_backend_cpu_reg")]
pub struct CpuDriver {
    isa: Option<Isa>,
}

impl CpuDriver {
    /// The driver, with the best instructions that the processor has.
    pub fn new() -> Self {
        Self::default()
    }

    /// The driver, with instructions of a lower level: for tests and comparisons.
    #[doc(alias = "ggml_backend_cpu_set_use_ref")]
    pub fn with_isa(isa: Isa) -> Self {
        Self { isa: Some(isa) }
    }
}

impl Driver for CpuDriver {
    fn name(&self) -> &str {
        "CPU"
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::new(CpuDevice::new(self.isa.unwrap_or_else(Isa::detect)))]
    }

    fn parameters(&self) -> &[ParameterSpec] {
        const PARAMETERS: &[ParameterSpec] =
            &[ParameterSpec::new("threads", "a number, 0 for automatic")];
        PARAMETERS
    }

    fn select(&self, request: &DeviceRequest<'_>) -> Result<Selected, RegistryError> {
        let mut selected = Selected::new(Arc::clone(request.listed()?));
        selected.options.threads = request.parameters().number("threads")?.unwrap_or(0);
        Ok(selected)
    }
}

/// The machine's processor.
#[doc(alias = "ggml_backend_cpu_init")]
pub struct CpuDevice {
    info: DeviceInfo,
    isa: Isa,
    share_all: bool,
    /// Teams in use, by their number of threads.
    teams: Mutex<HashMap<usize, Weak<Turns<Workers>>>>,
    buffer_types: Vec<Arc<dyn BufferType>>,
}

impl fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuDevice({}, {})", self.info.description, self.isa)
    }
}

impl CpuDevice {
    /// The processor, computing with the instructions of `isa`.
    pub fn new(isa: Isa) -> Self {
        Self {
            info: DeviceInfo {
                name: "CPU".to_owned(),
                description: system::processor_name(),
                id: None,
                kind: DeviceKind::Cpu,
            },
            isa,
            share_all: false,
            teams: Mutex::default(),
            buffer_types: buffer_types(hbm_buffer_type().ok()),
        }
    }
}

impl CpuDevice {
    /// Shares even the smallest step among all threads, which costs time: for tests.
    #[must_use]
    pub fn sharing_every_step(mut self) -> Self {
        self.share_all = true;
        self
    }

    /// Looks for high-bandwidth memory in another directory of node files: see
    /// [`HbmBufferType::find`].
    #[must_use]
    pub fn with_memory_nodes(mut self, directory: &Path) -> Self {
        let found = HbmBufferType::find(directory).ok();
        self.buffer_types = buffer_types(found.map(|found| Arc::new(found) as _));
        self
    }

    /// The team of so many threads, made when nobody has it.
    fn workers(&self, threads: usize) -> Result<Arc<Turns<Workers>>, DeviceError> {
        let new = || {
            let team = Team::new(threads).map_err(|error| DeviceError::Thread {
                device: self.info.name.clone(),
                reason: error.to_string(),
            })?;
            Ok(Arc::new(Turns::new(Workers { team, runner: Runner::default() })))
        };
        if threads == 1 {
            return new();
        }
        let mut teams = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workers) = teams.get(&threads).and_then(Weak::upgrade) {
            return Ok(workers);
        }
        let workers = new()?;
        teams.insert(threads, Arc::downgrade(&workers));
        Ok(workers)
    }
}

/// Plain memory, packed weights, and high-bandwidth memory where there is some.
fn buffer_types(hbm: Option<Arc<dyn BufferType>>) -> Vec<Arc<dyn BufferType>> {
    let mut types = vec![Arc::clone(host_buffer_type()), Arc::clone(packed_buffer_type())];
    types.extend(hbm);
    types
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> MemoryInfo {
        system::memory()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { from_host_memory: true, mapped_files: true, ..Capabilities::default() }
    }

    fn features(&self) -> Vec<(String, String)> {
        let mut features = vec![("kernels".to_owned(), self.isa.to_string())];
        features.extend(feature_names().into_iter().map(|name| (name.to_owned(), "1".to_owned())));
        features
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.buffer_types
    }

    fn weight_buffer_type(&self, layout: &Layout, uses: &[WeightUse]) -> Arc<dyn BufferType> {
        let reads_panels = |weight_use: &WeightUse| {
            let rank = layout.shape().rank();
            match (weight_use.op, weight_use.operand) {
                (OpKind::MulMat | OpKind::GetRows, 0) => rank <= 2,
                (OpKind::Conv1d, 0) => rank == 3,
                (
                    OpKind::MulMat
                    | OpKind::GetRows
                    | OpKind::Conv1d
                    | OpKind::View
                    | OpKind::Attention
                    | OpKind::Binary
                    | OpKind::Copy
                    | OpKind::CopyInto
                    | OpKind::LayerNorm
                    | OpKind::RmsNorm
                    | OpKind::Scale
                    | OpKind::SetRows
                    | OpKind::SoftMax
                    | OpKind::Unary,
                    _,
                ) => false,
            }
        };
        let multiplies = |weight_use: &WeightUse| {
            matches!(weight_use.op, OpKind::MulMat | OpKind::Conv1d) && weight_use.operand == 0
        };
        let pack = PackedMatrix::of(layout).is_some()
            && uses.iter().all(reads_panels)
            && uses.iter().any(multiplies);
        Arc::clone(if pack { packed_buffer_type() } else { host_buffer_type() })
    }

    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        // A view is not computed; its layout is not one that follows from its source.
        if !matches!(case.op, StepOp::Op(Op::View)) {
            let possible = case.op.check_shapes(case.sources, case.dst);
            possible.map_err(|error| Unsupported(error.to_string().into()))?;
        }
        supports(case).map_err(|reason| Unsupported(reason.into()))
    }

    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool {
        buffer_type.is_host() || is_packed(buffer_type)
    }

    fn open(&self, options: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError> {
        let name = self.info.name.clone();
        if options.threads > MAX_THREADS {
            return Err(DeviceError::Option {
                device: name,
                option: "threads",
                value: options.threads.to_string(),
                wanted: format!("at most {MAX_THREADS}, 0 for automatic"),
            });
        }
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        // More threads than processors would wait for each other at every barrier.
        let threads = match options.threads {
            0 => available,
            asked => asked.min(available),
        };
        let workers = self.workers(threads)?;
        let (isa, share_all) = (self.isa, self.share_all);
        Ok(Box::new(CpuBackend { device: name, isa, threads, share_all, workers }))
    }
}

/// Whether each operand lies where the step can read it, and is aligned for its elements.
fn supports(case: &OpCase<'_>) -> Result<(), &'static str> {
    if case.dst.overlaps_itself() && !matches!(case.op, StepOp::Op(Op::View)) {
        return Err("elements of the destination overlap");
    }
    let float = |layout: &Layout| matches!(layout.dtype(), DType::F32 | DType::F16);
    for (index, layout) in case.sources.iter().enumerate() {
        let Some(layout) = layout else { continue };
        if !float(layout) && layout.dtype() != DType::I32 {
            return Err("an operand type without kernels");
        }
        let element = layout.dtype().block_bytes();
        if layout.strides().iter().any(|stride| !stride.is_multiple_of(element)) {
            return Err("strides that are no whole number of elements");
        }
        let is_panels = case.buffer_type(index).is_some_and(is_packed);
        if is_panels && !takes_panels(case.op, index, layout) {
            return Err("packed weights are read as the matrix that they were packed as");
        }
    }
    match case.op {
        StepOp::NormAffine { .. } => Ok(()),
        StepOp::Matrix { activation, .. } => match activation {
            Some(kind) if activation_of(*kind).is_none() => {
                Err("an activation that the matrix kernels do not apply")
            }
            Some(_) | None => Ok(()),
        },
        StepOp::Op(op) => match op {
            Op::View
            | Op::Attention(_)
            | Op::Binary(_)
            | Op::Conv1d(_)
            | Op::Copy(_)
            | Op::CopyInto(_)
            | Op::GetRows(_)
            | Op::LayerNorm(_)
            | Op::MulMat(_)
            | Op::RmsNorm(_)
            | Op::Scale(_)
            | Op::SetRows(_)
            | Op::SoftMax(_)
            | Op::Unary(_) => Ok(()),
        },
    }
}

/// A thread team and the memory that it works in.
#[derive(Debug)]
struct Workers {
    team: Team,
    runner: Runner,
}

/// An opened CPU.
struct CpuBackend {
    device: String,
    isa: Isa,
    threads: usize,
    share_all: bool,
    workers: Arc<Turns<Workers>>,
}

/// A program, and the team of as many threads as it was made for.
#[derive(Debug)]
struct TeamProgram {
    program: CpuProgram,
    threads: usize,
    workers: Arc<Turns<Workers>>,
}

impl Program for TeamProgram {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl CpuBackend {
    /// The team for a program: one's own, unless the program was made for another number of
    /// threads.
    fn workers_for<'a>(&'a self, program: &'a TeamProgram) -> &'a Turns<Workers> {
        if program.threads == self.threads { &self.workers } else { &program.workers }
    }
}

// SAFETY: work is over when `submit` returns; the team is joined before.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Backend for CpuBackend {
    fn name(&self) -> &str {
        &self.device
    }

    fn default_buffer_type(&self) -> &Arc<dyn BufferType> {
        host_buffer_type()
    }

    fn compile(&self, steps: &[Step]) -> Result<Arc<dyn Program>, DeviceError> {
        let (threads, share_all) = (self.threads, self.share_all);
        let program = CpuProgram::compile(&self.device, steps, threads, share_all)?;
        Ok(Arc::new(TeamProgram { program, threads, workers: Arc::clone(&self.workers) }))
    }

    fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        memory: Submission,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError> {
        let foreign = || DeviceError::ForeignProgram { device: self.device.clone() };
        let program = program.as_any().downcast_ref::<TeamProgram>().ok_or_else(foreign)?;
        let turn = self.workers_for(program).take(abort);
        let mut turn = turn.ok_or(DeviceError::Cancelled)?;
        let Workers { team, runner } = &mut *turn;
        runner.run(&self.device, team, self.isa, &program.program, &memory, abort)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        // `submit` returns when the work is done.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_the_team_of_the_number_of_threads_that_it_was_made_for() {
        let device = CpuDevice::new(Isa::scalar());
        let backend = device.open(&BackendOptions { threads: 2 }).unwrap();
        let program = backend.compile(&[]).unwrap();
        drop(backend);
        let threads = program.as_any().downcast_ref::<TeamProgram>().unwrap().threads;
        let has_team = || {
            let teams = device.teams.lock().unwrap();
            teams.get(&threads).is_some_and(|team| team.strong_count() > 0)
        };
        // On a machine of one processor there is no team to share.
        assert_eq!(has_team(), threads > 1);
        drop(program);
        assert!(!has_team());
    }
}
