//! Devices that compute by the oracle, in memory of their own.
//!
//! Their memory is no host memory to the planner, so that copies are needed;
//! what they claim is chosen by the test. They are hostile where the contract
//! allows it: new memory is full of NaN, a destination is filled with NaN
//! before its disjoint sources are read, and padding behind a result is
//! destroyed.

mod backend;
mod memory;

use std::sync::Arc;

use tensoryard_graph::{Layout, OpKind};
use tensoryard_runtime::{
    Backend, BackendOptions, BufferType, Device, DeviceError, DeviceInfo, DeviceKind, DeviceRates,
    MatrixOp, MemoryInfo, OpCase, StepOp, Unsupported, WeightUse, same_buffer_type,
};

pub use memory::ReferenceMemory;

use backend::ReferenceBackend;

/// What a reference device is.
#[derive(Debug, Clone)]
pub struct ReferenceOptions {
    /// Name of the device.
    pub name: String,
    /// Kind of device.
    pub kind: DeviceKind,
    /// Name of its memory; devices that give the same name share it.
    pub memory: String,
    /// Alignment of its memory, a power of two.
    pub alignment: usize,
    /// Size of the largest buffer.
    pub max_size: usize,
    /// Bytes that its memory has.
    pub memory_bytes: usize,
    /// Bytes added to every tensor.
    pub padding: usize,
    /// The ops that it claims.
    pub ops: Vec<OpKind>,
    /// Whether it claims the fused norm.
    pub fuses_norm: bool,
    /// The longest epilogue that it claims, in ops; 0 for none.
    pub epilogue: usize,
    /// Names of other memory that it can compute with.
    pub reads: Vec<String>,
    /// Whether its memory counts as the host's.
    pub host: bool,
    /// The fewest rows of a result for which it takes an op over whose weights lie in host memory.
    pub offloads_from_rows: Option<usize>,
    /// The longest row of a source that it claims.
    pub max_row: usize,
    /// How fast it says that it is.
    pub rates: Option<DeviceRates>,
    /// Changes the values of every step's result, to see whether a test notices.
    pub fault: Option<fn(&StepOp, &mut [f64])>,
}

impl ReferenceOptions {
    /// A device that claims everything, in memory named after it.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: DeviceKind::Accelerator,
            memory: format!("{name} memory"),
            alignment: 32,
            max_size: 1 << 30,
            memory_bytes: 1 << 40,
            padding: 0,
            ops: OpKind::ALL.to_vec(),
            fuses_norm: true,
            epilogue: 3,
            reads: Vec::new(),
            host: false,
            offloads_from_rows: None,
            max_row: usize::MAX,
            rates: None,
            fault: None,
        }
    }

    /// The device.
    pub fn build(self) -> Arc<dyn Device> {
        Arc::new(ReferenceDevice::new(self))
    }
}

/// A device that computes by the oracle.
#[derive(Debug)]
pub struct ReferenceDevice {
    info: DeviceInfo,
    options: Arc<ReferenceOptions>,
    buffer_types: [Arc<dyn BufferType>; 1],
}

impl ReferenceDevice {
    /// The device of these options.
    pub fn new(options: ReferenceOptions) -> Self {
        let info = DeviceInfo {
            name: options.name.clone(),
            description: format!("oracle {}", options.name),
            id: None,
            kind: options.kind,
        };
        let buffer_types: [Arc<dyn BufferType>; 1] =
            [Arc::new(memory::ReferenceBufferType::new(&options))];
        Self { info, options: Arc::new(options), buffer_types }
    }
}

impl Device for ReferenceDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { free: self.options.memory_bytes, total: self.options.memory_bytes }
    }

    fn rates(&self) -> Option<DeviceRates> {
        self.options.rates
    }

    fn features(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.buffer_types
    }

    fn weight_buffer_type(&self, _: &Layout, _: &[WeightUse]) -> Arc<dyn BufferType> {
        Arc::clone(&self.buffer_types[0])
    }

    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        self.options.claims(case.op, case.sources)
    }

    fn wants_offload(&self, case: &OpCase<'_>) -> bool {
        self.options.offloads_from_rows.is_some_and(|rows| case.dst.shape().rows() >= rows)
    }

    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool {
        same_buffer_type(&*self.buffer_types[0], buffer_type)
            || self.options.reads.iter().any(|name| name == buffer_type.name())
    }

    fn open(&self, options: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError> {
        if options.threads > 1 {
            return Err(DeviceError::Option {
                device: self.info.name.clone(),
                option: "threads",
                value: options.threads.to_string(),
                wanted: "0 or 1".to_owned(),
            });
        }
        Ok(Box::new(ReferenceBackend::new(&self.options, &self.buffer_types[0])))
    }
}

impl ReferenceOptions {
    fn claims(&self, op: &StepOp, sources: &[Option<Layout>]) -> Result<(), Unsupported> {
        let lacks = |what: &str| Err(Unsupported(format!("lacks {what}").into()));
        let kind = match op {
            StepOp::Op(op) => op.kind(),
            StepOp::NormAffine { .. } if !self.fuses_norm => return lacks("the fused norm"),
            StepOp::NormAffine { .. } => OpKind::LayerNorm,
            StepOp::Matrix { base, activation } => {
                let present = |operand: usize| sources.get(operand).copied().flatten().is_some();
                let length = usize::from(present(2))
                    + usize::from(present(3))
                    + usize::from(activation.is_some());
                if length > self.epilogue {
                    return lacks("so long an epilogue");
                }
                match base {
                    MatrixOp::MulMat(_) => OpKind::MulMat,
                    MatrixOp::Conv1d(_) => OpKind::Conv1d,
                }
            }
        };
        let longest = sources.iter().flatten().map(|source| source.shape()[0]).max();
        if longest.is_some_and(|row| row > self.max_row) {
            return Err(Unsupported(format!("rows beyond {}", self.max_row).into()));
        }
        if self.ops.contains(&kind) { Ok(()) } else { lacks(kind.name()) }
    }
}
