//! One run of a plan: inputs in, for each split its copies and its program.
//!
//! Each device has one ordered queue. Every memory that may be written remembers the event at the
//! end of the last work that touched it; whoever queues more on that memory waits for the event
//! first, on its queue where the device can. So work on one memory happens in plan order, work on
//! different memories overlaps, and devices that work at once need nothing of this.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use tensoryard_graph::{Graph, Origin, TensorId};

use super::observe::{Observer, Seen, SplitTiming};
use super::route::{InputRoute, Route};
use super::ticket::{Flight, Ticket};
use super::{State, StateStatus, Workspace, bind};
use crate::plan::PlanSplit;
use crate::submission::{Bindings, Submission};
use crate::{
    AbortSignal, Backend, DeviceError, DeviceIndex, Event, Plan, Region, RunError, Weights,
};

/// Values of a graph input: contiguous elements in the machine's byte order.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Name of the input.
    pub name: &'a str,
    /// The elements.
    pub bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Values of an input of any plain element type.
    pub fn new<T: Pod>(name: &'a str, values: &'a [T]) -> Self {
        Self { name, bytes: bytemuck::cast_slice(values) }
    }

    /// Values of an f32 input.
    pub fn f32(name: &'a str, values: &'a [f32]) -> Self {
        Self::new(name, values)
    }

    /// Values of an i32 input.
    pub fn i32(name: &'a str, values: &'a [i32]) -> Self {
        Self::new(name, values)
    }
}

/// How a run is watched and stopped.
#[derive(Default)]
pub struct RunOptions<'a> {
    /// Stops the run from another thread.
    pub abort: AbortSignal,
    /// Is shown the nodes that the plan was made to observe.
    pub observer: Option<&'a mut dyn Observer>,
    /// Takes the time of each split; waiting for it costs some.
    pub timings: Option<&'a mut Vec<SplitTiming>>,
}

impl fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("abort", &self.abort)
            .field("observer", &self.observer.is_some())
            .field("timings", &self.timings.is_some())
            .finish()
    }
}

/// Runs a plan and waits for it. `backends` are the queues that it was planned with, in the same
/// order.
///
/// The results lie in the workspace until its next run: see [`read_output`](super::read_output).
///
/// # Errors
/// What [`submit`] refuses, a failed device, the abort signal.
#[doc(alias = "ggml_backend_sched_graph_compute")]
#[doc(alias = "ggml_backend_graph_compute")]
pub fn run(
    plan: &Plan,
    backends: &mut [Box<dyn Backend>],
    weights: &Weights,
    state: &mut State,
    workspace: &mut Workspace,
    inputs: &[Input<'_>],
    abort: &AbortSignal,
) -> Result<(), RunError> {
    let mut options = RunOptions { abort: abort.clone(), ..RunOptions::default() };
    let ticket = submit(plan, backends, weights, state, workspace, inputs, &mut options)?;
    let outcome = ticket.wait();
    if outcome.is_err() {
        make_ready(backends);
    }
    Ok(outcome?)
}

/// Lets queues whose work failed take work again. What is still queued may go on for a while;
/// state and workspace wait for it.
pub(crate) fn make_ready(backends: &mut [Box<dyn Backend>]) {
    for backend in backends.iter_mut().filter(|backend| backend.is_asynchronous()) {
        // The error is known, or follows from the one that is.
        _ = backend.synchronize();
    }
}

/// Starts a run of a plan. Inputs are copied before this returns; weights, state and workspace
/// stay alive until the devices are done, whatever becomes of their owners, and whoever looks at
/// them waits.
///
/// # Errors
/// Inputs that are missing, unknown or of the wrong size; weights or state that the plan was not
/// made for; state that a failed run left unusable; what goes wrong before this returns.
#[doc(alias = "ggml_backend_sched_graph_compute_async")]
#[doc(alias = "ggml_backend_graph_compute_async")]
pub fn submit(
    plan: &Plan,
    backends: &mut [Box<dyn Backend>],
    weights: &Weights,
    state: &mut State,
    workspace: &mut Workspace,
    inputs: &[Input<'_>],
    options: &mut RunOptions<'_>,
) -> Result<Ticket, RunError> {
    if backends.len() != plan.devices.len() {
        let (given, planned) = (backends.len(), plan.devices.len());
        return Err(RunError::PlanMismatch(format!("{given} backends for {planned} devices")));
    }
    check_inputs(&plan.graph, plan.route(), inputs)?;
    if workspace.learn_failures() {
        make_ready(backends);
        workspace.forget_failures();
    }
    state.settle(false);
    let route = plan.route();
    let leaves = || plan.states.iter().zip(&route.reads_old_state);
    let name = |id: TensorId| plan.graph.tensor(id).name.as_str();
    let read = leaves().filter(|(_, reads)| **reads).map(|(&id, _)| name(id));
    if let Some((name, status)) = state.unusable(read) {
        return Err(RunError::StateUnusable { name: name.to_owned(), status });
    }
    workspace.reserve_for_run(plan)?;
    let (copy, arrived) = workspace.begin_run(plan);
    let bindings = bind::bindings(plan, weights, state, workspace, copy)?;
    let is_asynchronous = backends.iter().any(|backend| backend.is_asynchronous());
    let mut run = Run {
        plan,
        route,
        weights,
        state,
        workspace,
        copy,
        arrived,
        bindings,
        is_asynchronous,
        ends: vec![None; if is_asynchronous { backends.len() } else { 0 }],
        backends,
        reached: 0,
    };
    let outcome = run.walk(inputs, options);
    let Run { reached, ends, arrived, .. } = run;
    let written = || written_state(plan, route, reached);
    if let Err(error) = outcome {
        make_ready(backends);
        workspace.forget_failures();
        state.run_failed(written());
        return Err(error);
    }
    let mended = || leaves().filter(|(_, reads)| !**reads).map(|(&id, _)| name(id));
    let ends: Vec<Event> = ends.into_iter().flatten().collect();
    let flight = (!ends.is_empty()).then(|| Flight::new(ends));
    match &flight {
        Some(flight) if !plan.states.is_empty() => {
            let written = written().map(str::to_owned).collect();
            state.in_flight(flight, written, mended().map(str::to_owned).collect());
        }
        Some(_) => {}
        None => mended().for_each(|name| state.mark(name, StateStatus::Committed)),
    }
    let mark = workspace.end_run(plan, copy, flight.clone(), arrived);
    Ok(Ticket::new(flight, mark))
}

/// Names of the state tensors that the splits before `reached` write.
fn written_state<'a>(
    plan: &'a Plan,
    route: &'a Route,
    reached: usize,
) -> impl Iterator<Item = &'a str> {
    let numbers = route.splits[..reached].iter().flat_map(|split| &split.writes);
    numbers.filter_map(|&n| plan.states.get(n as usize)).map(|&id| &*plan.graph.tensor(id).name)
}

fn check_inputs(graph: &Graph, route: &Route, inputs: &[Input<'_>]) -> Result<(), RunError> {
    for input in inputs {
        let known = graph.leaf(input.name).is_some_and(|id| is_input(graph, id));
        if !known {
            return Err(RunError::UnknownInput(input.name.to_owned()));
        }
    }
    for wanted in &route.inputs {
        let desc = graph.tensor(wanted.id);
        let input = find(inputs, &desc.name)?;
        let needed = desc.layout.data_bytes();
        if input.bytes.len() != needed {
            return Err(RunError::InputSize {
                name: desc.name.clone(),
                given: input.bytes.len(),
                needed,
                layout: desc.layout,
            });
        }
    }
    Ok(())
}

fn find<'a>(inputs: &[Input<'a>], name: &str) -> Result<Input<'a>, RunError> {
    let input = inputs.iter().find(|input| input.name == name).copied();
    input.ok_or_else(|| RunError::MissingInput(name.to_owned()))
}

fn is_input(graph: &Graph, id: TensorId) -> bool {
    graph.tensor(id).origin == Origin::Input
}

/// A run while it is being submitted.
pub(super) struct Run<'a> {
    pub plan: &'a Plan,
    pub route: &'a Route,
    pub weights: &'a Weights,
    pub state: &'a State,
    pub backends: &'a mut [Box<dyn Backend>],
    pub workspace: &'a mut Workspace,
    /// The copy of staged memory that it works in.
    pub copy: usize,
    /// The arrivals that hold their input.
    pub arrived: Vec<bool>,
    pub bindings: Arc<Bindings>,
    pub is_asynchronous: bool,
    /// The end of what this run has queued on each device.
    ends: Vec<Option<Event>>,
    /// Splits that were begun.
    reached: usize,
}

impl Run<'_> {
    fn walk(&mut self, inputs: &[Input<'_>], options: &mut RunOptions<'_>) -> Result<(), RunError> {
        let (plan, route) = (self.plan, self.route);
        for input in &route.inputs {
            let bytes = find(inputs, &plan.graph.tensor(input.id).name)?.bytes;
            self.write_input(input, bytes)?;
        }
        if options.timings.is_some() {
            // The first split's time begins when all before it is done.
            self.backends.iter_mut().try_for_each(|backend| backend.synchronize())?;
        }
        for (number, split) in plan.splits.iter().enumerate() {
            let start = options.timings.is_some().then(Instant::now);
            let copied_bytes = self.workspace.counters.copied_bytes;
            for &index in &split.arrivals {
                self.arrive(index.0)?;
            }
            if options.abort.is_aborted() {
                return Err(DeviceError::Cancelled.into());
            }
            let copied_bytes = self.workspace.counters.copied_bytes.saturating_sub(copied_bytes);
            let copied = start.map(|start| self.wait_for_copies(split, start)).transpose()?;
            self.reached = number + 1;
            let regions = &route.splits[number].regions;
            self.order(split.device, regions)?;
            let memory = Submission::split(&self.bindings, number);
            let program = &plan.programs()[number];
            self.backends[split.device.0].submit(program, memory, &options.abort)?;
            self.stamp(split.device, regions)?;
            if let (Some(timings), Some(copy), Some(start)) =
                (options.timings.as_deref_mut(), copied, start)
            {
                timings.push(SplitTiming {
                    split: number,
                    device: split.device,
                    copied_bytes: usize::try_from(copied_bytes).unwrap_or(usize::MAX),
                    copy,
                    compute: self.wait_since(split.device, start)?.saturating_sub(copy),
                });
            }
            if let Some(observer) = options.observer.as_deref_mut() {
                self.show(split.device, &split.observed, observer)?;
            }
        }
        Ok(())
    }

    /// Waits for a split's copies, in whichever queue they are, and tells the time since `start`.
    fn wait_for_copies(
        &mut self,
        split: &PlanSplit,
        start: Instant,
    ) -> Result<Duration, DeviceError> {
        for &index in &split.arrivals {
            let region = self.route.arrivals[index.0].to.region;
            if let Some(event) = self.bindings.region(region).and_then(|r| r.shared.last()) {
                event.wait()?;
            }
        }
        self.wait_since(split.device, start)
    }

    /// Waits for a device and tells the time since `start`.
    fn wait_since(&mut self, device: DeviceIndex, start: Instant) -> Result<Duration, DeviceError> {
        self.backends[device.0].synchronize()?;
        Ok(start.elapsed())
    }

    fn show(
        &mut self,
        device: DeviceIndex,
        nodes: &[TensorId],
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        if nodes.is_empty() {
            return Ok(());
        }
        self.backends[device.0].synchronize()?;
        let Self { plan, weights, state, ref workspace, copy, .. } = *self;
        for &node in nodes {
            let device = plan.placement.device(node).unwrap_or(device);
            let seen = Seen { plan, weights, state, workspace, copy, node, device };
            if observer.observe(&seen).is_break() {
                return Err(DeviceError::Cancelled.into());
            }
        }
        Ok(())
    }

    fn write_input(&mut self, input: &InputRoute, bytes: &[u8]) -> Result<(), RunError> {
        let has_copies = input.kept_in.iter().any(|&index| self.arrived[index]);
        if has_copies && self.holds(&input.to, bytes) {
            return Ok(());
        }
        for &index in &input.kept_in {
            self.arrived[index] = false;
        }
        self.write(input.device, &input.to, bytes)
    }

    /// What `device` is given next on these regions comes after what was queued on them before.
    pub fn order(&mut self, device: DeviceIndex, regions: &[Region]) -> Result<(), DeviceError> {
        if !self.is_asynchronous {
            return Ok(());
        }
        for &region in regions {
            if let Some(event) = self.bindings.region(region).and_then(|r| r.shared.last()) {
                self.backends[device.0].wait(&event)?;
            }
        }
        Ok(())
    }

    /// What `device` was given last is the last work on these regions.
    pub fn stamp(&mut self, device: DeviceIndex, regions: &[Region]) -> Result<(), DeviceError> {
        if !self.is_asynchronous {
            return Ok(());
        }
        let backend = &mut self.backends[device.0];
        let end = if backend.is_asynchronous() { Some(backend.record()?) } else { None };
        for &region in regions {
            // Weights are never written, so nobody needs to wait for their readers.
            if !matches!(region, Region::Weight(_))
                && let Some(bound) = self.bindings.region(region)
            {
                bound.shared.set_last(end.clone());
            }
        }
        if end.is_some() {
            self.ends[device.0] = end;
        }
        Ok(())
    }
}
