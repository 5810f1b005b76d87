//! The walk over one step: its operands, what it reads, what it writes.

use tensoryard_graph::{Layout, TensorId};

use super::bytes::{Mismatch, Tag};
use super::{Verifier, Violation, signed, structure, written_operand};
use crate::plan::{Located, Operation, Value};
use crate::{Aliasing, BufferType, OpCase, Region};

/// A step with its places.
#[derive(Clone, Copy)]
struct Walked<'a> {
    number: usize,
    operation: Operation<'a>,
    sources: &'a [Option<Located>],
    dst: Located,
    dst_layout: &'a Layout,
}

impl<'a> Verifier<'a> {
    pub(super) fn step(&mut self, number: usize) {
        let plan = self.plan;
        let Some(operation) = plan.operations.get(number) else { return };
        let range = plan.operations.entries[number].sources.clone();
        let Some(dst_layout) = plan.layout(operation.dst) else { return };
        let walked = Walked {
            number,
            operation,
            sources: &plan.places.sources[range],
            dst: plan.places.results[number],
            dst_layout,
        };
        let sources: Vec<Option<TensorId>> = operation
            .sources
            .iter()
            .map(|source| source.and_then(|value| structure::tensor_of(value, &self.temporaries)))
            .collect();
        let node = operation.nodes.last().copied();
        if let Err(what) = structure::check(&plan.graph, &operation, &sources) {
            let node = node.or(sources.first().copied().flatten());
            if let Some(node) = node {
                self.report(Violation::WrongOperation { step: number, node, what });
            }
        }
        let operands = operation.sources.iter().zip(walked.sources);
        let operands: Vec<(Value, Located)> =
            operands.filter_map(|(value, place)| value.zip(*place)).collect();
        for (value, place) in operands.into_iter().chain([(operation.dst, walked.dst)]) {
            if let Some(layout) = plan.layout(value) {
                self.check_operand(number, place, layout);
            }
        }
        self.check_support(&walked);
        self.check_aliasing(&walked);
        for (index, place) in walked.sources.iter().enumerate() {
            if let (Some(place), Some(value)) = (place, operation.sources[index]) {
                self.check_source(number, index, *place, value, sources[index]);
            }
        }
        match operation.dst {
            Value::Tensor(id) => self.write_tensor(&walked, id),
            Value::Temporary(temporary) => {
                self.temporaries[temporary] = sources.first().copied().flatten();
                let start = signed(walked.dst.offset_bytes);
                let tag = Tag::Temporary { number: temporary, start };
                self.write_result(&walked, false, tag);
            }
            Value::Copy(..) => {
                if let Some(node) = node {
                    self.report(Violation::WriteMissesOwner { step: number, node });
                }
            }
        }
    }

    fn kind(&self, region: Region) -> Option<&'a dyn BufferType> {
        self.plan.buffer_type(region).map(|kind| &**kind)
    }

    /// Rule 12, for one operand.
    fn check_operand(&mut self, step: usize, place: Located, layout: &Layout) {
        let plan = self.plan;
        let extent = |id: Option<&TensorId>| id.map(|&id| plan.graph.layout(id).extent_bytes());
        let size = match place.region {
            Region::Weight(n) => extent(plan.weights.get(n as usize)),
            Region::State(n) => extent(plan.states.get(n as usize)),
            Region::Chunk(n) => plan.memory.chunks.get(n as usize).map(|chunk| chunk.bytes),
        };
        let size = size.filter(|_| self.kind(place.region).is_some()).unwrap_or(0);
        let end = place.offset_bytes.saturating_add(layout.extent_bytes());
        if end > size || self.kind(place.region).is_none() {
            let what = format!("step {step}: an operand in {:?}", place.region);
            self.report(Violation::OutsideMemory { what, end, size });
        }
    }

    /// Rules 14 and 15.
    fn check_support(&mut self, walked: &Walked<'_>) {
        let plan = self.plan;
        let step = walked.number;
        let plan_device = &plan.devices[walked.operation.device.0];
        let device = &plan_device.device;
        let kinds: Vec<Option<&dyn BufferType>> = walked
            .sources
            .iter()
            .map(|place| place.and_then(|place| self.kind(place.region)))
            .collect();
        for kind in kinds.iter().copied().chain([self.kind(walked.dst.region)]).flatten() {
            if kind.name() != plan_device.buffer_type.name() && !device.supports_buffer_type(kind) {
                let buffer_type = kind.name().to_owned();
                self.report(Violation::UnusableMemory { step, buffer_type });
            }
        }
        let values = walked.operation.sources.iter();
        let layouts: Vec<Option<Layout>> =
            values.map(|value| value.and_then(|value| plan.layout(value).copied())).collect();
        let case = OpCase {
            op: &walked.operation.op,
            sources: &layouts,
            buffer_types: &kinds,
            dst: walked.dst_layout,
        };
        if let Err(unsupported) = device.supports_op(&case) {
            let reason = unsupported.to_string();
            self.report(Violation::Unsupported { step, reason });
        }
    }

    /// Rule 16.
    fn check_aliasing(&mut self, walked: &Walked<'_>) {
        let range = |place: Located, layout: &Layout| {
            place.offset_bytes..place.offset_bytes.saturating_add(layout.extent_bytes())
        };
        let op = &walked.operation.op;
        let written = written_operand(op);
        for (index, place) in walked.sources.iter().enumerate() {
            let (Some(place), Some(value)) = (*place, walked.operation.sources[index]) else {
                continue;
            };
            let Some(layout) = self.plan.layout(value) else { continue };
            let (a, b) = (range(place, layout), range(walked.dst, walked.dst_layout));
            let apart = place.region != walked.dst.region
                || a.is_empty()
                || b.is_empty()
                || a.end <= b.start
                || b.end <= a.start;
            let marked = match place.aliasing {
                Aliasing::Disjoint if apart => continue,
                Aliasing::Disjoint => "disjoint",
                Aliasing::SameAsDst => {
                    let same = place.region == walked.dst.region
                        && place.offset_bytes == walked.dst.offset_bytes
                        && layout == walked.dst_layout;
                    let allowed = op.may_reuse().contains(&index) || written == Some(index);
                    if same && allowed {
                        continue;
                    }
                    "as the destination"
                }
            };
            let (step, source_index) = (walked.number, index);
            self.report(Violation::WrongAliasing { step, source_index, marked });
        }
    }

    /// Rules 4, 5 and 6, for one source.
    fn check_source(
        &mut self,
        step: usize,
        source_index: usize,
        place: Located,
        value: Value,
        tensor: Option<TensorId>,
    ) {
        let plan = self.plan;
        let Some(tensor) = tensor else {
            let what = "a temporary is read before it is written";
            let node = plan.operations.get(step).and_then(|op| op.nodes.last().copied());
            if let Some(node) = node {
                self.report(Violation::WrongOperation { step, node, what });
            }
            return;
        };
        let Some(layout) = plan.layout(value) else { return };
        let wanted = match value {
            Value::Temporary(number) => {
                Tag::Temporary { number, start: signed(place.offset_bytes) }
            }
            Value::Tensor(_) | Value::Copy(..) => self.tag(tensor, place.offset_bytes),
        };
        let original = plan.graph.layout(tensor);
        if layout.shape() != original.shape() || layout.dtype() != original.dtype() {
            self.report(Violation::WrongLayout { step, source_index, tensor });
        }
        let region = place.region;
        let found = self.contents.check_elements(region, place.offset_bytes, layout, wanted);
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

    /// Rule 7: the effect of a step on memory.
    fn write_tensor(&mut self, walked: &Walked<'_>, id: TensorId) {
        let graph = &self.plan.graph;
        let (step, dst) = (walked.number, walked.dst);
        let root = graph.root(id);
        let version = graph.tensor(id).version;
        if self.home(id) != Some((dst.region, dst.offset_bytes)) {
            self.report(Violation::WriteMissesOwner { step, node: id });
        }
        let is_chunk = matches!(dst.region, Region::Chunk(_));
        let is_state = matches!(dst.region, Region::State(_));
        match written_operand(&walked.operation.op) {
            None => {
                if !is_chunk || root != id {
                    self.report(Violation::WritesForeignMemory { step, node: id });
                }
                let staged = self.outputs.contains(&id);
                let tag = self.tag(id, dst.offset_bytes);
                self.write_result(walked, staged, tag);
            }
            Some(_) => {
                let leaf = graph.tensor(root).op().is_none();
                if leaf != is_state || (!is_chunk && !is_state) {
                    self.report(Violation::WritesForeignMemory { step, node: id });
                }
                let after = self.tag(id, dst.offset_bytes);
                if let Tag::Root { root, start, .. } = after {
                    // Bytes that are not written belong to the new version as they are.
                    let before = Tag::Root { root, version: version.wrapping_sub(1), start };
                    self.contents.replace(dst.region, before, after);
                }
                let layout = walked.dst_layout;
                self.contents.set_elements(dst.region, dst.offset_bytes, layout, after);
            }
        }
    }

    /// A new value at the destination; the padding behind it is destroyed. `staged` for outputs.
    fn write_result(&mut self, walked: &Walked<'_>, staged: bool, tag: Tag) {
        let Located { region, offset_bytes, .. } = walked.dst;
        let Some(kind) = self.kind(region) else { return };
        let end = offset_bytes.saturating_add(kind.tensor_bytes(walked.dst_layout));
        if let Region::Chunk(chunk) = region {
            let step = walked.number;
            let what = || format!("the result of step {step}");
            self.check_staged(chunk as usize, offset_bytes..end, staged, what);
        }
        self.contents.set(region, offset_bytes..end, Tag::Padding);
        self.contents.set_elements(region, offset_bytes, walked.dst_layout, tag);
    }
}
