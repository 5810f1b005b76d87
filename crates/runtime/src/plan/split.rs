//! Stage 2: runs of nodes on one device, and the tensors that must be copied in before each.
//!
//! Guarantee: the nodes keep graph order, so each tensor is computed before any split that
//! copies it. One version of a tensor is copied into each kind of memory at most once, and only
//! what is read of it. The graph is cut where the device changes, after a node that is observed,
//! and before a node that needs a copied-in weight when the split has arrivals already, so that
//! streamed weights can share memory. Accepted weakness: the cut for a weight may stand between
//! nodes that would be fused.

use std::ops::Range;

use tensoryard_graph::{Graph, TensorId};

pub use super::arrivals::Copies;
use super::facts::{Facts, Memory};
use super::{DeviceIndex, Placement};

/// Position in a plan's list of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrivalIndex(pub usize);

/// A tensor that is copied into the memory of a device, layout kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The tensor: what is read there, or the root of several views that are.
    pub tensor: TensorId,
    /// The version of the root's memory that is copied. A root stands for any of its versions.
    pub version: u32,
    /// The device that it is copied to. Others that use the same kind of memory may read it.
    pub device: DeviceIndex,
    /// The split before which it is copied.
    pub split: usize,
    /// It copies a graph input, and both keep their memory through the whole run: while the input
    /// stays the same, the copy is still there in the next run.
    pub kept: bool,
}

/// A run of nodes on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The device.
    pub device: DeviceIndex,
    /// The nodes that compute something, as positions in [`Graph::nodes`].
    pub nodes: Range<usize>,
    /// Tensors copied in before the nodes run.
    pub arrivals: Vec<ArrivalIndex>,
    /// Tensors whose values are wanted as they are behind it, in graph order.
    pub observed: Vec<TensorId>,
}

/// The splits of a graph in order, and what is copied for them.
#[derive(Debug)]
pub struct Splits {
    /// The splits.
    pub splits: Vec<Split>,
    /// The arrivals, in the order in which they are copied.
    pub arrivals: Vec<Arrival>,
    /// Where to look for the copy of a tensor.
    pub copies: Copies,
}

/// Cuts the live nodes into splits and finds what has to be copied.
///
/// A split ends behind each node of `observed`, and behind the last node before each view of it.
/// Views that are observed before anything is computed go to a first split without nodes, and a
/// graph of views only is one such split. Leaves, and what nothing reads, are not observed.
#[doc(alias = "ggml_backend_sched_split_graph")]
pub fn split(
    facts: &Facts<'_>,
    placement: &Placement,
    memory: &Memory,
    observed: &[TensorId],
) -> Splits {
    let graph = facts.graph;
    let nodes = graph.nodes();
    let first = DeviceIndex(0);
    let devices: Vec<DeviceIndex> =
        nodes.iter().map(|node| placement.device(node.id).unwrap_or(first)).collect();
    let copies = Copies::find(facts, memory, &devices);
    let mut splits = Splits { splits: Vec::new(), arrivals: Vec::new(), copies };
    let observed = observable(graph, observed);
    let mut observed = observed.as_slice();
    let leading = take_before(&mut observed, nodes.first().map(|node| node.id));
    let first_view = leading.first().or_else(|| graph.live_views().first());
    if let Some(&view) = first_view
        && (nodes.is_empty() || !leading.is_empty())
    {
        splits.begin(placement.device(view).unwrap_or(first), 0, leading);
    }
    let mut cut = true;
    let mut next_read = 0;
    for (position, &device) in devices.iter().enumerate() {
        let start = next_read;
        while splits.copies.reads.get(next_read).is_some_and(|read| read.node == position) {
            next_read += 1;
        }
        if cut || !splits.goes_on(device, start..next_read) {
            splits.begin(device, position, Vec::new());
        }
        let seen = take_before(&mut observed, nodes.get(position + 1).map(|node| node.id));
        cut = !seen.is_empty();
        splits.take_in(position, start..next_read, seen);
    }
    splits
}

impl Splits {
    fn begin(&mut self, device: DeviceIndex, at: usize, observed: Vec<TensorId>) {
        self.splits.push(Split { device, nodes: at..at, arrivals: Vec::new(), observed });
    }

    /// The copy that a read needs, unless it has arrived already.
    fn fresh(&self, read: usize) -> Option<usize> {
        let copy = self.copies.copy_of(self.copies.reads[read]);
        self.copies.copies[copy].arrival.is_none().then_some(copy)
    }

    /// Whether a node with these reads may run in the last split.
    fn goes_on(&self, device: DeviceIndex, mut reads: Range<usize>) -> bool {
        let Some(split) = self.splits.last() else { return false };
        let streams = |read| self.fresh(read).is_some_and(|copy| self.copies.copies[copy].streams);
        split.device == device && (split.arrivals.is_empty() || !reads.any(streams))
    }

    /// Adds a node to the last split, with what has to be copied for it and is observed behind it.
    fn take_in(&mut self, position: usize, reads: Range<usize>, observed: Vec<TensorId>) {
        let number = self.splits.len() - 1;
        let device = self.splits[number].device;
        for read in reads {
            let Some(copy) = self.fresh(read) else { continue };
            let index = ArrivalIndex(self.arrivals.len());
            let copy = &mut self.copies.copies[copy];
            copy.arrival = Some(index);
            let (tensor, version, kept) = (copy.tensor, copy.version, copy.kept);
            self.arrivals.push(Arrival { tensor, version, device, split: number, kept });
            self.splits[number].arrivals.push(index);
        }
        let split = &mut self.splits[number];
        split.nodes.end = position + 1;
        if !observed.is_empty() {
            split.observed = observed;
        }
    }
}

/// The live nodes and views among the ids, in order, each once.
fn observable(graph: &Graph, ids: &[TensorId]) -> Vec<TensorId> {
    let known = |id: TensorId| id.index() < graph.len();
    let mut ids: Vec<TensorId> = ids
        .iter()
        .copied()
        .filter(|&id| known(id) && graph.is_live(id) && graph.tensor(id).op().is_some())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Takes the ids before `end`, or all, from the front.
fn take_before(ids: &mut &[TensorId], end: Option<TensorId>) -> Vec<TensorId> {
    let count = end.map_or(ids.len(), |end| ids.partition_point(|&id| id < end));
    let (taken, rest) = ids.split_at(count);
    *ids = rest;
    taken.to_vec()
}
