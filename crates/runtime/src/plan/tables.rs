//! Whether the tables of a blueprint fit each other.
//!
//! A blueprint is plain data that anybody can change. Before one is compiled every number in it
//! is held against the list that it counts, so that the executor can look up without asking.
//! What the tables mean is the business of [`verify`](super::verify).

use tensoryard_graph::{Origin, TensorId};

use super::{Blueprint, Slot, Value};
use crate::PlanError;

type Check = fn(&Blueprint) -> bool;

/// # Errors
/// The first tables that do not fit each other.
pub(super) fn check(blueprint: &Blueprint) -> Result<(), PlanError> {
    let checks: [(Check, &str); 5] = [
        (lists_are_whole, "lists of different lengths"),
        (operations_are_known, "operations name what there is not"),
        (splits_are_known, "splits name what there is not"),
        (leaves_are_known, "regions stand for no leaves"),
        (places_are_known, "places lie in no chunk"),
    ];
    match checks.iter().find(|(holds, _)| !holds(blueprint)) {
        Some((_, what)) => Err(PlanError::Blueprint((*what).to_owned())),
        None => Ok(()),
    }
}

fn is_known(blueprint: &Blueprint, id: TensorId) -> bool {
    id.index() < blueprint.graph.len()
}

fn lists_are_whole(blueprint: &Blueprint) -> bool {
    let Blueprint { graph, memory, operations, places, .. } = blueprint;
    blueprint.placement.len() == graph.len()
        && blueprint.residence.len() == graph.len()
        && memory.tensors.len() == graph.len()
        && memory.arrivals.len() == blueprint.arrivals.len()
        && memory.temporaries.len() == blueprint.temporaries.len()
        && places.results.len() == operations.entries.len()
        && places.sources.len() == operations.values.len()
}

fn operations_are_known(blueprint: &Blueprint) -> bool {
    let operations = &blueprint.operations;
    let value = |value: Value| match value {
        Value::Tensor(id) => is_known(blueprint, id),
        Value::Copy(arrival, id) => arrival.0 < blueprint.arrivals.len() && is_known(blueprint, id),
        Value::Temporary(number) => number < blueprint.temporaries.len(),
    };
    operations.nodes.iter().all(|&id| is_known(blueprint, id))
        && operations.values.iter().flatten().all(|&operand| value(operand))
        && operations.entries.iter().all(|entry| {
            value(entry.dst)
                && operations.values.get(entry.sources.clone()).is_some()
                && operations.nodes.get(entry.nodes.clone()).is_some()
        })
}

fn splits_are_known(blueprint: &Blueprint) -> bool {
    let devices = blueprint.devices.len();
    blueprint.splits.iter().all(|split| {
        split.device.0 < devices
            && blueprint.operations.entries.get(split.steps.clone()).is_some()
            && split.arrivals.iter().all(|arrival| arrival.0 < blueprint.arrivals.len())
            && split.observed.iter().all(|&id| is_known(blueprint, id))
    }) && blueprint
        .arrivals
        .iter()
        .all(|arrival| arrival.device.0 < devices && is_known(blueprint, arrival.tensor))
}

fn leaves_are_known(blueprint: &Blueprint) -> bool {
    let are = |ids: &[TensorId], origin: Origin| {
        ids.iter().all(|&id| is_known(blueprint, id) && blueprint.graph.tensor(id).origin == origin)
    };
    are(&blueprint.weights, Origin::Weight) && are(&blueprint.states, Origin::State)
}

fn places_are_known(blueprint: &Blueprint) -> bool {
    let memory = &blueprint.memory;
    let own = memory.tensors.iter().filter_map(|(_, slot)| match slot {
        Slot::Fresh(place) | Slot::Reuses { place, .. } => Some(place),
        Slot::None | Slot::External | Slot::Within { .. } => None,
    });
    let roots = memory.tensors.iter().all(|(_, slot)| match slot {
        Slot::Within { root, .. } => is_known(blueprint, *root),
        Slot::None | Slot::External | Slot::Fresh(_) | Slot::Reuses { .. } => true,
    });
    let mut places = own.chain(&memory.arrivals).chain(&memory.temporaries);
    roots
        && places.all(|place| place.chunk < memory.chunks.len())
        && memory.chunks.iter().all(|chunk| chunk.pool < memory.pools.len())
}
