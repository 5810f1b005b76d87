//! Drivers, devices opened and planned for, and steps made by hand.

use std::sync::Arc;

use tensoryard_conformance::data::MemoryWeights;
use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_graph::{DType, Graph, Layout, Op, Shape};
use tensoryard_runtime::plan::verify::verify;
use tensoryard_runtime::{
    AbortSignal, Aliasing, Backend, BackendOptions, Buffer, BufferType, Device, DeviceError,
    DeviceInfo, Input, MemoryInfo, OpCase, Operand, Plan, PlanDevice, PlanOptions, Program, Region,
    RunError, RunOptions, State, Step, StepOp, Submission, Ticket, Unsupported, Usage, WeightUse,
    Weights, Workspace, exec, plan,
};
use tensoryard_sim::{SimDevice, SimDriver, SimOptions};

/// The device that computes in all of these tests.
pub fn cpu() -> Arc<dyn Device> {
    Arc::new(CpuDevice::new(Isa::detect()))
}

pub fn driver() -> SimDriver {
    SimDriver::new(cpu())
}

pub fn sim(options: SimOptions) -> Arc<SimDevice> {
    driver().device(options).unwrap()
}

/// Opened devices with weights and state.
pub struct Bench {
    pub devices: Vec<PlanDevice>,
    pub backends: Vec<Box<dyn Backend>>,
    pub weights: Weights,
    pub state: State,
    pub workspace: Workspace,
}

impl Bench {
    /// Weights on the device numbered `weights`, state on the one numbered `state`.
    pub fn open(
        graph: &Graph,
        devices: &[Arc<dyn Device>],
        source: &MemoryWeights,
        weights: usize,
        state: usize,
    ) -> Self {
        let open = |device: &Arc<dyn Device>| device.open(&BackendOptions::default()).unwrap();
        let planned = |device: &Arc<dyn Device>| PlanDevice {
            device: Arc::clone(device),
            buffer_type: Arc::clone(&device.buffer_types()[0]),
        };
        Self {
            backends: devices.iter().map(open).collect(),
            weights: Weights::load_on(source, &[graph], &*devices[weights], |_, _| true).unwrap(),
            state: State::create_on(&[graph], &*devices[state]).unwrap(),
            workspace: Workspace::new(),
            devices: devices.iter().map(planned).collect(),
        }
    }

    /// The plan, verified.
    pub fn plan(&self, graph: &Arc<Graph>, options: &PlanOptions) -> Plan {
        let plan =
            plan::plan(graph, &self.devices, &self.backends, &self.weights, &self.state, options)
                .unwrap();
        if let Err(violations) = verify(&plan) {
            panic!("{}\n{}\n{violations:#?}", graph.dump(), plan.dump());
        }
        plan
    }

    pub fn submit(
        &mut self,
        plan: &Plan,
        inputs: &[Input<'_>],
        abort: &AbortSignal,
    ) -> Result<Ticket, RunError> {
        let Self { backends, weights, state, workspace, .. } = self;
        let mut options = RunOptions { abort: abort.clone(), ..RunOptions::default() };
        exec::submit(plan, backends, weights, state, workspace, inputs, &mut options)
    }

    pub fn run(&mut self, plan: &Plan, inputs: &[Input<'_>]) -> Result<(), RunError> {
        let Self { backends, weights, state, workspace, .. } = self;
        exec::run(plan, backends, weights, state, workspace, inputs, &AbortSignal::new())
    }

    pub fn output(&self, plan: &Plan, name: &str) -> Result<Vec<f32>, RunError> {
        let mut values = Vec::new();
        let Self { weights, state, workspace, .. } = self;
        exec::read_output(plan, name, DType::F32, weights, state, workspace, &mut values)?;
        Ok(values)
    }
}

/// f32 of one dimension.
pub fn row(elements: usize) -> Layout {
    Layout::contiguous(DType::F32, Shape::new(&[elements]).unwrap()).unwrap()
}

/// An operand at the start of a chunk.
pub fn operand(device: &dyn Device, chunk: u32, layout: Layout) -> Operand {
    Operand {
        region: Region::Chunk(chunk),
        offset_bytes: 0,
        layout,
        buffer_type: Arc::clone(&device.buffer_types()[0]),
        aliasing: Aliasing::Disjoint,
    }
}

/// `chunk to = op(chunk from)` over rows of f32.
pub fn step(device: &dyn Device, op: impl Into<Op>, from: u32, to: u32, elements: usize) -> Step {
    let (source, dst) = (operand(device, from, row(elements)), operand(device, to, row(elements)));
    Step { name: format!("{to}"), op: StepOp::Op(op.into()), dst, sources: vec![Some(source)] }
}

/// Memory of a device with these values.
pub fn buffer(device: &dyn Device, values: &[f32]) -> Buffer {
    let layout = row(values.len());
    let kind = &device.buffer_types()[0];
    let mut buffer = Buffer::allocate(kind, kind.tensor_bytes(&layout), Usage::Any).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    buffer.memory_mut().write_tensor(0, &layout, &bytes).unwrap();
    buffer
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

/// What lies in a buffer.
pub fn values(buffer: &Buffer, elements: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * elements];
    buffer.memory().read_tensor(0, &row(elements), &mut bytes).unwrap();
    floats(&bytes)
}

/// A device whose host panics in every run.
pub fn panicking() -> Arc<SimDevice> {
    let host = Arc::new(Panicking { inner: cpu() });
    SimDriver::new(host).device(SimOptions::named("A")).unwrap()
}

#[derive(Debug)]
struct Panicking {
    inner: Arc<dyn Device>,
}

struct PanickingBackend(Box<dyn Backend>);

impl Device for Panicking {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn memory(&self) -> MemoryInfo {
        self.inner.memory()
    }

    fn features(&self) -> Vec<(String, String)> {
        self.inner.features()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        self.inner.buffer_types()
    }

    fn weight_buffer_type(&self, layout: &Layout, uses: &[WeightUse]) -> Arc<dyn BufferType> {
        self.inner.weight_buffer_type(layout, uses)
    }

    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        self.inner.supports_op(case)
    }

    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool {
        self.inner.supports_buffer_type(buffer_type)
    }

    fn open(&self, options: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError> {
        Ok(Box::new(PanickingBackend(self.inner.open(options)?)))
    }
}

// SAFETY: it never begins any work.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Backend for PanickingBackend {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn default_buffer_type(&self) -> &Arc<dyn BufferType> {
        self.0.default_buffer_type()
    }

    fn compile(&self, steps: &[Step]) -> Result<Arc<dyn Program>, DeviceError> {
        self.0.compile(steps)
    }

    fn submit(
        &mut self,
        _: &Arc<dyn Program>,
        _: Submission,
        _: &AbortSignal,
    ) -> Result<(), DeviceError> {
        panic!("a kernel of the test")
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.0.synchronize()
    }
}
