//! Stage 5: operations get places in memory, ready to be compiled.
//!
//! Each source is marked as disjoint from the destination or as the very same memory; a plan in
//! which they overlap otherwise is refused here, whatever made it.

use std::ops::Range;

use tensoryard_graph::{Layout, TensorId, TensorMap};

use super::facts::{External, Facts};
use super::select::Selected;
use super::{Arrival, MemoryPlan, Slot, Value};
use crate::{Aliasing, PlanError, Region};

/// Where an operand lies. Its layout is that of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The memory.
    pub region: Region,
    /// Distance in bytes from the start of the region to the first element.
    pub offset_bytes: usize,
    /// How it lies to the destination of its operation.
    pub aliasing: Aliasing,
}

/// The places of all operands of [`super::Operations`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Places {
    /// For each operation that of its result.
    pub results: Vec<Located>,
    /// For each operand, as in [`super::Operations::values`].
    pub sources: Vec<Option<Located>>,
}

/// Where everything lies, and what the regions stand for.
#[derive(Debug)]
pub struct Lowered {
    /// Places of operands and results.
    pub places: Places,
    /// The weights that [`Region::Weight`] numbers stand for.
    pub weights: Vec<TensorId>,
    /// The state tensors that [`Region::State`] numbers stand for.
    pub states: Vec<TensorId>,
}

struct Lowerer<'a> {
    facts: &'a Facts<'a>,
    arrivals: &'a [Arrival],
    temporaries: &'a [Layout],
    memory: &'a MemoryPlan,
    weights: Vec<TensorId>,
    states: Vec<TensorId>,
    numbers: TensorMap<Option<Region>>,
}

/// Gives every operation its places in memory.
///
/// # Errors
/// A value without memory, or one that overlaps the result of its operation: the tables of the
/// stages before do not fit each other.
pub fn lower(
    facts: &Facts<'_>,
    arrivals: &[Arrival],
    selected: &Selected,
    memory: &MemoryPlan,
) -> Result<Lowered, PlanError> {
    let operations = &selected.operations;
    let mut lowerer = Lowerer {
        facts,
        arrivals,
        temporaries: &selected.temporaries,
        memory,
        weights: Vec::new(),
        states: Vec::new(),
        numbers: TensorMap::filled(None, facts.graph.len()),
    };
    let mut places = Places {
        results: Vec::with_capacity(operations.len()),
        sources: Vec::with_capacity(operations.values.len()),
    };
    for entry in &operations.entries {
        let dst = lowerer.locate(entry.dst).ok_or_else(|| lowerer.missing(entry.dst))?;
        for source in operations.values.get(entry.sources.clone()).unwrap_or_default() {
            let Some(value) = *source else {
                places.sources.push(None);
                continue;
            };
            let mut located = lowerer.locate(value).ok_or_else(|| lowerer.missing(value))?;
            let aliasing = lowerer.aliasing((value, located), (entry.dst, dst));
            located.aliasing = aliasing.ok_or_else(|| lowerer.overlap(value, entry.dst))?;
            places.sources.push(Some(located));
        }
        places.results.push(dst);
    }
    // What only a copy reads needs a number, too.
    for arrival in arrivals {
        let root = facts.graph.root(arrival.tensor);
        if facts.external(root) != External::No {
            lowerer.number(root);
        }
    }
    Ok(Lowered { places, weights: lowerer.weights, states: lowerer.states })
}

fn in_chunk(chunk: usize, offset_bytes: usize) -> Located {
    let region = Region::Chunk(u32::try_from(chunk).unwrap_or(u32::MAX));
    Located { region, offset_bytes, aliasing: Aliasing::Disjoint }
}

impl Lowerer<'_> {
    /// Where a value lies; `None` when it has no memory.
    fn locate(&mut self, value: Value) -> Option<Located> {
        let graph = self.facts.graph;
        match value {
            Value::Tensor(id) => {
                let root = graph.root(id);
                let within = if root == id { 0 } else { graph.root_offset(id) };
                match self.memory.tensors[root] {
                    Slot::Fresh(place) | Slot::Reuses { place, .. } => {
                        Some(in_chunk(place.chunk, place.offset_bytes + within))
                    }
                    Slot::External => Some(Located {
                        region: self.number(root),
                        offset_bytes: within,
                        aliasing: Aliasing::Disjoint,
                    }),
                    Slot::None | Slot::Within { .. } => None,
                }
            }
            Value::Copy(index, id) => {
                let place = self.memory.arrivals[index.0];
                let start = graph.root_offset(self.arrivals[index.0].tensor);
                let within = graph.root_offset(id).saturating_sub(start);
                Some(in_chunk(place.chunk, place.offset_bytes + within))
            }
            Value::Temporary(number) => {
                let place = self.memory.temporaries[number];
                Some(in_chunk(place.chunk, place.offset_bytes))
            }
        }
    }

    fn number(&mut self, root: TensorId) -> Region {
        let (weights, states) = (&mut self.weights, &mut self.states);
        let is_state = self.facts.external(root) == External::State;
        *self.numbers[root].get_or_insert_with(|| {
            let list = if is_state { states } else { weights };
            list.push(root);
            let number = u32::try_from(list.len() - 1).unwrap_or(u32::MAX);
            if is_state { Region::State(number) } else { Region::Weight(number) }
        })
    }

    fn layout(&self, value: Value) -> &Layout {
        match value {
            Value::Tensor(id) | Value::Copy(_, id) => self.facts.graph.layout(id),
            Value::Temporary(number) => &self.temporaries[number],
        }
    }

    /// The bytes that a value may take, if that is known without a look at its layout.
    fn reserved(&self, (value, located): (Value, Located)) -> Option<Range<usize>> {
        let Value::Tensor(id) = value else { return None };
        match self.memory.tensors[id] {
            Slot::Fresh(place) | Slot::Reuses { place, .. } => {
                Some(located.offset_bytes..located.offset_bytes + place.bytes)
            }
            Slot::None | Slot::External | Slot::Within { .. } => None,
        }
    }

    /// How a source lies to the destination; `None` when it overlaps it otherwise than at the
    /// same place with the same layout.
    fn aliasing(&self, source: (Value, Located), dst: (Value, Located)) -> Option<Aliasing> {
        if source.1.region != dst.1.region {
            return Some(Aliasing::Disjoint);
        }
        let apart = |a: Range<usize>, b: Range<usize>| a.end <= b.start || b.end <= a.start;
        if let (Some(a), Some(b)) = (self.reserved(source), self.reserved(dst))
            && apart(a, b)
        {
            return Some(Aliasing::Disjoint);
        }
        let exact = |(value, located): (Value, Located)| {
            let start = located.offset_bytes;
            start..start + self.layout(value).extent_bytes()
        };
        if apart(exact(source), exact(dst)) {
            return Some(Aliasing::Disjoint);
        }
        let same_start = source.1.offset_bytes == dst.1.offset_bytes;
        let same = same_start && self.layout(source.0) == self.layout(dst.0);
        same.then_some(Aliasing::SameAsDst)
    }

    fn missing(&self, value: Value) -> PlanError {
        PlanError::Blueprint(format!("{} has no memory", self.name(value)))
    }

    fn overlap(&self, source: Value, dst: Value) -> PlanError {
        let (source, dst) = (self.name(source), self.name(dst));
        PlanError::Blueprint(format!("{source} overlaps {dst}, which is computed from it"))
    }

    fn name(&self, value: Value) -> String {
        match value {
            Value::Tensor(id) => format!("{:?}", self.facts.graph.tensor(id).name),
            Value::Copy(_, id) => format!("a copy of {:?}", self.facts.graph.tensor(id).name),
            Value::Temporary(number) => format!("temporary {number}"),
        }
    }
}
