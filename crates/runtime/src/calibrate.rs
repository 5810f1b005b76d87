//! Measures how fast a device is, by running small graphs on it.
//!
//! Everything goes the way that programs go: weights loaded, graphs planned, compiled and run.
//! The runs are made in rounds, so that those of one kind are spread over the whole time, and
//! every figure is that of the best round: what else runs on the machine only makes runs longer.
//! How far the rounds are apart tells how busy it was. What a device does not run is left without
//! cost, since nothing of it will be placed there.

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

/// A device as it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// The rates.
    pub rates: DeviceRates,
    /// How much longer than the best the median round took, at the worst: 1 on a machine that is
    /// quiet, more on one that is busy.
    pub spread: f64,
}

/// Kinds of measurements that share the time.
const PARTS: u32 = 10;
/// Rounds of measurements.
const ROUNDS: u32 = 7;
/// Nanoseconds below which times differ on a quiet machine, too.
const STEADY_NS: f64 = 50_000.0;
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
) -> Result<Calibration, CalibrateError> {
    let backend = device.open(&options.backend).map_err(RunError::from)?;
    let slice = options.budget / PARTS / ROUNDS;
    let mut bench = Bench { device, backends: [backend], slice };
    let mut one = bench.chain(1)?;
    let mut many = bench.chain(CHAIN)?;
    let mut f32_product = bench.matrix(DType::F32)?;
    let mut f16_product = bench.matrix(DType::F16)?;
    let mut quantised_product = bench.matrix(DType::Q8_0)?;
    let mut arithmetic = bench.arithmetic()?;
    let mut stream = bench.stream()?;
    let mut transfers = bench.transfers()?;
    for _ in 0..ROUNDS {
        let tasks = [
            &mut one,
            &mut many,
            &mut f32_product,
            &mut f16_product,
            &mut quantised_product,
            &mut arithmetic,
            &mut stream,
        ];
        for task in tasks.into_iter().flatten() {
            bench.round(task)?;
        }
        if let Some(transfers) = &mut transfers {
            transfers.round(slice)?;
        }
    }

    let mut rates = DeviceRates::UNLIMITED;
    // One op and many: what an op adds, and what is left for the split.
    if let (Some(one), Some(many)) = (&one, &many) {
        let (one, many) = (one.times.best(), many.times.best());
        rates.op_overhead_ns = ((many - one) / (CHAIN - 1) as f64).max(0.0);
        rates.split_overhead_ns = (one - rates.op_overhead_ns).max(0.0);
    }
    let fixed = rates.op_overhead_ns + rates.split_overhead_ns;
    let flops = |task: &Option<Task>| {
        task.as_ref().map(|task| per_second(task.work.flops, task.times.best() - fixed))
    };
    let f32_rate = flops(&f32_product);
    let f16_rate = flops(&f16_product).or(f32_rate);
    let quantised = flops(&quantised_product).or(f16_rate);
    rates.matrix_f32_flops_per_s = f32_rate.unwrap_or(f64::INFINITY);
    rates.matrix_f16_flops_per_s = f16_rate.unwrap_or(f64::INFINITY);
    rates.matrix_quantised_flops_per_s = quantised.unwrap_or(f64::INFINITY);
    rates.other_flops_per_s = flops(&arithmetic).unwrap_or(f64::INFINITY);
    if let Some(task) = &stream {
        rates.memory_bytes_per_s = per_second(task.work.bytes, task.times.best() - fixed);
    }
    if let Some(transfers) = &transfers {
        transfers.put_into(&mut rates);
    }
    let tasks = [one, many, f32_product, f16_product, quantised_product, arithmetic, stream];
    let spread = tasks.iter().flatten().map(|task| task.times.spread()).fold(1.0, f64::max);
    Ok(Calibration { rates, spread })
}

/// The best nanoseconds of each round.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn best(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The median round as a multiple of the best.
    fn spread(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match (sorted.first(), sorted.get(sorted.len() / 2)) {
            (Some(&best), Some(&median)) if best >= STEADY_NS => median / best,
            _ => 1.0,
        }
    }
}

/// A graph that is run over and over.
struct Task {
    plan: Plan,
    weights: Weights,
    state: State,
    workspace: Workspace,
    work: Work,
    times: Times,
}

/// Setting and getting tensors, a short and a long one.
struct Transfers {
    state: State,
    bytes: usize,
    set_short: Times,
    get_short: Times,
    set_long: Times,
    get_long: Times,
}

impl Transfers {
    fn round(&mut self, slice: Duration) -> Result<(), CalibrateError> {
        let (small, large) = (vec![0u8; 4], vec![0u8; self.bytes]);
        let state = &mut self.state;
        self.set_short.0.push(sample(slice / 2, || state.write("short", &small))?);
        self.get_short.0.push(sample(slice / 2, || state.read("short").map(|_| ()))?);
        self.set_long.0.push(sample(slice, || state.write("long", &large))?);
        self.get_long.0.push(sample(slice, || state.read("long").map(|_| ()))?);
        Ok(())
    }

    fn put_into(&self, rates: &mut DeviceRates) {
        let (set, get) = (self.set_short.best(), self.get_short.best());
        let bytes = self.bytes as f64;
        rates.transfer_latency_ns = set.min(get);
        rates.to_device_bytes_per_s = per_second(bytes, self.set_long.best() - set);
        rates.from_device_bytes_per_s = per_second(bytes, self.get_long.best() - get);
    }
}

/// A device under measurement.
struct Bench<'a> {
    device: &'a Arc<dyn Device>,
    backends: [Box<dyn Backend>; 1],
    slice: Duration,
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
    /// A graph made ready; `None` when the device does not run it.
    fn task(&self, graph: GraphBuilder) -> Result<Option<Task>, CalibrateError> {
        // Inputs would be copied in each run: what the graphs read is state.
        let Ok(graph) = graph.finish() else { return Ok(None) };
        let graph = Arc::new(graph);
        let weights = Weights::load_on(&Zeros(&graph), &[&graph], &**self.device, |_, _| true)?;
        let state = State::create_on(&[&graph], &**self.device)?;
        let buffer_type = Arc::clone(&self.device.buffer_types()[0]);
        let devices = [PlanDevice { device: Arc::clone(self.device), buffer_type }];
        let options = PlanOptions::default();
        let plan = match plan::plan(&graph, &devices, &self.backends, &weights, &state, &options) {
            Ok(plan) => plan,
            Err(PlanError::Unsupported { .. } | PlanError::Fixed { .. }) => return Ok(None),
            Err(error) => return Err(RunError::from(error).into()),
        };
        let (work, workspace) = (work_of(&plan), Workspace::new());
        Ok(Some(Task { plan, weights, state, workspace, work, times: Times::default() }))
    }

    /// Runs a task for its share of a round.
    fn round(&mut self, task: &mut Task) -> Result<(), CalibrateError> {
        let Task { plan, weights, state, workspace, work: _, times } = task;
        let abort = AbortSignal::new();
        times.0.push(sample(self.slice, || {
            exec::run(plan, &mut self.backends, weights, state, workspace, &[], &abort)
        })?);
        Ok(())
    }

    /// A chain of tiny ops.
    fn chain(&self, length: usize) -> Result<Option<Task>, CalibrateError> {
        let g = GraphBuilder::new("tiny ops");
        let mut y = g.state("x", DType::F32, [4]);
        for _ in 0..length {
            y = y.scale(1.0, 1.0);
        }
        y.output("y");
        self.task(g)
    }

    /// The product with a square matrix, the largest that is quick.
    fn matrix(&mut self, dtype: DType) -> Result<Option<Task>, CalibrateError> {
        let enough = self.slice.as_nanos() as f64 / 4.0;
        let mut largest = None;
        for size in [256, 512, 1024] {
            let g = GraphBuilder::new("matrix product");
            let x = g.state("x", DType::F32, [size, COLUMNS]);
            g.weight("w", dtype, [size, size]).mul_mat(x).output("y");
            let Some(mut task) = self.task(g)? else { break };
            self.round(&mut task)?;
            let time = task.times.best();
            largest = Some(task);
            if time > enough {
                break;
            }
        }
        Ok(largest)
    }

    /// Arithmetic that memory does not hold up.
    fn arithmetic(&self) -> Result<Option<Task>, CalibrateError> {
        let g = GraphBuilder::new("arithmetic");
        g.state("x", DType::F32, [256, 64]).unary(UnaryKind::Silu).output("y");
        self.task(g)
    }

    /// Arithmetic that is nothing but memory.
    fn stream(&self) -> Result<Option<Task>, CalibrateError> {
        // A small device is not filled up.
        let free = self.device.memory().free / 4;
        let elements = if free > 0 { STREAMED.min(free / 16) } else { STREAMED };
        let rows = (elements / 1024).max(1);
        let g = GraphBuilder::new("stream");
        let a = g.state("a", DType::F32, [1024, rows]);
        let b = g.state("b", DType::F32, [1024, rows]);
        a.add(b).output("y");
        self.task(g)
    }

    /// Transfers to and from the device, by setting and getting tensors.
    fn transfers(&self) -> Result<Option<Transfers>, CalibrateError> {
        let free = self.device.memory().free / 4;
        let long = if free > 0 { TRANSFERRED.min(free) } else { TRANSFERRED };
        let g = GraphBuilder::new("transfers");
        let short = g.state("short", DType::F32, [1]);
        let long = g.state("long", DType::F32, [(long / 4).max(1)]);
        short.scale(1.0, 0.0).output("y");
        long.scale(1.0, 0.0).output("z");
        let Ok(graph) = g.finish() else { return Ok(None) };
        let state = State::create_on(&[&graph], &**self.device)?;
        let bytes: usize =
            graph.live_leaves(Origin::State).map(|id| graph.layout(id).data_bytes()).sum();
        Ok(Some(Transfers {
            state,
            bytes: bytes - 4,
            set_short: Times::default(),
            get_short: Times::default(),
            set_long: Times::default(),
            get_long: Times::default(),
        }))
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

/// Best nanoseconds of what is run over and over for about the time given, after it was run once
/// to warm up.
fn sample(
    time: Duration,
    mut run: impl FnMut() -> Result<(), RunError>,
) -> Result<f64, CalibrateError> {
    run()?;
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    loop {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_nanos() as f64);
        if begin.elapsed() >= time {
            return Ok(best);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_round_counts_and_the_median_tells_how_busy_the_machine_was() {
        let busy = Times(vec![900e3, 100e3, 250e3, 110e3, 300e3, 260e3, 120e3]);
        assert_eq!((busy.best(), busy.spread()), (100e3, 2.5));
        let short = Times(vec![900.0, 100.0, 300.0]);
        assert_eq!((short.best(), short.spread()), (100.0, 1.0));
    }
}
