//! One run of a plan: inputs in, for each split its copies and its program.
//!
//! Each device has one ordered queue. Every memory that may be written remembers the event at the
//! end of the last work that touched it; whoever queues more on that memory waits for the event
//! first, on its queue where the device can. So work on one memory happens in plan order, work on
//! different memories overlaps, and devices that work at once need nothing of this.

use std::sync::Arc;

use bytemuck::Pod;
use tensoryard_graph::{Graph, Origin, TensorId};

use super::route::{InputRoute, Route};
use super::ticket::{Flight, Ticket};
use super::{State, StateStatus, Workspace, bind};
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

/// Runs a plan and waits for it. `backends` are the queues that it was planned with, in the same
/// order.
///
/// The results lie in the workspace until its next run: see [`read_output`](super::read_output).
///
/// # Errors
/// What [`submit`] refuses, a failed device, the abort signal.
#[doc(alias = "ggml_backend_sched_graph_compute")]
pub fn run(
    plan: &Plan,
    backends: &mut [Box<dyn Backend>],
    weights: &Weights,
    state: &mut State,
    workspace: &mut Workspace,
    inputs: &[Input<'_>],
    abort: &AbortSignal,
) -> Result<(), RunError> {
    Ok(submit(plan, backends, weights, state, workspace, inputs, abort)?.wait()?)
}

/// Starts a run of a plan. Inputs are copied before this returns; weights, state and workspace
/// stay alive until the devices are done, whatever becomes of their owners, and whoever looks at
/// them waits.
///
/// # Errors
/// Inputs that are missing, unknown or of the wrong size; weights or state that the plan was not
/// made for; state that a failed run left unusable; what goes wrong before this returns.
#[doc(alias = "ggml_backend_sched_graph_compute_async")]
pub fn submit(
    plan: &Plan,
    backends: &mut [Box<dyn Backend>],
    weights: &Weights,
    state: &mut State,
    workspace: &mut Workspace,
    inputs: &[Input<'_>],
    abort: &AbortSignal,
) -> Result<Ticket, RunError> {
    if backends.len() != plan.devices.len() {
        let (given, planned) = (backends.len(), plan.devices.len());
        return Err(RunError::PlanMismatch(format!("{given} backends for {planned} devices")));
    }
    check_inputs(&plan.graph, plan.route(), inputs)?;
    state.settle(false);
    let route = plan.route();
    let read_state = || {
        let names = plan.states.iter().zip(&route.reads_old_state);
        names.filter(|(_, reads)| **reads).map(|(&id, _)| plan.graph.tensor(id).name.as_str())
    };
    if let Some((name, status)) = state.unusable(read_state()) {
        return Err(RunError::StateUnusable { name: name.to_owned(), status });
    }
    workspace.begin_run();
    workspace.reserve(plan)?;
    let bindings = bind::bindings(plan, weights, state, workspace)?;
    let is_asynchronous = backends.iter().any(|backend| backend.is_asynchronous());
    let mut run = Run {
        plan,
        route,
        ends: vec![None; if is_asynchronous { backends.len() } else { 0 }],
        backends,
        workspace,
        bindings,
        abort,
        is_asynchronous,
        reached: 0,
    };
    let outcome = run.walk(inputs);
    let (reached, ends) = (run.reached, run.ends);
    let written = || written_state(plan, route, reached);
    if let Err(error) = outcome {
        // What is still queued may go on for a while; state and workspace wait for it.
        for backend in backends.iter_mut().filter(|backend| backend.is_asynchronous()) {
            _ = backend.synchronize();
        }
        for name in written() {
            state.mark(name, StateStatus::Torn);
        }
        return Err(error);
    }
    let mended = || {
        let numbers = plan.states.iter().zip(&route.reads_old_state);
        numbers.filter(|(_, reads)| !**reads).map(|(&id, _)| plan.graph.tensor(id).name.as_str())
    };
    let ends: Vec<Event> = ends.into_iter().flatten().collect();
    let flight = (!ends.is_empty()).then(|| Flight::new(ends));
    match &flight {
        Some(flight) if !plan.states.is_empty() => {
            let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
            state.in_flight(flight, owned(&mut written()), owned(&mut mended()));
        }
        Some(_) => {}
        None => mended().for_each(|name| state.mark(name, StateStatus::Committed)),
    }
    workspace.end_run(plan, flight.clone());
    Ok(Ticket::new(flight))
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
    pub backends: &'a mut [Box<dyn Backend>],
    pub workspace: &'a mut Workspace,
    pub bindings: Arc<Bindings>,
    abort: &'a AbortSignal,
    pub is_asynchronous: bool,
    /// The end of what this run has queued on each device.
    ends: Vec<Option<Event>>,
    /// Splits that were begun.
    reached: usize,
}

impl Run<'_> {
    fn walk(&mut self, inputs: &[Input<'_>]) -> Result<(), RunError> {
        let (plan, route) = (self.plan, self.route);
        for input in &route.inputs {
            self.write_input(input, find(inputs, &plan.graph.tensor(input.id).name)?.bytes)?;
        }
        for (number, split) in plan.splits.iter().enumerate() {
            for &index in &split.arrivals {
                self.arrive(&route.arrivals[index.0])?;
            }
            if self.abort.is_aborted() {
                return Err(DeviceError::Cancelled.into());
            }
            self.reached = number + 1;
            let regions = &route.splits[number].regions;
            self.order(split.device, regions)?;
            let memory = Submission::split(&self.bindings, number);
            let program = &plan.programs()[number];
            self.backends[split.device.0].submit(program, memory, self.abort)?;
            self.stamp(split.device, regions)?;
        }
        Ok(())
    }

    fn write_input(&mut self, input: &InputRoute, bytes: &[u8]) -> Result<(), RunError> {
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
