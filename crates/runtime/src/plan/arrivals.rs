//! Which bytes have to be copied, before it is known when.
//!
//! One version of a tensor is copied into one kind of memory at most once, whoever reads it
//! there and through however many views. What is copied is whichever is fewer bytes: the views
//! that are read, each once and smaller ones as parts of larger, or the whole tensor.

use tensoryard_graph::{Graph, Layout, Origin, TensorId, TensorMap};

use super::facts::{Facts, Memory};
use super::{ArrivalIndex, DeviceIndex, Kind};

const NONE: u32 = u32::MAX;

/// A tensor that some device cannot read where it lies.
#[derive(Debug, Clone, Copy)]
struct Need {
    tensor: TensorId,
    kind: Kind,
    /// The copy that serves it.
    copy: u32,
    /// The next need of the same tensor.
    next: u32,
    /// The need before it in its group.
    before: u32,
}

/// A version of a root in one kind of memory.
#[derive(Debug)]
struct Group {
    root: TensorId,
    version: u32,
    kind: Kind,
    last_need: u32,
    /// The next group of the same root.
    next: u32,
}

/// A range of a root that is copied, layout kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    pub(super) tensor: TensorId,
    pub(super) version: u32,
    /// Whether a weight is copied, and so cuts the graph.
    pub(super) streams: bool,
    /// Whether it copies a graph input.
    pub(super) kept: bool,
    /// The arrival, once a split copies it.
    pub(super) arrival: Option<ArrivalIndex>,
}

/// An operand that is read from a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    /// Position of the node.
    pub(super) node: usize,
    need: u32,
}

/// All copies of a graph, and who reads them.
#[derive(Debug)]
pub struct Copies {
    needs: Vec<Need>,
    first_need: TensorMap<u32>,
    pub(super) copies: Vec<Copy>,
    /// Operands that are read from copies, in order of their nodes.
    pub(super) reads: Vec<Read>,
}

impl Copies {
    /// Finds everything that has to be copied. `devices` are those of the nodes.
    pub(super) fn find(facts: &Facts<'_>, memory: &Memory, devices: &[DeviceIndex]) -> Self {
        let graph = facts.graph;
        let mut found = Self {
            needs: Vec::new(),
            first_need: TensorMap::filled(NONE, graph.len()),
            copies: Vec::new(),
            reads: Vec::new(),
        };
        let mut groups: Vec<Group> = Vec::new();
        let mut first_group = TensorMap::filled(NONE, graph.len());
        for (position, node) in graph.nodes().iter().enumerate() {
            let device = devices[position];
            for (operand, source) in graph.node_sources(node).iter().enumerate() {
                let Some(source) = source else { continue };
                // What an op writes into is never a copy: it runs where the base is.
                if facts.reads_in_place(memory, device, source.root)
                    || node.written == u8::try_from(operand).ok()
                {
                    continue;
                }
                let kind = facts.kind_of_device(device);
                let need = found.need(source.id, kind).unwrap_or_else(|| {
                    let version = graph.tensor(source.id).version;
                    let first = &mut first_group[source.root];
                    let group = group(&mut groups, first, source.root, version, kind);
                    found.add_need(source.id, kind, group, &mut groups)
                });
                found.reads.push(Read { node: position, need });
            }
        }
        for group in &groups {
            found.choose(facts, group);
        }
        found
    }

    fn need(&self, tensor: TensorId, kind: Kind) -> Option<u32> {
        let mut at = self.first_need[tensor];
        while at != NONE {
            let need = &self.needs[at as usize];
            if need.kind == kind {
                return Some(at);
            }
            at = need.next;
        }
        None
    }

    fn add_need(&mut self, tensor: TensorId, kind: Kind, group: u32, groups: &mut [Group]) -> u32 {
        let at = self.needs.len() as u32;
        let next = self.first_need[tensor];
        let before = std::mem::replace(&mut groups[group as usize].last_need, at);
        self.needs.push(Need { tensor, kind, copy: NONE, next, before });
        self.first_need[tensor] = at;
        at
    }

    /// The number of the copy that a read goes to.
    pub(super) fn copy_of(&self, read: Read) -> usize {
        self.needs[read.need as usize].copy as usize
    }

    /// The copy of a tensor in a kind of memory.
    pub(super) fn arrival(&self, tensor: TensorId, kind: Kind) -> Option<ArrivalIndex> {
        let need = self.need(tensor, kind)?;
        self.copies[self.needs[need as usize].copy as usize].arrival
    }

    /// Decides what is copied for a group.
    fn choose(&mut self, facts: &Facts<'_>, group: &Group) {
        let graph = facts.graph;
        let origin = graph.tensor(group.root).origin;
        let template = Copy {
            tensor: group.root,
            version: group.version,
            streams: origin == Origin::Weight,
            kept: origin == Origin::Input,
            arrival: None,
        };
        // Larger ones first, so that smaller ones find what contains them.
        let mut order: Vec<(usize, u32)> = Vec::new();
        let mut need = group.last_need;
        while need != NONE {
            let Need { tensor, before, .. } = self.needs[need as usize];
            if tensor == group.root && before == NONE && order.is_empty() {
                self.needs[need as usize].copy = self.copies.len() as u32;
                self.copies.push(template);
                return;
            }
            order.push((graph.layout(tensor).data_bytes(), need));
            need = before;
        }
        order.sort_by_key(|&(bytes, need)| (std::cmp::Reverse(bytes), need));
        let first = self.copies.len();
        let mut total = 0;
        for &(bytes, need) in &order {
            let tensor = self.needs[need as usize].tensor;
            let known =
                self.copies[first..].iter().position(|copy| contains(graph, copy.tensor, tensor));
            let copy = known.map_or(self.copies.len(), |known| first + known);
            if known.is_none() {
                self.copies.push(Copy { tensor, ..template });
                total += bytes;
            }
            self.needs[need as usize].copy = copy as u32;
        }
        let whole = graph.layout(group.root);
        let several = self.copies.len() - first > 1;
        let fewer = whole.data_bytes() < total || (several && whole.data_bytes() == total);
        let buffer_type = facts.buffer_type(group.kind);
        if fewer && is_dense(whole) && buffer_type.tensor_bytes(whole) <= buffer_type.max_size() {
            self.copies.truncate(first);
            self.copies.push(template);
            for &(_, need) in &order {
                self.needs[need as usize].copy = first as u32;
            }
        }
    }
}

fn group(
    groups: &mut Vec<Group>,
    first: &mut u32,
    root: TensorId,
    version: u32,
    kind: Kind,
) -> u32 {
    let mut at = *first;
    while at != NONE {
        let group = &groups[at as usize];
        if group.version == version && group.kind == kind {
            return at;
        }
        at = group.next;
    }
    let at = groups.len() as u32;
    groups.push(Group { root, version, kind, last_need: NONE, next: *first });
    *first = at;
    at
}

/// Whether the elements lie without gaps, in whatever order, each once.
fn is_dense(layout: &Layout) -> bool {
    layout.is_contiguous()
        || (layout.data_bytes() == layout.extent_bytes() && !layout.overlaps_itself())
}

/// Whether a copy of one view has all bytes of another view of the same root.
fn contains(graph: &Graph, outer: TensorId, inner: TensorId) -> bool {
    let (a, b) = (graph.layout(outer), graph.layout(inner));
    let (start, end) = (graph.root_offset(outer), graph.root_offset(inner));
    if graph.layout_class(outer) == graph.layout_class(inner) && start == end {
        return true;
    }
    let (a, b) = (start..start + a.extent_bytes(), end..end + b.extent_bytes());
    is_dense(graph.layout(outer)) && a.start <= b.start && b.end <= a.end
}
