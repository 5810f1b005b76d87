//! Whether the tables of a plan fit each other, so that a walk may look things up in them.
//!
//! Each question is about two tables; the answers say nothing of what the entries mean.

use crate::plan::{Blueprint, OperationEntry, Value};

/// As many places as operations have results and sources.
pub(super) fn has_places_for_values(plan: &Blueprint) -> bool {
    let operations = &plan.operations;
    plan.places.results.len() == operations.len()
        && plan.places.sources.len() == operations.values.len()
        && operations
            .values
            .iter()
            .zip(&plan.places.sources)
            .all(|(value, place)| value.is_some() == place.is_some())
}

/// Every operation has its operands and nodes, which the graph knows.
pub(super) fn has_whole_entries(plan: &Blueprint) -> bool {
    let operations = &plan.operations;
    let whole_entries = operations.entries.iter().all(|entry| {
        operations.values.get(entry.sources.clone()).is_some()
            && operations.nodes.get(entry.nodes.clone()).is_some()
    });
    whole_entries && operations.nodes.iter().all(|id| id.index() < plan.graph.len())
}

/// Splits stand for all operations in order, each for those of its device.
pub(super) fn has_whole_splits(plan: &Blueprint) -> bool {
    let operations = &plan.operations;
    let mut next = 0;
    plan.splits.iter().all(|split| {
        let entries = operations.entries.get(split.steps.clone());
        let follows = split.steps.start == next;
        next = split.steps.end;
        let same = |entries: &[OperationEntry]| entries.iter().all(|e| e.device == split.device);
        follows && entries.is_some_and(same)
    }) && next == operations.len()
}

/// Every value stands for a tensor, a copy or a temporary that there is.
pub(super) fn has_known_values(plan: &Blueprint) -> bool {
    let operations = &plan.operations;
    let results = operations.entries.iter().map(|entry| entry.dst);
    let mut values = operations.values.iter().flatten().copied().chain(results);
    values.all(|value| match value {
        Value::Tensor(id) => id.index() < plan.graph.len(),
        Value::Copy(index, id) => index.0 < plan.arrivals.len() && id.index() < plan.graph.len(),
        Value::Temporary(number) => number < plan.temporaries.len(),
    })
}
