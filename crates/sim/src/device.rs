//! A simulated device.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tensoryard_graph::ops::{BinaryKind, UnaryKind};
use tensoryard_graph::{Layout, Op, OpKind};
use tensoryard_runtime::{
    Backend, BackendOptions, BufferType, Capabilities, Device, DeviceError, DeviceInfo, DeviceKind,
    DeviceRates, MatrixOp, MemoryInfo, OpCase, StepOp, Unsupported, WeightUse, same_buffer_type,
};

use crate::clock::{BusyTime, SimClock};
use crate::faults::{Fate, Faults, SimCounts};
use crate::options::{Shares, SimOptions};
use crate::pool::{PinnedBufferType, Pool, SimBufferType};
use crate::queue::SimBackend;

/// The memories of a driver's devices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pools(Arc<Mutex<Vec<Weak<Pool>>>>);

impl Pools {
    fn add(&self, pool: &Arc<Pool>) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    fn contain(&self, kind: &dyn BufferType) -> bool {
        let pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().filter_map(Weak::upgrade).any(|pool| pool.name() == kind.name())
    }
}

/// What a device, its queues and its programs have in common.
pub(crate) struct Core {
    pub info: DeviceInfo,
    pub options: SimOptions,
    /// The device that computes.
    pub host: Arc<dyn Device>,
    /// Its memory, or that of the device that it shares it with; none if that is the host.
    pub pool: Option<Arc<Pool>>,
    /// The kinds of memory that it offers, that of `pool` first.
    pub buffer_types: Vec<Arc<dyn BufferType>>,
    pub pools: Pools,
    pub fate: Arc<Fate>,
    pub clock: SimClock,
    /// The device's place in the clock.
    pub number: usize,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.info.name)
    }
}

impl Core {
    /// Whether the device computes in a kind of memory.
    pub fn uses(&self, kind: &dyn BufferType) -> bool {
        same_buffer_type(&*self.buffer_types[0], kind)
            || (self.pool.is_none() || self.options.reads_host)
                && self.host.supports_buffer_type(kind)
    }

    /// Whether its queues copy between kinds of memory.
    pub fn copies(&self, from: &dyn BufferType, to: &dyn BufferType) -> bool {
        let reads = |kind| self.pools.contain(kind) || self.host.supports_buffer_type(kind);
        let writes = |kind: &dyn BufferType| self.pools.contain(kind) || kind.is_host();
        !self.options.slow_copies && reads(from) && writes(to)
    }

    /// Whether the device runs an op: one that it was told to run, and the host device runs.
    pub fn claims(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        let lacks = |what: &str| Err(Unsupported(format!("lacks {what}").into()));
        if let Some(missing) = parts(case).find(|part| !part.is_in(&self.options)) {
            return lacks(missing.name());
        }
        let longest = case.sources.iter().flatten().map(|source| source.shape()[0]).max();
        if longest.is_some_and(|row| row > self.options.max_row) {
            return lacks(&format!("rows beyond {}", self.options.max_row));
        }
        let own = &self.buffer_types[0];
        let inner = &*self.host.buffer_types()[0];
        let mut kinds: Vec<Option<&dyn BufferType>> = case.buffer_types.to_vec();
        for kind in kinds.iter_mut().flatten() {
            if same_buffer_type(&**own, *kind) {
                *kind = inner;
            }
        }
        self.host.supports_op(&OpCase { buffer_types: &kinds, ..*case })
    }
}

/// An op, or which arithmetic or function.
#[derive(Debug, Clone, Copy)]
enum Part {
    Op(OpKind),
    Binary(BinaryKind),
    Unary(UnaryKind),
}

impl Part {
    fn is_in(self, options: &SimOptions) -> bool {
        match self {
            Part::Op(kind) => options.ops.contains(&kind),
            Part::Binary(kind) => {
                options.ops.contains(&OpKind::Binary) && options.binary.contains(&kind)
            }
            Part::Unary(kind) => {
                options.ops.contains(&OpKind::Unary) && options.unary.contains(&kind)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Part::Op(kind) => kind.name(),
            Part::Binary(kind) => kind.name(),
            Part::Unary(kind) => kind.name(),
        }
    }

    /// Every one.
    fn all() -> impl Iterator<Item = Part> {
        let is_whole = |kind: &&OpKind| !matches!(kind, OpKind::Binary | OpKind::Unary);
        let ops = OpKind::ALL.iter().filter(is_whole).map(|&kind| Part::Op(kind));
        let binary = BinaryKind::ALL.iter().map(|&kind| Part::Binary(kind));
        ops.chain(binary).chain(UnaryKind::ALL.iter().map(|&kind| Part::Unary(kind)))
    }
}

/// The ops that a step stands for.
fn parts(case: &OpCase<'_>) -> impl Iterator<Item = Part> {
    let present = |operand: usize| case.sources.get(operand).is_some_and(Option::is_some);
    let (add, mul) = (Part::Binary(BinaryKind::Add), Part::Binary(BinaryKind::Mul));
    let parts = match case.op {
        StepOp::Op(Op::Binary(op)) => [Some(Part::Binary(op.kind)), None, None],
        StepOp::Op(Op::Unary(op)) => [Some(Part::Unary(op.kind)), None, None],
        StepOp::Op(op) => [Some(Part::Op(op.kind())), None, None],
        StepOp::NormAffine { .. } => [Some(Part::Op(OpKind::LayerNorm)), Some(mul), Some(add)],
        StepOp::Matrix { base, activation } => {
            let base = match base {
                MatrixOp::MulMat(_) => OpKind::MulMat,
                MatrixOp::Conv1d(_) => OpKind::Conv1d,
            };
            let adds = present(2) || present(3);
            [Some(Part::Op(base)), adds.then_some(add), activation.map(Part::Unary)]
        }
    };
    parts.into_iter().flatten()
}

/// A device that computes through the host and behaves as it was told to.
#[derive(Debug)]
pub struct SimDevice(Arc<Core>);

impl SimDevice {
    /// The device of these options, which were checked. `shared` is the device whose memory it
    /// shares.
    pub(crate) fn new(
        mut options: SimOptions,
        host: &Arc<dyn Device>,
        shared: Option<&SimDevice>,
        pools: &Pools,
        clock: &SimClock,
    ) -> Self {
        let fate = Arc::new(Fate::new(&options.name, options.faults));
        let pinned: Arc<dyn BufferType> = Arc::new(PinnedBufferType);
        let (pool, mut buffer_types) = match (&options.shares, shared) {
            (Shares::Host, _) => (None, host.buffer_types().to_vec()),
            (Shares::Own | Shares::Device(_), Some(shared)) => {
                (shared.0.pool.clone(), vec![Arc::clone(&shared.0.buffer_types[0])])
            }
            (Shares::Own | Shares::Device(_), None) => {
                let pool = Arc::new(Pool::new(&options.name, &options, &fate));
                let kind: Arc<dyn BufferType> = Arc::new(SimBufferType(Arc::clone(&pool)));
                pools.add(&pool);
                (Some(pool), vec![kind])
            }
        };
        if let Some(pool) = &pool {
            // What a transfer costs follows from the memory.
            let rates = pool.rates();
            options.rates.to_device_bytes_per_s = rates.to_device_bytes_per_s;
            options.rates.from_device_bytes_per_s = rates.from_device_bytes_per_s;
            options.rates.transfer_latency_ns = rates.transfer_latency_ns;
        }
        buffer_types.push(pinned);
        let description =
            format!("simulated {}, computing on {}", options.kind.name(), host.info().name);
        let info =
            DeviceInfo { name: options.name.clone(), description, id: None, kind: options.kind };
        Self(Arc::new(Core {
            info,
            options,
            host: Arc::clone(host),
            pool,
            buffer_types,
            pools: pools.clone(),
            fate,
            clock: clock.clone(),
            number: clock.add_device(),
        }))
    }

    /// What the device is.
    pub fn options(&self) -> &SimOptions {
        &self.0.options
    }

    /// Sets what goes wrong from now on.
    pub fn inject(&self, faults: Faults) {
        self.0.fate.inject(faults);
    }

    /// Loses the device now.
    pub fn lose(&self, reason: &str) {
        self.0.fate.lose(reason);
    }

    /// What it has done in its life.
    pub fn counts(&self) -> SimCounts {
        self.0.fate.counts()
    }

    /// The virtual time of the devices of its driver.
    pub fn clock(&self) -> &SimClock {
        &self.0.clock
    }

    /// Virtual nanoseconds from the last reset of the clock to the end of its latest work.
    pub fn clock_ns(&self) -> u64 {
        self.0.clock.device_ns(self.0.number)
    }

    /// What has kept it busy in virtual time since the last reset of the clock.
    pub fn busy(&self) -> BusyTime {
        self.0.clock.busy(self.0.number)
    }

    /// Begins virtual time anew, for all devices of its driver.
    pub fn reset_clock(&self) {
        self.0.clock.reset();
    }
}

impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn memory(&self) -> MemoryInfo {
        let MemoryInfo { free, total } = match &self.0.pool {
            Some(pool) => MemoryInfo { free: pool.free(), total: pool.capacity() },
            None => {
                let (host, cap) = (self.0.host.memory(), self.0.options.memory);
                MemoryInfo { free: host.free.min(cap), total: host.total.min(cap) }
            }
        };
        MemoryInfo { free: if self.0.fate.check().is_ok() { free } else { 0 }, total }
    }

    fn capabilities(&self) -> Capabilities {
        let is_host = self.0.pool.is_none();
        Capabilities {
            asynchronous: self.0.options.asynchronous,
            host_buffers: true,
            from_host_memory: is_host || self.0.options.reads_host,
            events: self.0.options.asynchronous,
            mapped_files: is_host || self.0.options.reads_host,
        }
    }

    fn rates(&self) -> Option<DeviceRates> {
        Some(self.0.options.rates)
    }

    fn features(&self) -> Vec<(String, String)> {
        let options = &self.0.options;
        let lacks: Vec<&str> =
            Part::all().filter(|part| !part.is_in(options)).map(Part::name).collect();
        let shares = match &options.shares {
            Shares::Own => "own".to_owned(),
            Shares::Host => "host".to_owned(),
            Shares::Device(name) => name.clone(),
        };
        let pair = |name: &str, value: String| (name.to_owned(), value);
        vec![
            pair("simulated", "1".to_owned()),
            pair("memory", shares),
            pair("lacks", if lacks.is_empty() { "nothing".to_owned() } else { lacks.join("+") }),
        ]
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.0.buffer_types
    }

    fn weight_buffer_type(&self, layout: &Layout, uses: &[WeightUse]) -> Arc<dyn BufferType> {
        match self.0.pool {
            Some(_) => Arc::clone(&self.0.buffer_types[0]),
            None => self.0.host.weight_buffer_type(layout, uses),
        }
    }

    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        self.0.claims(case)
    }

    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool {
        self.0.uses(buffer_type)
    }

    fn open(&self, options: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError> {
        self.0.fate.check()?;
        let is_cpu = self.0.info.kind == DeviceKind::Cpu;
        if options.threads > 0 && !is_cpu {
            return Err(DeviceError::Option {
                device: self.0.info.name.clone(),
                option: "threads",
                value: options.threads.to_string(),
                wanted: "0: it simulates no CPU".to_owned(),
            });
        }
        // One thread computes on the queue's own, so that devices really work at once.
        let threads = match self.0.host.info().kind {
            DeviceKind::Cpu if is_cpu => options.threads,
            DeviceKind::Cpu => 1,
            DeviceKind::Gpu | DeviceKind::IntegratedGpu | DeviceKind::Accelerator => 0,
        };
        let open = || self.0.host.open(&BackendOptions { threads });
        Ok(Box::new(SimBackend::open(&self.0, [open()?, open()?])?))
    }
}
