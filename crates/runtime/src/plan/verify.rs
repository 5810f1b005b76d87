//! The plan verifier.
//!
//! Walks a finished plan as the executor would and keeps book of what every byte of memory
//! holds. It shares no code with the stages that make plans and believes none of their side
//! tables: where a table and the steps disagree, that is a violation. Tests verify every plan.
//!
//! # Catalogue
//! 1. The tables fit each other: as many steps as operations, on the same devices, with the
//!    same ops; regions stand for live weights and states, each once; pools and places exist.
//! 2. Every live node is computed exactly once, by its own step or a fused one; nothing else is.
//! 3. A step computes what its nodes declare: op, parameters and operands of a single node; for
//!    a fused step the chain of its nodes, whose inner values nothing else uses.
//! 4. A temporary has the type and shape of what it is a copy of.
//! 5. Every byte that a source reads was written as that byte of that tensor and not since
//!    overwritten. So sources come before readers, and no two live values share memory.
//! 6. It has the very version that the source names. So reads come before the next write.
//! 7. A write goes to its base where that lives, after the version before it; every state holds
//!    its last version after the run. Results go to compute memory, never to weights.
//! 8. Outputs are intact after the run.
//! 9. Every live input has memory.
//! 10. Every arrival happens once, before its split, on its device, and copies a tensor that is
//!     there, in the version that it names.
//! 11. Tensors begin at the alignment of their kind of memory.
//! 12. Everything lies inside its chunk, with the padding that its kind of memory asks for.
//! 13. No chunk is larger than the largest buffer of its kind.
//! 14. The device supports each step with the layouts and kinds of memory that it gets.
//! 15. The device can use the memory of every operand.
//! 16. Sources marked disjoint share no byte range with the destination; those marked as the
//!     destination are the same place and layout, and the op may take them over or writes them.
//! 17. What is observed of a split is intact when the split has ended, in graph order.
//! 18. A kept arrival copies a graph input. Nothing else is ever in its memory or that of the
//!     input, so that both are there in the next run.
//! 19. Where memory is staged, inputs, arrivals and outputs lie in staged chunks, and nothing
//!     else does; no byte there belongs to two of them.

mod bytes;
mod step;
mod structure;
mod tables;
mod violation;

use std::collections::{HashMap, HashSet};

use tensoryard_graph::{Layout, Origin, TensorId};

pub use violation::Violation;

use self::bytes::{Contents, Tag};
use self::tables::{has_known_values, has_places_for_values, has_whole_entries, has_whole_splits};
use super::{Blueprint, Place, Slot};
use crate::{Region, StepOp};

/// Checks a plan against the catalogue of this module.
///
/// # Errors
/// Everything that is wrong, in the order in which the walk meets it.
pub fn verify(plan: &Blueprint) -> Result<(), Vec<Violation>> {
    let mut verifier = Verifier {
        plan,
        contents: Contents::default(),
        temporaries: vec![None; plan.temporaries.len()],
        arrived: vec![0; plan.arrivals.len()],
        staged: plan.memory.chunks.iter().any(|chunk| chunk.staged),
        outputs: plan.graph.outputs().map(|id| plan.graph.root(id)).collect(),
        violations: Vec::new(),
    };
    if verifier.check_tables() {
        verifier.check_places();
        verifier.fill_leaves();
        verifier.walk();
        verifier.check_nodes();
        verifier.check_end();
    }
    if verifier.violations.is_empty() { Ok(()) } else { Err(verifier.violations) }
}

struct Verifier<'a> {
    plan: &'a Blueprint,
    contents: Contents,
    /// The tensor that each temporary is a copy of, once it is written, with its version.
    temporaries: Vec<Option<TensorId>>,
    arrived: Vec<usize>,
    /// Whether memory is staged at all.
    staged: bool,
    /// Roots of outputs.
    outputs: HashSet<TensorId>,
    violations: Vec<Violation>,
}

fn chunk_region(chunk: usize) -> Region {
    Region::Chunk(u32::try_from(chunk).unwrap_or(u32::MAX))
}

fn signed(offset: usize) -> isize {
    isize::try_from(offset).unwrap_or(isize::MAX)
}

impl Verifier<'_> {
    fn report(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    /// Rules 1 and 13. Whether the rest can be walked at all.
    fn check_tables(&mut self) -> bool {
        let plan = self.plan;
        let memory = &plan.memory;
        let unique = |ids: &[TensorId], origin: Origin| {
            ids.iter().collect::<HashSet<_>>().len() == ids.len()
                && ids
                    .iter()
                    .all(|&id| plan.graph.tensor(id).origin == origin && plan.graph.is_live(id))
        };
        let places = memory.arrivals.iter().chain(&memory.temporaries).chain(
            memory.tensors.iter().filter_map(|(_, slot)| match slot {
                Slot::Fresh(place) | Slot::Reuses { place, .. } => Some(place),
                Slot::None | Slot::External | Slot::Within { .. } => None,
            }),
        );
        let checks = [
            (has_places_for_values(plan), "steps and operations"),
            (has_whole_entries(plan), "operations and nodes"),
            (has_whole_splits(plan), "splits and operations"),
            (has_known_values(plan), "operations and values"),
            (unique(&plan.weights, Origin::Weight), "weights"),
            (unique(&plan.states, Origin::State), "states"),
            (plan.arrivals.len() == memory.arrivals.len(), "arrivals and their places"),
            (plan.temporaries.len() == memory.temporaries.len(), "temporaries and their places"),
            (memory.tensors.len() == plan.graph.len(), "slots and tensors"),
            (memory.chunks.iter().all(|chunk| chunk.pool < memory.pools.len()), "chunks and pools"),
            (
                places.into_iter().all(|place| place.chunk < memory.chunks.len()),
                "places and chunks",
            ),
            (plan.splits.iter().all(|split| split.device.0 < plan.devices.len()), "devices"),
            (plan.arrivals.iter().all(|a| a.device.0 < plan.devices.len()), "arrivals and devices"),
        ];
        for (holds, what) in checks {
            if !holds {
                self.report(Violation::Tables { what });
            }
        }
        self.check_chunk_sizes();
        checks.iter().all(|&(holds, _)| holds)
    }

    /// Rule 13.
    fn check_chunk_sizes(&mut self) {
        let memory = &self.plan.memory;
        for chunk in 0..memory.chunks.len() {
            let Some(buffer_type) = memory.buffer_type(chunk) else { continue };
            let (bytes, max) = (memory.chunks[chunk].bytes, buffer_type.max_size());
            if bytes > max {
                self.report(Violation::ChunkTooLarge { chunk, bytes, max });
            }
        }
    }

    /// Rules 11 and 12, for everything that has memory of its own.
    fn check_places(&mut self) {
        let plan = self.plan;
        for id in plan.graph.ids() {
            if plan.graph.root(id) == id
                && let Some(place) = self.resolve(id)
            {
                let name = format!("{id} {:?}", plan.graph.tensor(id).name);
                self.check_place(name, place, plan.graph.layout(id));
            }
        }
        for (index, arrival) in plan.arrivals.iter().enumerate() {
            let name = format!("arrival {index}");
            self.check_place(name, plan.memory.arrivals[index], plan.graph.layout(arrival.tensor));
        }
        for (number, layout) in plan.temporaries.iter().enumerate() {
            self.check_place(
                format!("temporary {number}"),
                plan.memory.temporaries[number],
                layout,
            );
        }
    }

    fn check_place(&mut self, what: String, place: Place, layout: &Layout) {
        let size = self.plan.memory.chunks[place.chunk].bytes;
        let Some(buffer_type) = self.plan.memory.buffer_type(place.chunk) else { return };
        let (alignment, needed) = (buffer_type.alignment(), buffer_type.tensor_bytes(layout));
        let end = place.offset_bytes.saturating_add(place.bytes);
        if place.bytes < needed {
            let what = what.clone();
            self.report(Violation::TooSmall { what, bytes: place.bytes, needed });
        }
        if end > size {
            let what = what.clone();
            self.report(Violation::OutsideMemory { what, end, size });
        }
        if !place.offset_bytes.is_multiple_of(alignment) {
            let offset = place.offset_bytes;
            self.report(Violation::Misaligned { what, offset, alignment });
        }
    }

    /// Where the slots say that a root lies in compute memory.
    fn resolve(&self, root: TensorId) -> Option<Place> {
        match self.plan.memory.tensors[root] {
            Slot::Fresh(place) | Slot::Reuses { place, .. } => Some(place),
            Slot::None | Slot::External | Slot::Within { .. } => None,
        }
    }

    /// Where a tensor lies, wherever its root lives.
    fn home(&self, id: TensorId) -> Option<(Region, usize)> {
        let plan = self.plan;
        let root = plan.graph.root(id);
        let offset = plan.graph.root_offset(id);
        let number = |ids: &[TensorId]| {
            ids.iter().position(|&id| id == root).and_then(|n| u32::try_from(n).ok())
        };
        match plan.graph.tensor(root).origin {
            // A leaf that no step reads has no number, and needs none: nothing changes it.
            Origin::Weight => number(&plan.weights).map(|n| (Region::Weight(n), offset)),
            Origin::State => number(&plan.states).map(|n| (Region::State(n), offset)),
            Origin::Input | Origin::Op(_) => {
                let place = self.resolve(root)?;
                Some((chunk_region(place.chunk), place.offset_bytes.saturating_add(offset)))
            }
        }
    }

    fn tag(&self, id: TensorId, offset: usize) -> Tag {
        self.tag_of(id, self.plan.graph.tensor(id).version, offset)
    }

    fn tag_of(&self, id: TensorId, version: u32, offset: usize) -> Tag {
        let graph = &self.plan.graph;
        let start = signed(offset) - signed(graph.root_offset(id));
        Tag::Root { root: graph.root(id), version, start }
    }

    /// Rule 9; what memory holds before the first split.
    fn fill_leaves(&mut self) {
        let plan = self.plan;
        let graph = &plan.graph;
        for id in graph.live_leaves(Origin::Input) {
            match self.home(id) {
                Some((region, offset)) => {
                    if let Region::Chunk(chunk) = region {
                        let end = offset.saturating_add(graph.layout(id).extent_bytes());
                        self.check_staged(chunk as usize, offset..end, true, || id.to_string());
                    }
                    let tag = self.tag(id, offset);
                    self.contents.set_elements(region, offset, graph.layout(id), tag);
                }
                None => self.report(Violation::InputWithoutMemory { input: id }),
            }
        }
        for &id in plan.weights.iter().chain(&plan.states) {
            if let Some((region, _)) = self.home(id) {
                let tag = Tag::Root { root: id, version: 0, start: 0 };
                self.contents.set(region, 0..graph.layout(id).extent_bytes(), tag);
            }
        }
    }

    fn walk(&mut self) {
        let plan = self.plan;
        for (at, split) in plan.splits.iter().enumerate() {
            for &index in &split.arrivals {
                self.arrive(at, index.0);
            }
            for number in split.steps.clone() {
                self.step(number);
            }
            self.check_observed(at);
        }
    }

    /// Rule 17.
    fn check_observed(&mut self, split: usize) {
        let plan = self.plan;
        let observed = &plan.splits[split].observed;
        let ordered = observed.windows(2).all(|pair| pair[0] < pair[1]);
        for &id in observed {
            let known = id.index() < plan.graph.len() && plan.graph.is_live(id);
            if !(ordered && known && self.is_intact(id)) {
                self.report(Violation::NotObservable { split, tensor: id });
            }
        }
    }

    /// Whether a tensor is in its memory now, in its version.
    fn is_intact(&self, id: TensorId) -> bool {
        self.is_there(id, self.plan.graph.tensor(id).version)
    }

    fn is_there(&self, id: TensorId, version: u32) -> bool {
        let graph = &self.plan.graph;
        match self.home(id) {
            Some((region, offset)) => {
                let tag = self.tag_of(id, version, offset);
                self.contents.check_elements(region, offset, graph.layout(id), tag).is_ok()
            }
            // A leaf outside compute memory that no step touches.
            None => {
                let root = graph.tensor(graph.root(id));
                matches!(root.origin, Origin::Weight | Origin::State) && version == 0
            }
        }
    }

    /// Rules 10, 18 and 19, for one arrival.
    fn arrive(&mut self, split: usize, index: usize) {
        let plan = self.plan;
        let Some(arrival) = plan.arrivals.get(index) else {
            return self.report(Violation::WrongArrival { arrival: index, what: "unknown" });
        };
        let wrong = |what| Violation::WrongArrival { arrival: index, what };
        self.arrived[index] += 1;
        if arrival.split != split || arrival.device != plan.splits[split].device {
            self.report(wrong("it happens before another split"));
        }
        let place = plan.memory.arrivals[index];
        let kind = plan.devices[arrival.device.0].buffer_type.name();
        if plan.memory.buffer_type(place.chunk).is_none_or(|found| found.name() != kind) {
            self.report(wrong("it goes to memory of another device"));
        }
        if !self.is_there(arrival.tensor, arrival.version) {
            let tensor = arrival.tensor;
            self.report(Violation::ArrivalCopiesOther { arrival: index, tensor });
        }
        let layout = plan.graph.layout(arrival.tensor);
        let region = chunk_region(place.chunk);
        let root = plan.graph.root(arrival.tensor);
        let range = place.offset_bytes..place.offset_bytes.saturating_add(layout.extent_bytes());
        if arrival.kept {
            if plan.graph.tensor(root).origin != Origin::Input {
                self.report(wrong("it is kept, but copies no input"));
            }
            if !self.contents.is_untouched(region, range.clone()) {
                self.report(wrong("it is kept where something else was before"));
            }
        }
        self.check_staged(place.chunk, range, true, || format!("arrival {index}"));
        let tag = self.tag_of(arrival.tensor, arrival.version, place.offset_bytes);
        self.contents.set_elements(region, place.offset_bytes, layout, tag);
    }

    /// Rule 19, for bytes that a value begins to take.
    fn check_staged(
        &mut self,
        chunk: usize,
        range: std::ops::Range<usize>,
        wanted: bool,
        what: impl FnOnce() -> String,
    ) {
        let staged = self.plan.memory.chunks[chunk].staged;
        let shared = staged && !self.contents.is_untouched(chunk_region(chunk), range);
        if self.staged && (staged != wanted || shared) {
            self.report(Violation::WronglyStaged { what: what(), chunk });
        }
    }

    /// Rule 2.
    fn check_nodes(&mut self) {
        let plan = self.plan;
        let mut times: HashMap<TensorId, usize> = HashMap::new();
        for (step, operation) in plan.operations.iter().enumerate() {
            for &node in operation.nodes {
                *times.entry(node).or_default() += 1;
                if !plan.graph.is_live(node) {
                    self.report(Violation::ComputesUnused { step, node });
                }
            }
        }
        for node in plan.graph.live_nodes() {
            let times = times.get(&node).copied().unwrap_or(0);
            if times != 1 {
                self.report(Violation::NotComputedOnce { node, times });
            }
        }
    }

    /// Rules 7, 8, 10 and 18, after the last split.
    fn check_end(&mut self) {
        let plan = self.plan;
        let graph = &plan.graph;
        for index in 0..self.arrived.len() {
            if self.arrived[index] != 1 {
                let what = "it does not happen exactly once";
                self.report(Violation::WrongArrival { arrival: index, what });
            }
        }
        for output in graph.outputs() {
            if !self.is_intact(output) {
                self.report(Violation::OutputLost { output });
            }
        }
        for (index, arrival) in plan.arrivals.iter().enumerate().filter(|(_, a)| a.kept) {
            let place = plan.memory.arrivals[index];
            let tag = self.tag_of(arrival.tensor, arrival.version, place.offset_bytes);
            let (region, layout) = (chunk_region(place.chunk), graph.layout(arrival.tensor));
            let copy = self.contents.check_elements(region, place.offset_bytes, layout, tag);
            if copy.is_err() || !self.is_there(arrival.tensor, arrival.version) {
                let what = "it is kept, but it or its input is overwritten";
                self.report(Violation::WrongArrival { arrival: index, what });
            }
        }
        for state in graph.live_leaves(Origin::State) {
            let wanted = graph
                .live_nodes()
                .filter(|&id| graph.root(id) == state)
                .map(|id| graph.tensor(id).version)
                .max();
            let Some(wanted) = wanted else { continue };
            let tag = Tag::Root { root: state, version: wanted, start: 0 };
            let layout = graph.layout(state);
            let written = self.home(state).is_some_and(|(region, _)| {
                self.contents.check_elements(region, 0, layout, tag).is_ok()
            });
            if !written {
                self.report(Violation::StateNotWritten { state, wanted });
            }
        }
    }
}

/// The operand that the op of a step writes into.
fn written_operand(op: &StepOp) -> Option<usize> {
    match op {
        StepOp::Op(op) => op.writes(),
        StepOp::NormAffine { .. } | StepOp::Matrix { .. } => None,
    }
}
