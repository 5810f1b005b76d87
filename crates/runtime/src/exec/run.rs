//! One run of a plan: inputs in, for each split its copies and its program, outputs out.

use bytemuck::Pod;
use tensoryard_graph::{DType, Graph, Layout, Origin, TensorId};

use crate::{
    AbortSignal, Backend, Bindings, Bound, Buffer, DeviceError, MemoryError, Plan, RunError, State,
    Weights, Workspace,
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
    /// Values of an f32 input.
    pub fn f32(name: &'a str, values: &'a [f32]) -> Self {
        Self { name, bytes: bytemuck::cast_slice(values) }
    }

    /// Values of an i32 input.
    pub fn i32(name: &'a str, values: &'a [i32]) -> Self {
        Self { name, bytes: bytemuck::cast_slice(values) }
    }
}

/// Where a tensor lies while a plan runs.
struct Located<'a> {
    buffer: &'a Buffer,
    offset_bytes: usize,
    /// Layout of the weight or state tensor that owns the memory.
    root_layout: Option<Layout>,
}

/// Runs a plan. `backends` are the queues that it was planned with, in the same order.
///
/// The results lie in the workspace until its next run: see [`read_output`].
///
/// # Errors
/// Inputs that are missing, unknown or of the wrong size; weights or state that the plan was not
/// made for; a failed device; the abort signal.
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
    if backends.len() != plan.devices.len() {
        let (given, planned) = (backends.len(), plan.devices.len());
        return Err(RunError::PlanMismatch(format!("{given} backends for {planned} devices")));
    }
    workspace.begin_run();
    workspace.reserve(plan)?;
    write_inputs(plan, workspace, inputs)?;
    for (split, program) in plan.splits.iter().zip(plan.programs()) {
        for &index in &split.arrivals {
            copy_arrival(plan, index.0, backends, weights, state, workspace)?;
        }
        if abort.is_aborted() {
            return Err(DeviceError::Cancelled.into());
        }
        let mut bindings = bind(plan, weights, state, workspace)?;
        let backend = &mut backends[split.device.0];
        backend.submit(&**program, &mut bindings, abort)?;
        // The bindings borrow state and workspace, so the work must end with them.
        backend.synchronize()?;
    }
    workspace.end_run(plan);
    Ok(())
}

fn write_inputs(
    plan: &Plan,
    workspace: &mut Workspace,
    inputs: &[Input<'_>],
) -> Result<(), RunError> {
    let graph = &*plan.graph;
    for input in inputs {
        let known = graph.leaf(input.name).is_some_and(|id| is_input(graph, id));
        if !known {
            return Err(RunError::UnknownInput(input.name.to_owned()));
        }
    }
    for id in graph.live_leaves(Origin::Input) {
        let desc = graph.tensor(id);
        let input = inputs
            .iter()
            .find(|input| input.name == desc.name)
            .ok_or_else(|| RunError::MissingInput(desc.name.clone()))?;
        let needed = desc.layout.data_bytes();
        if input.bytes.len() != needed {
            return Err(RunError::InputSize {
                name: desc.name.clone(),
                given: input.bytes.len(),
                needed,
                layout: desc.layout,
            });
        }
        let missing = || RunError::PlanMismatch(format!("input {:?} has no memory", desc.name));
        let place = plan.memory.locate(id).ok_or_else(missing)?;
        let buffer = workspace.chunk_mut(plan, place.chunk).ok_or_else(missing)?;
        buffer.memory_mut().write_tensor(place.offset_bytes, &desc.layout, input.bytes)?;
    }
    Ok(())
}

fn is_input(graph: &Graph, id: TensorId) -> bool {
    graph.tensor(id).origin == Origin::Input
}

fn copy_arrival(
    plan: &Plan,
    index: usize,
    backends: &mut [Box<dyn Backend>],
    weights: &Weights,
    state: &State,
    workspace: &mut Workspace,
) -> Result<(), RunError> {
    let arrival = plan.arrivals[index];
    let layout = *plan.graph.layout(arrival.tensor);
    if let Some(from) = plan.placement.device(plan.graph.root(arrival.tensor)) {
        backends[from.0].synchronize()?;
    }
    let mut bytes = vec![0; layout.data_bytes()];
    let source = locate(plan, arrival.tensor, weights, state, workspace)?;
    source.buffer.memory().read_tensor(source.offset_bytes, &layout, &mut bytes)?;
    let place = plan.memory.arrivals[index];
    let target = workspace
        .chunk_mut(plan, place.chunk)
        .ok_or_else(|| RunError::PlanMismatch("an arrival has no memory".to_owned()))?;
    target.memory_mut().write_tensor(place.offset_bytes, &layout, &bytes)?;
    Ok(())
}

/// The buffer of any tensor that has memory: a weight, a state tensor or compute memory.
fn locate<'a>(
    plan: &Plan,
    id: TensorId,
    weights: &'a Weights,
    state: &'a State,
    workspace: &'a Workspace,
) -> Result<Located<'a>, RunError> {
    let graph = &*plan.graph;
    let root = graph.tensor(graph.root(id));
    let within = graph.root_offset(id);
    let located = match root.origin {
        Origin::Weight => weights.get(&root.name).map(|weight| Located {
            buffer: weight.buffer(),
            offset_bytes: weight.offset_bytes() + within,
            root_layout: Some(*weight.layout()),
        }),
        Origin::State => state.get(&root.name).map(|tensor| Located {
            buffer: tensor.buffer(),
            offset_bytes: within,
            root_layout: Some(*tensor.layout()),
        }),
        Origin::Input | Origin::Op(_) => plan.memory.locate(id).and_then(|place| {
            let buffer = workspace.chunk(plan, place.chunk)?;
            Some(Located { buffer, offset_bytes: place.offset_bytes, root_layout: None })
        }),
    };
    located.ok_or_else(|| RunError::PlanMismatch(format!("{:?} has no memory", root.name)))
}

fn bind<'a>(
    plan: &Plan,
    weights: &'a Weights,
    state: &'a mut State,
    workspace: &'a mut Workspace,
) -> Result<Bindings<'a>, RunError> {
    let (state, workspace): (&'a State, &'a Workspace) = (state, workspace);
    let external = |ids: &[TensorId], origin: Origin| {
        ids.iter()
            .map(|&id| {
                if plan.graph.tensor(id).origin != origin {
                    let name = &plan.graph.tensor(id).name;
                    return Err(RunError::PlanMismatch(format!(
                        "{name:?} is no {}",
                        origin.name()
                    )));
                }
                let located = locate(plan, id, weights, state, workspace)?;
                check_residence(plan, id, &located)?;
                let memory = located.buffer.memory();
                Ok(Bound { memory, offset_bytes: located.offset_bytes })
            })
            .collect::<Result<Vec<_>, RunError>>()
    };
    let chunks = (0..plan.memory.chunks.len()).map(|chunk| {
        let buffer = workspace
            .chunk(plan, chunk)
            .ok_or_else(|| RunError::PlanMismatch(format!("chunk {chunk} is not reserved")))?;
        Ok(Bound { memory: buffer.memory(), offset_bytes: 0 })
    });
    Ok(Bindings {
        weights: external(&plan.weights, Origin::Weight)?,
        states: external(&plan.states, Origin::State)?,
        chunks: chunks.collect::<Result<Vec<_>, RunError>>()?,
    })
}

/// A plan is bound to memory of the kinds and layouts that it was made for, and to no other.
fn check_residence(plan: &Plan, id: TensorId, located: &Located<'_>) -> Result<(), RunError> {
    let desc = plan.graph.tensor(id);
    let name = &desc.name;
    let planned = plan.residence.of(id).map(|kind| kind.name());
    let found = located.buffer.buffer_type().name();
    if planned != Some(found) {
        let planned = planned.unwrap_or("no memory");
        let problem = format!("{name:?} lies in {found}, planned for {planned}");
        return Err(RunError::PlanMismatch(problem));
    }
    match located.root_layout {
        Some(layout) if layout != desc.layout => {
            let problem = format!("{name:?} is {layout}, planned for {}", desc.layout);
            Err(RunError::PlanMismatch(problem))
        }
        Some(_) | None => Ok(()),
    }
}

/// Reads an output of the plan that the workspace ran last: its elements in order, as they are
/// stored.
///
/// # Errors
/// A name that is no output; a workspace that another run has used since; a type other than
/// `wanted`, where one is given.
pub fn read_output<T: Pod>(
    plan: &Plan,
    name: &str,
    wanted: DType,
    weights: &Weights,
    state: &State,
    workspace: &Workspace,
    dst: &mut Vec<T>,
) -> Result<(), RunError> {
    let unknown = || RunError::NotAnOutput(name.to_owned());
    let id = plan.graph.output(name).ok_or_else(unknown)?;
    if !workspace.holds_results_of(plan) {
        return Err(unknown());
    }
    let layout = *plan.graph.layout(id);
    if layout.dtype() != wanted || size_of::<T>() != wanted.block_bytes() {
        let wanted = wanted.name();
        return Err(RunError::OutputType { name: name.to_owned(), layout, wanted });
    }
    let located = locate(plan, id, weights, state, workspace)?;
    let memory = located.buffer.memory();
    dst.clear();
    dst.try_reserve_exact(layout.shape().elements())
        .map_err(|_| MemoryError::Allocation { bytes: layout.data_bytes() })?;
    dst.resize(layout.shape().elements(), T::zeroed());
    memory.read_tensor(located.offset_bytes, &layout, bytemuck::cast_slice_mut(dst))?;
    Ok(())
}
