//! Stage 5: operations become steps with places in memory.
//!
//! Each source is marked as disjoint from the destination or as the very same memory; a plan in
//! which they overlap otherwise is refused here, whatever made it.

use std::collections::HashMap;
use std::sync::Arc;

use tensoryard_graph::{Graph, Layout, Origin, TensorId};

use super::allocate::Place;
use super::select::Selected;
use super::{Arrival, MemoryPlan, Operation, Placement, PlanDevice, Residence, Value};
use crate::{Aliasing, BufferType, Operand, Region, Step};

/// The steps of all splits, and what their regions stand for.
#[derive(Debug)]
pub struct Lowered {
    /// Steps of each split.
    pub steps: Vec<Vec<Step>>,
    /// The weights that [`Region::Weight`] numbers stand for.
    pub weights: Vec<TensorId>,
    /// The state tensors that [`Region::State`] numbers stand for.
    pub states: Vec<TensorId>,
}

struct Lowerer<'a> {
    graph: &'a Graph,
    devices: &'a [PlanDevice],
    residence: &'a Residence,
    placement: &'a Placement,
    arrivals: &'a [Arrival],
    temporaries: &'a [Layout],
    memory: &'a MemoryPlan,
    weights: Vec<TensorId>,
    states: Vec<TensorId>,
    numbers: HashMap<TensorId, Region>,
}

/// Gives every operation its places in memory.
pub fn lower(
    graph: &Graph,
    devices: &[PlanDevice],
    residence: &Residence,
    placement: &Placement,
    arrivals: &[Arrival],
    selected: &Selected,
    memory: &MemoryPlan,
) -> Lowered {
    let mut lowerer = Lowerer {
        graph,
        devices,
        residence,
        placement,
        arrivals,
        temporaries: &selected.temporaries,
        memory,
        weights: Vec::new(),
        states: Vec::new(),
        numbers: HashMap::new(),
    };
    let steps = selected
        .ranges
        .iter()
        .map(|range| selected.operations[range.clone()].iter().map(|op| lowerer.step(op)).collect())
        .collect();
    // What only a copy reads needs a number, too.
    for arrival in arrivals {
        let root = graph.root(arrival.tensor);
        if residence.of(root).is_some() {
            lowerer.external(root);
        }
    }
    Lowered { steps, weights: lowerer.weights, states: lowerer.states }
}

impl Lowerer<'_> {
    fn step(&mut self, operation: &Operation) -> Step {
        let dst = self.operand(operation.dst);
        let name = match (operation.nodes.last(), operation.dst) {
            (Some(&node), _) => self.graph.tensor(node).name.clone(),
            (None, Value::Temporary(number)) => format!("temporary.{number}"),
            (None, Value::Tensor(_) | Value::Arrival(_)) => String::new(),
        };
        let sources = operation.sources.iter().map(|source| {
            source.map(|value| {
                let mut operand = self.operand(value);
                operand.aliasing = aliasing(&operand, &dst);
                operand
            })
        });
        let sources = sources.collect();
        Step { name, op: operation.op, dst, sources }
    }

    fn operand(&mut self, value: Value) -> Operand {
        match value {
            Value::Tensor(id) => self.tensor(id),
            Value::Arrival(index) => {
                let arrival = self.arrivals[index.0];
                let device = &self.devices[arrival.device.0];
                let layout = *self.graph.layout(arrival.tensor);
                in_chunk(self.memory.arrivals[index.0], layout, &device.buffer_type)
            }
            Value::Temporary(number) => {
                let place = self.memory.temporaries[number];
                let pool = &self.memory.pools[self.memory.chunks[place.chunk].0];
                in_chunk(place, self.temporaries[number], &pool.buffer_type)
            }
        }
    }

    fn tensor(&mut self, id: TensorId) -> Operand {
        let layout = *self.graph.layout(id);
        let root = self.graph.root(id);
        if let Some(kind) = self.residence.of(root) {
            return Operand {
                region: self.external(root),
                offset_bytes: self.graph.root_offset(id),
                layout,
                buffer_type: Arc::clone(kind),
                aliasing: Aliasing::Disjoint,
            };
        }
        let place = self.memory.locate(id);
        let device = self.placement.device(root);
        // The allocator gave every value of an operation a place on a placed device.
        let (Some(place), Some(device)) = (place, device) else {
            unreachable!("{id} of graph {:?} has no memory", self.graph.name());
        };
        in_chunk(place, layout, &self.devices[device.0].buffer_type)
    }

    fn external(&mut self, root: TensorId) -> Region {
        let (weights, states) = (&mut self.weights, &mut self.states);
        let is_state = self.graph.tensor(root).origin == Origin::State;
        *self.numbers.entry(root).or_insert_with(|| {
            let list = if is_state { states } else { weights };
            list.push(root);
            let number = u32::try_from(list.len() - 1).unwrap_or(u32::MAX);
            if is_state { Region::State(number) } else { Region::Weight(number) }
        })
    }
}

fn in_chunk(place: Place, layout: Layout, buffer_type: &Arc<dyn BufferType>) -> Operand {
    Operand {
        region: Region::Chunk(u32::try_from(place.chunk).unwrap_or(u32::MAX)),
        offset_bytes: place.offset_bytes,
        layout,
        buffer_type: Arc::clone(buffer_type),
        aliasing: Aliasing::Disjoint,
    }
}

fn aliasing(source: &Operand, dst: &Operand) -> Aliasing {
    let end = |operand: &Operand| operand.offset_bytes + operand.layout.extent_bytes();
    let apart = source.region != dst.region
        || end(source) <= dst.offset_bytes
        || end(dst) <= source.offset_bytes;
    if apart {
        return Aliasing::Disjoint;
    }
    let same = source.offset_bytes == dst.offset_bytes && source.layout == dst.layout;
    assert!(same, "a source overlaps the destination of its step: {source:?} and {dst:?}");
    Aliasing::SameAsDst
}
