//! The memory of a plan's regions, looked up once and kept for later runs.

use std::sync::Arc;

use tensoryard_graph::{Layout, TensorId};

use super::{State, Workspace};
use crate::identity::WeakIdentity;
use crate::submission::{Bindings, BoundRegion};
use crate::{Buffer, Plan, RunError, Weights};

/// Bindings with what they were made for.
#[derive(Debug)]
pub(crate) struct Known {
    plan: WeakIdentity,
    weights: WeakIdentity,
    state: WeakIdentity,
    copy: usize,
    bindings: Arc<Bindings>,
}

impl Known {
    fn is_for(&self, plan: &Plan, weights: &Weights, state: &State, copy: usize) -> bool {
        self.plan.is(plan.identity())
            && self.weights.is(weights.identity())
            && self.state.is(state.identity())
            && self.copy == copy
    }

    /// Whether a part is gone. The bindings keep its memory.
    fn is_gone(&self) -> bool {
        self.plan.is_gone() || self.weights.is_gone() || self.state.is_gone()
    }
}

/// Bindings kept at most.
const MAX_KNOWN: usize = 256;

/// The memory that a run of the plan works in. The workspace was reserved for it.
pub(crate) fn bindings(
    plan: &Plan,
    weights: &Weights,
    state: &State,
    workspace: &mut Workspace,
    copy: usize,
) -> Result<Arc<Bindings>, RunError> {
    let known = workspace.known.iter().position(|k| k.is_for(plan, weights, state, copy));
    if let Some(at) = known {
        // The latest stands first.
        workspace.known[..=at].rotate_right(1);
        return Ok(Arc::clone(&workspace.known[0].bindings));
    }
    let bindings = Arc::new(make(plan, weights, state, workspace, copy)?);
    workspace.known.retain(|known| !known.is_gone());
    if workspace.known.len() >= MAX_KNOWN {
        workspace.known.clear();
    }
    workspace.known.insert(
        0,
        Known {
            plan: plan.identity().downgrade(),
            weights: weights.identity().downgrade(),
            state: state.identity().downgrade(),
            copy,
            bindings: Arc::clone(&bindings),
        },
    );
    Ok(bindings)
}

fn make(
    plan: &Plan,
    weights: &Weights,
    state: &State,
    workspace: &Workspace,
    copy: usize,
) -> Result<Bindings, RunError> {
    let graph = &plan.graph;
    let missing = |id: TensorId| {
        let name = &graph.tensor(id).name;
        RunError::PlanMismatch(format!("{name:?} has no memory"))
    };
    let of_weight = |&id: &TensorId| {
        let weight = weights.get(&graph.tensor(id).name).ok_or_else(|| missing(id))?;
        check_residence(plan, id, weight.buffer(), weight.layout())?;
        let shared = Arc::clone(weight.buffer().shared());
        Ok(BoundRegion { shared, offset_bytes: weight.offset_bytes() })
    };
    let of_state = |&id: &TensorId| {
        let tensor = state.get(&graph.tensor(id).name).ok_or_else(|| missing(id))?;
        check_residence(plan, id, tensor.buffer(), tensor.layout())?;
        let shared = Arc::clone(tensor.buffer().shared());
        Ok(BoundRegion { shared, offset_bytes: 0 })
    };
    let of_chunk = |chunk: usize| {
        let buffer = workspace
            .chunk(plan, chunk, copy)
            .ok_or_else(|| RunError::PlanMismatch(format!("chunk {chunk} is not reserved")))?;
        Ok(BoundRegion { shared: Arc::clone(buffer.shared()), offset_bytes: 0 })
    };
    let collect = |regions: &mut dyn Iterator<Item = Result<BoundRegion, RunError>>| {
        regions.collect::<Result<Vec<_>, RunError>>()
    };
    Ok(Bindings {
        weights: collect(&mut plan.weights.iter().map(of_weight))?,
        states: collect(&mut plan.states.iter().map(of_state))?,
        chunks: collect(&mut (0..plan.route().chunks.len()).map(of_chunk))?,
        splits: plan.route().splits.iter().map(|split| split.regions.clone()).collect(),
    })
}

/// A plan is bound to memory of the kinds and layouts that it was made for, and to no other.
fn check_residence(
    plan: &Plan,
    id: TensorId,
    buffer: &Buffer,
    layout: &Layout,
) -> Result<(), RunError> {
    let desc = plan.graph.tensor(id);
    let name = &desc.name;
    let planned = plan.residence.of(id).map(|kind| kind.name());
    let found = buffer.buffer_type().name();
    if planned != Some(found) {
        let planned = planned.unwrap_or("no memory");
        let problem = format!("{name:?} lies in {found}, planned for {planned}");
        return Err(RunError::PlanMismatch(problem));
    }
    if *layout != desc.layout {
        let problem = format!("{name:?} is {layout}, planned for {}", desc.layout);
        return Err(RunError::PlanMismatch(problem));
    }
    Ok(())
}
