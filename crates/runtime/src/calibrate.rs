//! Measures how fast a device is, by running small graphs on it.
//!
//! Everything goes the way that programs go: weights loaded, graphs planned, compiled and run.
//! Every figure is the median of a few runs after one that warms up, and the time spent is
//! bounded. What a device does not run is left without cost, since nothing of it will be placed
//! there. The figures describe a quiet machine: what else runs is measured with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, GraphBuilder, Layout, Origin};

use crate::plan::PlanDevice;
use crate::rates::{Work, WorkClass};
use crate::{
    AbortSignal, Backend, BackendOptions, Device, DeviceRates, Plan, PlanError, PlanOptions,
    RunError, SharedBytes, State, WeightError, WeightSource, Weights, Workspace, exec, plan,
};

/// How a device is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalibrateOptions {
    /// How the device is opened.
    pub backend: BackendOptions,
    /// Time to spend, about.
    pub budget: Duration,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self { backend: BackendOptions::default(), budget: Duration::from_millis(700) }
    }
}

/// A device could not be measured.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// Memory for the weights failed.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Kinds of measurements that share the time.
const PARTS: u32 = 8;
/// Runs of one measurement, at the most and at the least.
const MAX_SAMPLES: usize = 15;
const MIN_SAMPLES: usize = 3;
/// Columns that matrix products are measured with.
const COLUMNS: usize = 64;
/// Elements that are streamed, f32; more than caches hold.
const STREAMED: usize = 4 << 20;
/// Ops in a chain of tiny ones.
const CHAIN: usize = 64;
/// Bytes of a long transfer.
const TRANSFERRED: usize = 8 << 20;

/// Measures a device.
///
/// # Errors
/// A device that cannot be opened or fails, memory that cannot be had.
pub fn calibrate(
    device: &Arc<dyn Device>,
    options: &CalibrateOptions,
) -> Result<DeviceRates, CalibrateError> {
    let backend = device.open(&options.backend).map_err(RunError::from)?;
    let part = options.budget / PARTS;
    let mut bench = Bench { device, backends: [backend], part };
    let mut rates = DeviceRates::UNLIMITED;

    // One op and many: what an op adds, and what is left for the split.
    if let (Some(one), Some(many)) = (bench.chain_ns(1)?, bench.chain_ns(CHAIN)?) {
        rates.op_overhead_ns = ((many - one) / (CHAIN - 1) as f64).max(0.0);
        rates.split_overhead_ns = (one - rates.op_overhead_ns).max(0.0);
    }
    let fixed = rates.op_overhead_ns + rates.split_overhead_ns;

    let f32_rate = bench.matrix(DType::F32, fixed)?;
    let f16_rate = bench.matrix(DType::F16, fixed)?;
    let quantised = bench.matrix(DType::Q8_0, fixed)?;
    rates.matrix_f32_flops_per_s = f32_rate.unwrap_or(f64::INFINITY);
    rates.matrix_f16_flops_per_s = f16_rate.or(f32_rate).unwrap_or(f64::INFINITY);
    rates.matrix_quantised_flops_per_s =
        quantised.or(f16_rate).or(f32_rate).unwrap_or(f64::INFINITY);
    rates.other_flops_per_s = bench.arithmetic(fixed)?.unwrap_or(f64::INFINITY);
    rates.memory_bytes_per_s = bench.stream(fixed)?.unwrap_or(f64::INFINITY);
    bench.transfers(&mut rates)?;
    Ok(rates)
}

/// A device under measurement.
struct Bench<'a> {
    device: &'a Arc<dyn Device>,
    backends: [Box<dyn Backend>; 1],
    part: Duration,
}

/// Weights of zeros.
struct Zeros<'a>(&'a Graph);

impl WeightSource for Zeros<'_> {
    fn layout(&self, name: &str) -> Option<Layout> {
        self.0.leaf(name).map(|id| *self.0.layout(id))
    }

    fn read(&self, name: &str) -> Result<SharedBytes, String> {
        let layout = self.layout(name).ok_or("there is no such weight")?;
        let bytes = vec![0u8; layout.data_bytes()];
        let range = 0..bytes.len();
        SharedBytes::new(Arc::new(bytes), range).map_err(|error| error.to_string())
    }
}

impl Bench<'_> {
    /// Median nanoseconds of a run of the graph, with the work of its steps; `None` when the
    /// device does not run it.
    fn run(&mut self, graph: GraphBuilder) -> Result<Option<(f64, Work)>, CalibrateError> {
        // Inputs would be copied in each run: what the graphs read is state.
        let Ok(graph) = graph.finish() else { return Ok(None) };
        let graph = Arc::new(graph);
        let weights = Weights::load_on(&Zeros(&graph), &[&graph], &**self.device, |_, _| true)?;
        let mut state = State::create_on(&[&graph], &**self.device)?;
        let buffer_type = Arc::clone(&self.device.buffer_types()[0]);
        let devices = [PlanDevice { device: Arc::clone(self.device), buffer_type }];
        let options = PlanOptions::default();
        let plan = match plan::plan(&graph, &devices, &self.backends, &weights, &state, &options) {
            Ok(plan) => plan,
            Err(PlanError::Unsupported { .. } | PlanError::Fixed { .. }) => return Ok(None),
            Err(error) => return Err(RunError::from(error).into()),
        };
        let mut workspace = Workspace::new();
        let abort = AbortSignal::new();
        let time = sample(self.part, || {
            exec::run(&plan, &mut self.backends, &weights, &mut state, &mut workspace, &[], &abort)
        })?;
        Ok(Some((time, work_of(&plan))))
    }

    /// Nanoseconds of a chain of tiny ops.
    fn chain_ns(&mut self, length: usize) -> Result<Option<f64>, CalibrateError> {
        let g = GraphBuilder::new("tiny ops");
        let mut y = g.state("x", DType::F32, [4]);
        for _ in 0..length {
            y = y.scale(1.0, 1.0);
        }
        y.output("y");
        Ok(self.run(g)?.map(|(time, _)| time))
    }

    /// Operations a second of products with a square matrix, the largest that is quick.
    fn matrix(&mut self, dtype: DType, fixed_ns: f64) -> Result<Option<f64>, CalibrateError> {
        let enough = self.part.as_nanos() as f64 / 16.0;
        let mut rate = None;
        for size in [256, 512, 1024] {
            let g = GraphBuilder::new("matrix product");
            let x = g.state("x", DType::F32, [size, COLUMNS]);
            g.weight("w", dtype, [size, size]).mul_mat(x).output("y");
            let Some((time, work)) = self.run(g)? else { break };
            rate = Some(per_second(work.flops, time - fixed_ns));
            if time > enough {
                break;
            }
        }
        Ok(rate)
    }

    /// Operations a second of arithmetic that memory does not hold up.
    fn arithmetic(&mut self, fixed_ns: f64) -> Result<Option<f64>, CalibrateError> {
        let g = GraphBuilder::new("arithmetic");
        g.state("x", DType::F32, [256, 64]).unary(UnaryKind::Silu).output("y");
        Ok(self.run(g)?.map(|(time, work)| per_second(work.flops, time - fixed_ns)))
    }

    /// Bytes a second of arithmetic that is nothing but memory.
    fn stream(&mut self, fixed_ns: f64) -> Result<Option<f64>, CalibrateError> {
        // A small device is not filled up.
        let free = self.device.memory().free / 4;
        let elements = if free > 0 { STREAMED.min(free / 16) } else { STREAMED };
        let rows = (elements / 1024).max(1);
        let g = GraphBuilder::new("stream");
        let a = g.state("a", DType::F32, [1024, rows]);
        let b = g.state("b", DType::F32, [1024, rows]);
        a.add(b).output("y");
        Ok(self.run(g)?.map(|(time, work)| per_second(work.bytes, time - fixed_ns)))
    }

    /// Transfers to and from the device, by setting and getting tensors.
    fn transfers(&mut self, rates: &mut DeviceRates) -> Result<(), CalibrateError> {
        let free = self.device.memory().free / 4;
        let long = if free > 0 { TRANSFERRED.min(free) } else { TRANSFERRED };
        let g = GraphBuilder::new("transfers");
        let short = g.state("short", DType::F32, [1]);
        let long = g.state("long", DType::F32, [(long / 4).max(1)]);
        short.scale(1.0, 0.0).output("y");
        long.scale(1.0, 0.0).output("z");
        let Ok(graph) = g.finish() else { return Ok(()) };
        let mut state = State::create_on(&[&graph], &**self.device)?;
        let bytes: usize =
            graph.live_leaves(Origin::State).map(|id| graph.layout(id).data_bytes()).sum();
        let bytes = bytes - 4;
        let (small, large) = (vec![0u8; 4], vec![0u8; bytes]);
        let part = self.part / 2;
        let set_short = sample(part / 2, || state.write("short", &small))?;
        let get_short = sample(part / 2, || state.read("short").map(|_| ()))?;
        let set_long = sample(part, || state.write("long", &large))?;
        let get_long = sample(part, || state.read("long").map(|_| ()))?;
        rates.transfer_latency_ns = set_short.min(get_short);
        rates.to_device_bytes_per_s = per_second(bytes as f64, set_long - set_short);
        rates.from_device_bytes_per_s = per_second(bytes as f64, get_long - get_short);
        Ok(())
    }
}

/// The work of all steps of a plan of one step.
fn work_of(plan: &Plan) -> Work {
    let steps = (0..plan.operations.len()).filter_map(|number| plan.step(number).ok());
    let none = Work { class: WorkClass::Other, flops: 0.0, bytes: 0.0 };
    steps.map(|step| Work::of_step(&step)).fold(none, |sum, work| Work {
        class: work.class,
        flops: sum.flops + work.flops,
        bytes: sum.bytes + work.bytes,
    })
}

/// So much in so many nanoseconds, as a rate. A time too short to be measured counts as one.
fn per_second(amount: f64, ns: f64) -> f64 {
    amount * 1e9 / ns.max(1.0)
}

/// Median nanoseconds of what is run over and over for about the time given.
fn sample(
    time: Duration,
    mut run: impl FnMut() -> Result<(), RunError>,
) -> Result<f64, CalibrateError> {
    run()?;
    let begin = Instant::now();
    let mut samples: Vec<f64> = Vec::with_capacity(MAX_SAMPLES);
    while samples.len() < MIN_SAMPLES || (samples.len() < MAX_SAMPLES && begin.elapsed() < time) {
        let start = Instant::now();
        run()?;
        samples.push(start.elapsed().as_nanos() as f64);
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}
