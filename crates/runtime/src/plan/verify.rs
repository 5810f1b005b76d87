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
//! 4. Operands have the layouts of their tensors.
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
//! 15. The device can use the memory of every operand, and operands name their kind truly.
//! 16. Sources marked disjoint share no byte range with the destination; those marked as the
//!     destination are the same place and layout, and the op may take them over or writes them.

mod bytes;
mod structure;
mod violation;

use std::collections::{HashMap, HashSet};

use tensoryard_graph::{Layout, Origin, TensorId};

pub use violation::Violation;

use self::bytes::{Contents, Mismatch, Tag};
use super::allocate::Place;
use super::{Blueprint, Operation, Slot, Value};
use crate::{Aliasing, BufferType, OpCase, Operand, Region, Step, StepOp};

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
        let steps =
            plan.splits.iter().flat_map(|split| split.steps.iter().map(|s| (split.device, s)));
        let steps: Vec<_> = steps.collect();
        let same_steps = steps.len() == plan.operations.len()
            && steps.iter().zip(&plan.operations).all(|((device, step), operation)| {
                *device == operation.device
                    && step.op == operation.op
                    && step.sources.len() == operation.sources.len()
                    && step
                        .sources
                        .iter()
                        .zip(&operation.sources)
                        .all(|(operand, value)| operand.is_some() == value.is_some())
            });
        let unique = |ids: &[TensorId], origin: Origin| {
            ids.iter().collect::<HashSet<_>>().len() == ids.len()
                && ids
                    .iter()
                    .all(|&id| plan.graph.tensor(id).origin == origin && plan.graph.is_live(id))
        };
        let values = plan.operations.iter().flat_map(|operation| {
            operation.sources.iter().flatten().chain([&operation.dst]).copied()
        });
        let known_values = values.into_iter().all(|value| match value {
            Value::Tensor(id) => id.index() < plan.graph.len(),
            Value::Arrival(index) => index.0 < plan.arrivals.len(),
            Value::Temporary(number) => number < plan.temporaries.len(),
        });
        let places = memory.arrivals.iter().chain(&memory.temporaries).chain(
            memory.tensors.iter().filter_map(|(_, slot)| match slot {
                Slot::Fresh(place) => Some(place),
                Slot::None | Slot::External | Slot::Reuses(_) | Slot::Within { .. } => None,
            }),
        );
        let checks = [
            (same_steps, "steps and operations"),
            (known_values, "operations and values"),
            (unique(&plan.weights, Origin::Weight), "weights"),
            (unique(&plan.states, Origin::State), "states"),
            (plan.arrivals.len() == memory.arrivals.len(), "arrivals and their places"),
            (plan.temporaries.len() == memory.temporaries.len(), "temporaries and their places"),
            (memory.tensors.len() == plan.graph.len(), "slots and tensors"),
            (memory.chunks.iter().all(|&(pool, _)| pool < memory.pools.len()), "chunks and pools"),
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
        for (chunk, &(pool, bytes)) in memory.chunks.iter().enumerate() {
            let Some(pool) = memory.pools.get(pool) else { continue };
            let max = pool.buffer_type.max_size();
            if bytes > max {
                self.report(Violation::ChunkTooLarge { chunk, bytes, max });
            }
        }
        checks.iter().all(|&(holds, _)| holds)
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
        let (pool, size) = self.plan.memory.chunks[place.chunk];
        let buffer_type = &self.plan.memory.pools[pool].buffer_type;
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
        let mut id = root;
        // A chain of reuse is no longer than the graph.
        for _ in 0..=self.plan.graph.len() {
            match self.plan.memory.tensors[id] {
                Slot::Fresh(place) => return Some(place),
                Slot::Reuses(other) => id = other,
                Slot::None | Slot::External | Slot::Within { .. } => return None,
            }
        }
        None
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
        let graph = &self.plan.graph;
        Tag::Root {
            root: graph.root(id),
            version: graph.tensor(id).version,
            start: signed(offset) - signed(graph.root_offset(id)),
        }
    }

    /// Rule 9; what memory holds before the first split.
    fn fill_leaves(&mut self) {
        let plan = self.plan;
        let graph = &plan.graph;
        for id in graph.live_leaves(Origin::Input) {
            match self.home(id) {
                Some((region, offset)) => {
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
        let mut number = 0;
        for (at, split) in plan.splits.iter().enumerate() {
            for &index in &split.arrivals {
                self.arrive(at, index.0);
            }
            for step in &split.steps {
                self.step(number, step, &plan.operations[number]);
                number += 1;
            }
        }
    }

    /// Rule 10.
    fn arrive(&mut self, split: usize, index: usize) {
        let plan = self.plan;
        let Some(arrival) = plan.arrivals.get(index) else {
            return self.report(Violation::WrongArrival { arrival: index, what: "unknown" });
        };
        self.arrived[index] += 1;
        if arrival.split != split || arrival.device != plan.splits[split].device {
            let what = "it happens before another split";
            self.report(Violation::WrongArrival { arrival: index, what });
        }
        let place = plan.memory.arrivals[index];
        let pool = &plan.memory.pools[plan.memory.chunks[place.chunk].0];
        let kind = plan.devices[arrival.device.0].buffer_type.name();
        if pool.buffer_type.name() != kind {
            let what = "it goes to memory of another device";
            self.report(Violation::WrongArrival { arrival: index, what });
        }
        let layout = plan.graph.layout(arrival.tensor);
        // Leaves that only arrivals read have no region; nothing overwrites those of version 0.
        let is_there = match self.home(arrival.tensor) {
            Some((region, offset)) => {
                let tag = self.tag(arrival.tensor, offset);
                self.contents.check_elements(region, offset, layout, tag).is_ok()
            }
            None => {
                let root = plan.graph.tensor(plan.graph.root(arrival.tensor));
                matches!(root.origin, Origin::Weight | Origin::State)
                    && plan.graph.tensor(arrival.tensor).version == 0
            }
        };
        if !is_there {
            let tensor = arrival.tensor;
            self.report(Violation::ArrivalCopiesOther { arrival: index, tensor });
        }
        let tag = self.tag(arrival.tensor, place.offset_bytes);
        self.contents.set_elements(chunk_region(place.chunk), place.offset_bytes, layout, tag);
    }

    fn step(&mut self, number: usize, step: &Step, operation: &Operation) {
        let plan = self.plan;
        let sources: Vec<Option<TensorId>> = operation
            .sources
            .iter()
            .map(|source| {
                source.and_then(|value| {
                    structure::tensor_of(value, &plan.arrivals, &self.temporaries)
                })
            })
            .collect();
        let node = operation.nodes.last().copied();
        if let Err(what) = structure::check(&plan.graph, operation, &sources) {
            let node = node.or(sources.first().copied().flatten());
            if let Some(node) = node {
                self.report(Violation::WrongOperation { step: number, node, what });
            }
        }
        for operand in step.sources.iter().flatten().chain([&step.dst]) {
            self.check_operand(number, operand);
        }
        self.check_support(number, step, operation);
        self.check_aliasing(number, step);
        for (index, operand) in step.sources.iter().enumerate() {
            if let (Some(operand), Some(value)) = (operand, operation.sources[index]) {
                self.check_source(number, index, operand, value, sources[index]);
            }
        }
        match operation.dst {
            Value::Tensor(id) => self.write_tensor(number, step, id),
            Value::Temporary(temporary) => {
                self.temporaries[temporary] = sources.first().copied().flatten();
                let start = signed(step.dst.offset_bytes);
                let tag = Tag::Temporary { number: temporary, start };
                self.write_result(step, tag);
            }
            Value::Arrival(_) => {
                if let Some(node) = node {
                    self.report(Violation::WriteMissesOwner { step: number, node });
                }
            }
        }
    }

    /// Rules 12 and 15, for one operand.
    fn check_operand(&mut self, step: usize, operand: &Operand) {
        let plan = self.plan;
        let leaf = |ids: &[TensorId], n: u32| {
            let id = *ids.get(n as usize)?;
            let kind = plan.residence.of(id)?;
            Some((kind.clone(), plan.graph.layout(id).extent_bytes()))
        };
        let region = operand.region;
        let memory = match region {
            Region::Weight(n) => leaf(&plan.weights, n),
            Region::State(n) => leaf(&plan.states, n),
            Region::Chunk(n) => plan
                .memory
                .chunks
                .get(n as usize)
                .map(|&(pool, size)| (plan.memory.pools[pool].buffer_type.clone(), size)),
        };
        let end = operand.offset_bytes.saturating_add(operand.layout.extent_bytes());
        let Some((kind, size)) = memory else {
            let what = format!("step {step}: {region:?}");
            return self.report(Violation::OutsideMemory { what, end, size: 0 });
        };
        if end > size {
            let what = format!("step {step}: an operand in {region:?}");
            self.report(Violation::OutsideMemory { what, end, size });
        }
        if kind.name() != operand.buffer_type.name() {
            let claimed = operand.buffer_type.name().to_owned();
            let found = kind.name().to_owned();
            self.report(Violation::WrongBufferType { step, region, claimed, found });
        }
    }

    /// Rules 14 and 15, for the step.
    fn check_support(&mut self, number: usize, step: &Step, operation: &Operation) {
        let plan_device = &self.plan.devices[operation.device.0];
        let device = &plan_device.device;
        for operand in step.sources.iter().flatten().chain([&step.dst]) {
            let kind = &operand.buffer_type;
            if kind.name() != plan_device.buffer_type.name()
                && !device.supports_buffer_type(&**kind)
            {
                let buffer_type = kind.name().to_owned();
                self.report(Violation::UnusableMemory { step: number, buffer_type });
            }
        }
        let layouts: Vec<Option<Layout>> =
            step.sources.iter().map(|source| source.as_ref().map(|s| s.layout)).collect();
        let buffer_types: Vec<Option<&dyn BufferType>> =
            step.sources.iter().map(|s| s.as_ref().map(|s| &*s.buffer_type)).collect();
        let case = OpCase {
            op: &step.op,
            sources: &layouts,
            buffer_types: &buffer_types,
            dst: &step.dst.layout,
        };
        if let Err(unsupported) = device.supports_op(&case) {
            let reason = unsupported.to_string();
            self.report(Violation::Unsupported { step: number, reason });
        }
    }

    /// Rule 16.
    fn check_aliasing(&mut self, number: usize, step: &Step) {
        let range = |operand: &Operand| {
            operand.offset_bytes..operand.offset_bytes.saturating_add(operand.layout.extent_bytes())
        };
        let written = written_operand(&step.op);
        for (index, source) in step.sources.iter().enumerate() {
            let Some(source) = source else { continue };
            let (a, b) = (range(source), range(&step.dst));
            let apart = source.region != step.dst.region
                || a.is_empty()
                || b.is_empty()
                || a.end <= b.start
                || b.end <= a.start;
            let marked = match source.aliasing {
                Aliasing::Disjoint if apart => continue,
                Aliasing::Disjoint => "disjoint",
                Aliasing::SameAsDst => {
                    let same = source.region == step.dst.region
                        && source.offset_bytes == step.dst.offset_bytes
                        && source.layout == step.dst.layout;
                    let allowed = step.op.may_reuse().contains(&index) || written == Some(index);
                    if same && allowed {
                        continue;
                    }
                    "as the destination"
                }
            };
            self.report(Violation::WrongAliasing { step: number, source_index: index, marked });
        }
    }

    /// Rules 4, 5, 6 and 11, for one source.
    fn check_source(
        &mut self,
        step: usize,
        source_index: usize,
        operand: &Operand,
        value: Value,
        tensor: Option<TensorId>,
    ) {
        let plan = self.plan;
        let Some(tensor) = tensor else {
            let what = "a temporary is read before it is written";
            let node = plan.operations[step].nodes.last().copied();
            if let Some(node) = node {
                self.report(Violation::WrongOperation { step, node, what });
            }
            return;
        };
        let (layout, wanted) = match value {
            Value::Temporary(number) => {
                let start = signed(operand.offset_bytes);
                (plan.temporaries[number], Tag::Temporary { number, start })
            }
            Value::Tensor(_) | Value::Arrival(_) => {
                (*plan.graph.layout(tensor), self.tag(tensor, operand.offset_bytes))
            }
        };
        let copied = matches!(value, Value::Temporary(_));
        let alike = layout.shape() == plan.graph.layout(tensor).shape()
            && layout.dtype() == plan.graph.layout(tensor).dtype();
        if operand.layout != layout || (copied && !alike) {
            self.report(Violation::WrongLayout { step, source_index, tensor });
        }
        let region = operand.region;
        let found =
            self.contents.check_elements(region, operand.offset_bytes, &operand.layout, wanted);
        if let Err(Mismatch { byte, found }) = found {
            self.report(match (found, wanted) {
                (None, _) => Violation::ReadsUnwritten { step, source_index, tensor, region, byte },
                (
                    Some(Tag::Root { root: a, version: found, start: s }),
                    Tag::Root { root: b, version: wanted, start: t },
                ) if a == b && s == t => {
                    Violation::ReadsWrongVersion { step, source_index, tensor, wanted, found }
                }
                (Some(_), _) => Violation::ReadsOther { step, source_index, tensor, region, byte },
            });
        }
    }

    /// Rules 4 and 7: the effect of a step on memory.
    fn write_tensor(&mut self, number: usize, step: &Step, id: TensorId) {
        let plan = self.plan;
        let graph = &plan.graph;
        let dst = &step.dst;
        if dst.layout != *graph.layout(id) {
            self.report(Violation::WrongResultLayout { step: number, node: id });
        }
        let root = graph.root(id);
        let version = graph.tensor(id).version;
        if self.home(id) != Some((dst.region, dst.offset_bytes)) {
            self.report(Violation::WriteMissesOwner { step: number, node: id });
        }
        let is_chunk = matches!(dst.region, Region::Chunk(_));
        let is_state = matches!(dst.region, Region::State(_));
        match written_operand(&step.op) {
            None => {
                if !is_chunk || root != id {
                    self.report(Violation::WritesForeignMemory { step: number, node: id });
                }
                let tag = self.tag(id, dst.offset_bytes);
                self.write_result(step, tag);
            }
            Some(_) => {
                let leaf = graph.tensor(root).op().is_none();
                if leaf != is_state || (!is_chunk && !is_state) {
                    self.report(Violation::WritesForeignMemory { step: number, node: id });
                }
                let after = self.tag(id, dst.offset_bytes);
                if let Tag::Root { root, start, .. } = after {
                    // Bytes that are not written belong to the new version as they are.
                    let before = Tag::Root { root, version: version.wrapping_sub(1), start };
                    self.contents.replace(dst.region, before, after);
                }
                self.contents.set_elements(dst.region, dst.offset_bytes, &dst.layout, after);
            }
        }
    }

    /// A new tensor at the destination; the padding behind it is destroyed.
    fn write_result(&mut self, step: &Step, tag: Tag) {
        let Operand { region, offset_bytes, layout, buffer_type, .. } = &step.dst;
        let padded = buffer_type.tensor_bytes(layout);
        let end = offset_bytes.saturating_add(padded);
        self.contents.set(*region, *offset_bytes..end, Tag::Padding);
        self.contents.set_elements(*region, *offset_bytes, layout, tag);
    }

    /// Rule 2.
    fn check_nodes(&mut self) {
        let plan = self.plan;
        let mut times: HashMap<TensorId, usize> = HashMap::new();
        for (step, operation) in plan.operations.iter().enumerate() {
            for &node in &operation.nodes {
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

    /// Rules 7, 8 and 10, after the last split.
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
            let kept = match self.home(output) {
                Some((region, offset)) => {
                    let tag = self.tag(output, offset);
                    let layout = graph.layout(output);
                    self.contents.check_elements(region, offset, layout, tag).is_ok()
                }
                // A leaf outside compute memory that no step touches.
                None => {
                    let root = graph.tensor(graph.root(output));
                    matches!(root.origin, Origin::Weight | Origin::State)
                        && graph.tensor(output).version == 0
                }
            };
            if !kept {
                self.report(Violation::OutputLost { output });
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
