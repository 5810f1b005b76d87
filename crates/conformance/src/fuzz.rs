//! One random graph on any devices: planned, verified, run, and compared with the interpreter.

use std::error::Error;
use std::sync::Arc;

use tensoryard_graph::ops::BinaryKind;
use tensoryard_graph::{DType, Graph, Op, TensorId};
use tensoryard_runtime::plan::verify::verify;
use tensoryard_runtime::{
    AbortSignal, BackendOptions, Device, DeviceKind, Input, PlanDevice, PlanError, PlanOptions,
    State, Weights, Workspace, exec, plan,
};

use crate::compare::{Accuracy, compare};
use crate::interpret::interpret;
use crate::oracle::Dense;
use crate::random_graph::{RandomGraph, random_graph};
use crate::rng::Rng;

/// Where and how a random graph runs.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The devices in order of priority.
    pub devices: Vec<Arc<dyn Device>>,
    /// The device that holds the weights.
    pub weights_on: usize,
    /// The device that holds the state.
    pub state_on: usize,
    /// Threads of CPU devices; 0 lets them choose.
    pub threads: usize,
    /// Whether ops may be fused.
    pub fusion: bool,
    /// Number of runs, each with other inputs and the state of the one before.
    pub runs: usize,
    /// How close the values must be. [`Accuracy::Exact`] takes any NaN for any other.
    pub accuracy: Accuracy,
}

/// How a random graph ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and was right.
    Ran,
    /// It was refused for a good reason: memory too small, or state where nobody can write it.
    Refused,
    /// It divides and is compared loosely: quotients of rounding errors would differ.
    Skipped,
}

/// Runs the graph of a seed.
///
/// # Errors
/// What is wrong: an invalid plan, a failed run, or values that differ, with graph and plan.
pub fn run_random(seed: u64, scene: &Scene) -> Result<Outcome, Box<dyn Error>> {
    let mut random = random_graph(seed, 3 + Rng::new(!seed).below(20));
    let graph = Arc::new(random.graph.clone());
    if scene.accuracy != Accuracy::Exact && divides(&graph) {
        return Ok(Outcome::Skipped);
    }
    let mut backends = Vec::new();
    for device in &scene.devices {
        let is_cpu = device.info().kind == DeviceKind::Cpu;
        let threads = if is_cpu { scene.threads } else { 0 };
        backends.push(device.open(&BackendOptions { threads })?);
    }
    // A leaf may be larger than the largest buffer of its device.
    let holder = |index: usize| &*scene.devices[index];
    let Ok(weights) =
        Weights::load_on(&random.weights, &[&graph], holder(scene.weights_on), |_, _| true)
    else {
        return Ok(Outcome::Refused);
    };
    let Ok(mut state) = State::create_on(&[&graph], holder(scene.state_on)) else {
        return Ok(Outcome::Refused);
    };
    let devices: Vec<PlanDevice> = scene
        .devices
        .iter()
        .map(|device| PlanDevice {
            device: Arc::clone(device),
            buffer_type: Arc::clone(&device.buffer_types()[0]),
        })
        .collect();
    let mut options = PlanOptions { fusion: scene.fusion, ..PlanOptions::default() };
    let mut rng = Rng::new(seed ^ 0x0b5e);
    options.overlapping_runs = 1 + usize::from(rng.chance(25));
    if rng.chance(30) {
        options.observed = graph.ids().filter(|_| rng.chance(20)).collect();
    }
    let plan = match plan::plan(&graph, &devices, &backends, &weights, &state, &options) {
        Ok(plan) => plan,
        Err(PlanError::Fixed { .. } | PlanError::TooLarge { .. }) => return Ok(Outcome::Refused),
        // No device has a buffer that is large enough for the op.
        Err(PlanError::Unsupported { reasons, .. })
            if reasons.contains("the largest buffer of") =>
        {
            return Ok(Outcome::Refused);
        }
        Err(error) => return Err(error.into()),
    };
    let shown = || format!("{}\n{}", graph.dump(), plan.dump());
    if let Err(violations) = verify(&plan) {
        return Err(format!("{violations:#?}\n{}", shown()).into());
    }
    for (name, bytes) in &random.states {
        if state.get(name).is_some() {
            state.write(name, bytes)?;
        }
    }
    let mut workspace = Workspace::new();
    let abort = AbortSignal::new();
    for run in 0..scene.runs {
        let expected = interpret(&graph, |name| leaf(&random, name))?;
        let inputs: Vec<Input<'_>> =
            random.inputs.iter().map(|(name, bytes)| Input { name, bytes }).collect();
        exec::run(&plan, &mut backends, &weights, &mut state, &mut workspace, &inputs, &abort)?;
        for id in graph.outputs() {
            let (Some(name), Some(expected)) =
                (output_name(&graph, id), expected.tensor(&graph, id))
            else {
                continue;
            };
            let mut actual: Vec<f32> = Vec::new();
            exec::read_output(&plan, &name, DType::F32, &weights, &state, &workspace, &mut actual)?;
            let actual: Vec<f64> = actual.iter().map(|&v| f64::from(v)).collect();
            let found = compare(&expected.data, &actual).judge(scene.accuracy, DType::F32);
            if let Some(complaint) = found {
                return Err(format!("run {run}, output {name}: {complaint}\n{}", shown()).into());
            }
        }
        for (name, bytes) in &mut random.states {
            let Some(after) = expected.leaf(&graph, name) else { continue };
            let Some(layout) = state.get(name).map(|tensor| *tensor.layout()) else { continue };
            let actual = Dense::gather(&layout, &state.read(name)?);
            let expected = Dense::gather(&layout, after);
            let found = compare(&expected.data, &actual.data);
            if let Some(complaint) = found.judge(scene.accuracy, layout.dtype()) {
                return Err(format!("run {run}, state {name}: {complaint}\n{}", shown()).into());
            }
            *bytes = state.read(name)?;
        }
        random.change_inputs(seed + 1);
    }
    Ok(Outcome::Ran)
}

fn divides(graph: &Graph) -> bool {
    graph.live_nodes().any(|id| {
        let op = graph.tensor(id).op();
        matches!(op, Some(Op::Binary(binary)) if binary.kind == BinaryKind::Div)
    })
}

fn output_name(graph: &Graph, id: TensorId) -> Option<String> {
    (0..graph.len()).map(|n| format!("out{n}")).find(|name| graph.output(name) == Some(id))
}

fn leaf(random: &RandomGraph, name: &str) -> Option<Vec<u8>> {
    random
        .inputs
        .iter()
        .chain(&random.states)
        .find(|(leaf, _)| leaf == name)
        .map(|(_, bytes)| bytes.clone())
        .or_else(|| random.weights.bytes(name).map(<[u8]>::to_vec))
}

/// Runs seeds until five have failed and tells how it went; each failure with its seed.
///
/// `scene` makes the devices of a seed.
pub fn run_seeds(seeds: std::ops::Range<u64>, scene: impl Fn(u64) -> Scene) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let run = || run_random(seed, &scene(seed)).map_err(|error| error.to_string());
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        match result {
            Ok(Ok(Outcome::Ran)) => tally.ran += 1,
            Ok(Ok(Outcome::Refused)) => tally.refused += 1,
            Ok(Ok(Outcome::Skipped)) => tally.skipped += 1,
            Ok(Err(text)) => tally.failed.push((seed, text)),
            Err(_) => tally.failed.push((seed, "it panicked".to_owned())),
        }
        if tally.failed.len() == 5 {
            break;
        }
    }
    tally
}

/// How seeds went.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Graphs that ran and were right.
    pub ran: usize,
    /// Graphs that were refused.
    pub refused: usize,
    /// Graphs that divide, where values are compared loosely.
    pub skipped: usize,
    /// Seeds that failed, with what was wrong.
    pub failed: Vec<(u64, String)>,
}

impl Tally {
    /// # Panics
    /// When a seed failed, or more than a third was refused.
    pub fn assert_ok(&self) {
        let texts: Vec<String> =
            self.failed.iter().map(|(seed, text)| format!("seed {seed}: {text}")).collect();
        assert!(texts.is_empty(), "{}", texts.join("\n\n"));
        let Self { ran, refused, .. } = self;
        assert!(refused * 2 <= *ran, "{refused} graphs were refused, {ran} ran");
    }
}
