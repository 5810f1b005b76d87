//! Runs the cases on a device and reports those that differ from the oracle.
//!
//! Every plan is checked by the verifier; cases without state run twice and
//! must give the same bits.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tensoryard_graph::{DType, Graph, Op, OpKind, Origin};
use tensoryard_runtime::plan::verify;
use tensoryard_runtime::{
    Aliasing, BackendOptions, Device, DeviceError, Input, PlanError, PlanOptions, RunError,
    Selected, Session, SessionOptions, State, Step, StepOp, Weights,
};

use crate::case::{Case, CaseSpec, Outcome};
use crate::compare::compare;
use crate::expect::{self, Expectation};
use crate::interpret::{Interpretation, interpret};
use crate::oracle::Dense;
use crate::rng::Rng;

/// Whether ops may be fused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fusion {
    /// Each case with and without.
    #[default]
    Both,
    /// Only with.
    On,
    /// Only without.
    Off,
}

/// Which cases to run, and how.
#[derive(Debug, Clone, Default)]
pub struct SuiteOptions {
    /// Threads that the device is opened with; 0 lets it choose.
    pub threads: usize,
    /// Only cases whose name contains this text.
    pub filter: Option<String>,
    /// Whether ops may be fused.
    pub fusion: Fusion,
    /// Only about one case in so many, chosen by name; 0 and 1 run all.
    pub one_in: usize,
    /// Only cases of these ops; empty for all. For devices that do not claim every op.
    pub ops: Vec<OpKind>,
    /// Cases that are known to fail.
    pub expected_failures: Vec<Expectation>,
}

/// What a run of the suite found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Name of the device.
    pub device: String,
    /// Cases that passed, each setting of fusion counted.
    pub passed: usize,
    /// Cases that failed, with what was wrong.
    pub failed: Vec<(String, String)>,
    /// Cases that failed as expected, with the reason.
    pub expected: Vec<(String, &'static str)>,
    /// Cases that passed though a failure was expected, with the reason that is no longer true.
    pub unexpected: Vec<(String, &'static str)>,
    /// Number of cases whose weights lay in each kind of memory.
    pub weight_memory: BTreeMap<String, usize>,
    /// Number of steps of several ops that ran, by name.
    pub fused_steps: BTreeMap<&'static str, usize>,
}

impl Report {
    /// # Panics
    /// When a case failed, an expected failure passed, or nothing ran.
    pub fn assert_ok(&self) {
        let ok = self.failed.is_empty() && self.unexpected.is_empty() && self.passed > 0;
        assert!(ok, "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, passed, failed, expected, unexpected, .. } = self;
        let counts = [failed.len(), expected.len(), unexpected.len()];
        let [failed_count, expected_count, unexpected_count] = counts;
        writeln!(
            f,
            "{device}: {passed} passed, {failed_count} failed, {expected_count} failed as \
             expected, {unexpected_count} passed unexpectedly; weights in {:?}, fused {:?}",
            self.weight_memory, self.fused_steps
        )?;
        for (name, reason) in failed.iter().take(100) {
            writeln!(f, "  {name}: {reason}")?;
        }
        if failed.len() > 100 {
            writeln!(f, "  and {} more", failed.len() - 100)?;
        }
        for (name, reason) in unexpected {
            writeln!(f, "  {name} passes, though: {reason}")?;
        }
        Ok(())
    }
}

/// What one case told besides passing.
struct Told {
    weight_memory: Vec<String>,
    fused: Vec<&'static str>,
}

/// Runs the cases on a device.
///
/// # Panics
/// When a case itself is wrong.
pub fn run_suite(device: &Arc<dyn Device>, options: &SuiteOptions) -> Report {
    let mut report = Report { device: device.info().name.clone(), ..Report::default() };
    let settings: &[bool] = match options.fusion {
        Fusion::Both => &[false, true],
        Fusion::On => &[true],
        Fusion::Off => &[false],
    };
    for spec in crate::cases::all() {
        if !is_selected(&spec, options) {
            continue;
        }
        let case = spec.build();
        if !options.ops.is_empty() && !uses_only(&case.graph, &options.ops) {
            continue;
        }
        let oracle = interpret(&case.graph, |name| case.leaf(name));
        for &fusion in settings {
            let name = if fusion { format!("{} fusion=on", spec.name) } else { spec.name.clone() };
            let run = || run_case(device, options.threads, fusion, &spec, &case, &oracle);
            let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(format!("panicked: {}", text.unwrap_or("without a text")))
            });
            let expected = expect::find(&options.expected_failures, &name);
            match (result, expected) {
                (Ok(told), None) => {
                    report.passed += 1;
                    for kind in told.weight_memory {
                        *report.weight_memory.entry(kind).or_default() += 1;
                    }
                    for step in told.fused {
                        *report.fused_steps.entry(step).or_default() += 1;
                    }
                }
                (Err(reason), None) => report.failed.push((name, reason)),
                (Ok(_), Some(expected)) => report.unexpected.push((name, expected.reason)),
                (Err(_), Some(expected)) => report.expected.push((name, expected.reason)),
            }
        }
    }
    report
}

fn is_selected(spec: &CaseSpec, options: &SuiteOptions) -> bool {
    let named = options.filter.as_ref().is_none_or(|text| spec.name.contains(text.as_str()));
    named && (options.one_in < 2 || Rng::of_text(&spec.name).below(options.one_in) == 0)
}

fn uses_only(graph: &Graph, ops: &[OpKind]) -> bool {
    graph
        .live_nodes()
        .all(|id| graph.tensor(id).op().map(Op::kind).is_none_or(|kind| ops.contains(&kind)))
}

fn run_case(
    device: &Arc<dyn Device>,
    threads: usize,
    fusion: bool,
    spec: &CaseSpec,
    case: &Case,
    oracle: &Result<Interpretation, crate::oracle::OracleError>,
) -> Result<Told, String> {
    let graph = &case.graph;
    let text = |error: RunError| match error {
        RunError::Plan(error @ (PlanError::Unsupported { .. } | PlanError::Fixed { .. })) => {
            format!("refused: {error}")
        }
        other => other.to_string(),
    };
    let weights = Weights::load_on(&case.weights, &[graph], &**device, |_, _| true)
        .map_err(|error| error.to_string())?;
    let weight_memory = weights.sizes().into_iter().map(|(kind, _)| kind).collect();
    let selected = Selected { device: Arc::clone(device), options: BackendOptions { threads } };
    let plan = PlanOptions { fusion, ..PlanOptions::default() };
    let options = SessionOptions { plan, ..SessionOptions::default() };
    let mut session =
        Session::open(&[selected], Arc::new(weights), &[graph], options).map_err(text)?;
    for (name, bytes) in &case.states {
        if session.state().get(name).is_some() {
            session.state_mut().write(name, bytes).map_err(text)?;
        }
    }
    let plan = session.plan(graph).map_err(text)?;
    verify::verify(&plan).map_err(|violations| format!("invalid plan: {violations:?}"))?;
    let numbers = 0..plan.operations.len();
    let steps: Vec<Step> = numbers
        .map(|number| plan.step(number).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    if spec.in_place {
        let reuses = steps.iter().any(|step| {
            step.op.may_reuse().iter().any(|&operand| {
                step.sources[operand]
                    .as_ref()
                    .is_some_and(|source| source.aliasing == Aliasing::SameAsDst)
            })
        });
        if !reuses {
            return Err("no step works in place".to_owned());
        }
    }
    let fused = steps
        .iter()
        .filter(|step| !matches!(step.op, StepOp::Op(_)))
        .map(|step| step.op.name())
        .collect();
    let inputs: Vec<Input<'_>> =
        case.inputs.iter().map(|(name, bytes)| Input { name, bytes }).collect();

    match (spec.outcome, oracle) {
        (Outcome::ValueError, Ok(_)) => return Err("the oracle has no error".to_owned()),
        (Outcome::Values, Err(error)) => return Err(format!("the oracle fails: {error}")),
        (Outcome::ValueError, Err(_)) => match session.run(graph, &inputs) {
            Err(RunError::Device(DeviceError::Value { .. })) => {
                for (name, before) in &case.states {
                    if bytes_of(session.state(), name)? != *before {
                        return Err(format!("state {name:?} was written in spite of the error"));
                    }
                }
            }
            Err(other) => return Err(format!("another error than one of a value: {other}")),
            Ok(_) => return Err("no error".to_owned()),
        },
        (Outcome::Values, Ok(oracle)) => {
            let first = outputs_of(&mut session, graph, &inputs)?;
            for (name, actual) in &first {
                let id = graph.output(name).ok_or("an output has no name")?;
                let expected = oracle.tensor(graph, id).ok_or("the oracle has no such output")?;
                let actual: Vec<f64> = actual.iter().map(|&v| f64::from(v)).collect();
                judge(spec, name, DType::F32, &expected.data, &actual)?;
            }
            for (name, _) in &case.states {
                let Some(tensor) = session.state().get(name) else { continue };
                let layout = *tensor.layout();
                let bytes = session.state().read(name).map_err(text)?;
                let expected = oracle.leaf(graph, name).ok_or("the oracle has no such state")?;
                let expected = Dense::gather(&layout, expected);
                let actual = Dense::gather(&layout, &bytes);
                judge(spec, name, layout.dtype(), &expected.data, &actual.data)?;
            }
            if graph.live_leaves(Origin::State).next().is_none() {
                let second = outputs_of(&mut session, graph, &inputs)?;
                let bits = |outputs: &[(String, Vec<f32>)]| -> Vec<u32> {
                    outputs.iter().flat_map(|(_, v)| v.iter().map(|v| v.to_bits())).collect()
                };
                if bits(&first) != bits(&second) {
                    return Err("a second run gives other bits".to_owned());
                }
            }
        }
    }
    Ok(Told { weight_memory, fused })
}

/// What lies in a state tensor, whether a run that failed may have written it or not.
fn bytes_of(state: &State, name: &str) -> Result<Vec<u8>, String> {
    let tensor = state.get(name).ok_or_else(|| format!("no state {name:?}"))?;
    let mut bytes = vec![0; tensor.layout().data_bytes()];
    tensor
        .buffer()
        .memory()
        .read_tensor(0, tensor.layout(), &mut bytes)
        .map_err(|e| e.to_string())?;
    Ok(bytes)
}

fn judge(
    spec: &CaseSpec,
    name: &str,
    dtype: DType,
    expected: &[f64],
    actual: &[f64],
) -> Result<(), String> {
    if expected.len() != actual.len() {
        return Err(format!("{name:?} has {} elements, wanted {}", actual.len(), expected.len()));
    }
    match compare(expected, actual).judge(spec.accuracy, dtype) {
        Some(complaint) => Err(format!("{name:?}: {complaint}")),
        None => Ok(()),
    }
}

fn outputs_of(
    session: &mut Session,
    graph: &Arc<Graph>,
    inputs: &[Input<'_>],
) -> Result<Vec<(String, Vec<f32>)>, String> {
    let outputs = session.run(graph, inputs).map_err(|error| error.to_string())?;
    graph
        .outputs()
        .map(|id| {
            let name = graph.tensor(id).name.clone();
            let values = outputs.f32(&name).map_err(|error| error.to_string())?;
            Ok((name, values))
        })
        .collect()
}
