//! Stage 2: runs of nodes on one device, and the tensors that must be copied in before each.
//!
//! Guarantee: the nodes keep graph order, so each tensor is computed before any split that
//! copies it. A tensor is copied at most once into each device's memory. Accepted weakness:
//! two views of one tensor are two copies.

use std::collections::HashMap;

use tensoryard_graph::{Graph, TensorId};

use super::{DeviceIndex, Placement, PlanDevice, Residence, can_use};
use crate::BufferType;

/// Position in a plan's list of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrivalIndex(pub usize);

/// A tensor that is copied into the memory of a device, layout kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The tensor.
    pub tensor: TensorId,
    /// The device that it is copied to.
    pub device: DeviceIndex,
    /// The split before which it is copied.
    pub split: usize,
}

/// A run of nodes on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The device.
    pub device: DeviceIndex,
    /// The nodes that compute something, in graph order.
    pub nodes: Vec<TensorId>,
    /// Tensors copied in before the nodes run.
    pub arrivals: Vec<ArrivalIndex>,
}

/// The kind of memory that a placed tensor lies in.
pub(crate) fn memory_of<'a>(
    graph: &Graph,
    devices: &'a [PlanDevice],
    residence: &'a Residence,
    placement: &Placement,
    id: TensorId,
) -> Option<&'a dyn BufferType> {
    let root = graph.root(id);
    if let Some(kind) = residence.of(root) {
        return Some(&**kind);
    }
    placement.device(root).map(|device| &*devices[device.0].buffer_type)
}

/// Cuts the live nodes into splits and finds what has to be copied.
pub fn split(
    graph: &Graph,
    devices: &[PlanDevice],
    residence: &Residence,
    placement: &Placement,
) -> (Vec<Split>, Vec<Arrival>) {
    let mut splits: Vec<Split> = Vec::new();
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut known: HashMap<(TensorId, DeviceIndex), ArrivalIndex> = HashMap::new();
    for id in graph.live_nodes() {
        let Some(device) = placement.device(id) else { continue };
        if splits.last().is_none_or(|split| split.device != device) {
            splits.push(Split { device, nodes: Vec::new(), arrivals: Vec::new() });
        }
        let number = splits.len() - 1;
        let desc = graph.tensor(id);
        let written = desc.op().and_then(|op| op.writes());
        for (operand, source) in desc.sources.iter().enumerate() {
            let Some(source) = *source else { continue };
            let usable = memory_of(graph, devices, residence, placement, source)
                .is_none_or(|memory| can_use(&devices[device.0], memory));
            // What an op writes into is never a copy: placement puts the op where the base is.
            if usable || written == Some(operand) {
                continue;
            }
            known.entry((source, device)).or_insert_with(|| {
                let index = ArrivalIndex(arrivals.len());
                arrivals.push(Arrival { tensor: source, device, split: number });
                splits[number].arrivals.push(index);
                index
            });
        }
        splits[number].nodes.push(id);
    }
    (splits, arrivals)
}
