//! Reading the results of a run.

use bytemuck::Pod;
use tensoryard_graph::{DType, Origin, TensorId};

use super::ticket::RunMark;
use super::{State, Workspace};
use crate::{DeviceIndex, Memory, MemoryError, Plan, RunError, Weights};

/// Reads an output of the plan that the workspace ran last: its elements in order, as they are
/// stored. Waits for the run.
///
/// # Errors
/// A name that is no output; a workspace that another run has used since; a type other than
/// `wanted`; what went wrong in the run.
pub fn read_output<T: Pod>(
    plan: &Plan,
    name: &str,
    wanted: DType,
    weights: &Weights,
    state: &State,
    workspace: &Workspace,
    dst: &mut Vec<T>,
) -> Result<(), RunError> {
    read_output_of(plan, None, name, wanted, (weights, state, workspace), dst)
}

/// As [`read_output`], of the run that is named, which later runs of a plan with staged memory may
/// not have touched yet.
pub(crate) fn read_output_of<T: Pod>(
    plan: &Plan,
    mark: Option<RunMark>,
    name: &str,
    wanted: DType,
    (weights, state, workspace): (&Weights, &State, &Workspace),
    dst: &mut Vec<T>,
) -> Result<(), RunError> {
    let unknown = || RunError::NotAnOutput(name.to_owned());
    let id = plan.graph.output(name).ok_or_else(unknown)?;
    let copy = workspace.copy_with_results(plan, mark)?.ok_or_else(unknown)?;
    let layout = *plan.graph.layout(id);
    if layout.dtype() != wanted || size_of::<T>() != wanted.block_bytes() {
        let wanted = wanted.name();
        return Err(RunError::OutputType { name: name.to_owned(), layout, wanted });
    }
    let (memory, offset_bytes) = locate(plan, id, (weights, state, workspace), copy)?;
    dst.clear();
    dst.try_reserve_exact(layout.shape().elements())
        .map_err(|_| MemoryError::Allocation { bytes: layout.data_bytes() })?;
    dst.resize(layout.shape().elements(), T::zeroed());
    let read = memory.read_tensor(offset_bytes, &layout, bytemuck::cast_slice_mut(dst));
    let device = plan.placement.device(plan.graph.root(id)).unwrap_or(DeviceIndex(0));
    Ok(read.map_err(|error| plan.memory_error(device, error))?)
}

/// The memory of any tensor that has some: a weight, a state tensor or compute memory.
pub(super) fn locate<'a>(
    plan: &Plan,
    id: TensorId,
    (weights, state, workspace): (&'a Weights, &'a State, &'a Workspace),
    copy: usize,
) -> Result<(&'a dyn Memory, usize), RunError> {
    let graph = &*plan.graph;
    let root = graph.tensor(graph.root(id));
    let within = graph.root_offset(id);
    let located = match root.origin {
        Origin::Weight => weights
            .get(&root.name)
            .map(|weight| (weight.buffer().memory(), weight.offset_bytes() + within)),
        Origin::State => state.get(&root.name).map(|tensor| (tensor.buffer().memory(), within)),
        Origin::Input | Origin::Op(_) => plan.memory.locate(id).and_then(|place| {
            let buffer = workspace.chunk(plan, place.chunk, copy)?;
            Some((buffer.memory(), place.offset_bytes))
        }),
    };
    located.ok_or_else(|| RunError::PlanMismatch(format!("{:?} has no memory", root.name)))
}
