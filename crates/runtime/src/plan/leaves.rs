//! The weights and state tensors of a set of graphs, each once, with all that uses them.
//!
//! The order is that of first use, so that what one block of a model needs stands together.

use std::collections::HashMap;

use tensoryard_graph::{Graph, Layout, Origin, TensorId};

use super::{PlanDevice, can_use};
use crate::{BufferType, OpCase, PlanError, StepOp, WeightUse};

/// What kind of leaf outlives a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafKind {
    Weight,
    State,
}

impl LeafKind {
    pub fn name(self) -> &'static str {
        match self {
            LeafKind::Weight => "weight",
            LeafKind::State => "state",
        }
    }
}

/// A tensor of one of the graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub graph: usize,
    pub tensor: TensorId,
}

/// A weight or state tensor.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub kind: LeafKind,
    pub name: String,
    pub layout: Layout,
    /// Where it stands in the graphs.
    pub spots: Vec<Spot>,
    /// The ops that have it as an operand, views included.
    pub uses: Vec<WeightUse>,
    /// The ops that compute with it, through any view.
    pub readers: Vec<Spot>,
    /// Whether a part of it is looked at.
    pub viewed: bool,
}

/// Collects the leaves of all graphs in order of first use.
pub(crate) fn collect(graphs: &[&Graph]) -> Result<Vec<Leaf>, PlanError> {
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut index: HashMap<(String, &'static str), usize> = HashMap::new();
    for (number, graph) in graphs.iter().enumerate() {
        let mut here: HashMap<TensorId, usize> = HashMap::new();
        for id in graph.ids().filter(|&id| graph.is_live(id)) {
            let desc = graph.tensor(id);
            let kind = match desc.origin {
                Origin::Weight => LeafKind::Weight,
                Origin::State => LeafKind::State,
                Origin::Input | Origin::Op(_) => continue,
            };
            let at = *index.entry((desc.name.clone(), kind.name())).or_insert(leaves.len());
            match leaves.get_mut(at) {
                Some(leaf) if leaf.layout != desc.layout => {
                    return Err(PlanError::LeavesDisagree {
                        kind: kind.name(),
                        name: desc.name.clone(),
                        first: leaf.layout,
                        second: desc.layout,
                    });
                }
                Some(_) => {}
                None => leaves.push(Leaf {
                    kind,
                    name: desc.name.clone(),
                    layout: desc.layout,
                    spots: Vec::new(),
                    uses: Vec::new(),
                    readers: Vec::new(),
                    viewed: false,
                }),
            }
            leaves[at].spots.push(Spot { graph: number, tensor: id });
            here.insert(id, at);
        }
        for id in graph.ids().filter(|&id| graph.is_live(id)) {
            let desc = graph.tensor(id);
            let Some(op) = desc.op() else { continue };
            for (operand, source) in desc.sources.iter().enumerate() {
                let Some(source) = *source else { continue };
                if let Some(&at) = here.get(&source) {
                    leaves[at].uses.push(WeightUse { op: op.kind(), operand });
                }
                let Some(&at) = here.get(&graph.root(source)) else { continue };
                let spot = Spot { graph: number, tensor: id };
                if op.is_view() {
                    leaves[at].viewed = true;
                } else if leaves[at].readers.last() != Some(&spot) {
                    leaves[at].readers.push(spot);
                }
            }
        }
    }
    leaves.sort_by_key(|leaf| leaf.readers.first().or(leaf.spots.first()).copied());
    Ok(leaves)
}

impl Leaf {
    /// How many of its readers the device runs with the leaf in that kind of memory.
    pub fn runnable(&self, graphs: &[&Graph], device: &PlanDevice, kind: &dyn BufferType) -> usize {
        if !can_use(device, kind) {
            return 0;
        }
        self.readers
            .iter()
            .filter(|spot| self.runs(graphs[spot.graph], **spot, device, kind))
            .count()
    }

    fn runs(&self, graph: &Graph, spot: Spot, device: &PlanDevice, kind: &dyn BufferType) -> bool {
        let desc = graph.tensor(spot.tensor);
        let Some(op) = desc.op() else { return true };
        let own = &*device.buffer_type;
        let fits = |layout: &Layout| own.tensor_bytes(layout) <= own.max_size();
        if desc.view.is_none() && !fits(&desc.layout) {
            return false;
        }
        let is_self = |id: TensorId| graph.tensor(graph.root(id)).name == self.name;
        let kinds: Vec<Option<&dyn BufferType>> = desc
            .sources
            .iter()
            .map(|source| source.filter(|&id| is_self(id)).map(|_| kind))
            .collect();
        let layouts: Vec<Option<Layout>> =
            desc.sources.iter().map(|source| source.map(|id| *graph.layout(id))).collect();
        let op = StepOp::Op(*op);
        let case = OpCase { op: &op, sources: &layouts, buffer_types: &kinds, dst: &desc.layout };
        device.device.supports_op(&case).is_ok()
    }
}
