//! Which nodes of a split become one operation.
//!
//! Patterns: `norm · weight + bias`; `mul_mat` or `conv_1d`, plus bias, activation, residual.
//! An inner node is absorbed only when nothing else reads it, it is no output, no split ends
//! behind it, and no write in between changes what the operation reads.

use std::ops::Range;

use tensoryard_graph::ops::{BinaryKind, Op};
use tensoryard_graph::{Graph, Layout, TensorId, TensorMap};

use super::facts::{Facts, Memory, usable_type};
use super::{DeviceIndex, Split};
use crate::{BufferType, MatrixOp, OpCase, StepOp};

/// The longest chain: product, bias, activation, residual.
const LONGEST: usize = 4;
const NONE: u32 = u32::MAX;
/// A reader that computes nothing.
const VIEW: u32 = u32::MAX - 1;

/// Nodes that become one operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) op: StepOp,
    sources: [Option<TensorId>; LONGEST],
    n_sources: usize,
    nodes: [u32; LONGEST],
    n_nodes: usize,
}

impl Group {
    fn new(op: StepOp, sources: &[Option<TensorId>], nodes: &[u32]) -> Self {
        let mut group = Self {
            op,
            sources: [None; LONGEST],
            n_sources: sources.len().min(LONGEST),
            nodes: [NONE; LONGEST],
            n_nodes: nodes.len().min(LONGEST),
        };
        group.sources[..group.n_sources].copy_from_slice(&sources[..group.n_sources]);
        group.nodes[..group.n_nodes].copy_from_slice(&nodes[..group.n_nodes]);
        group
    }

    /// The operands.
    pub(super) fn sources(&self) -> &[Option<TensorId>] {
        &self.sources[..self.n_sources]
    }

    /// Positions of its nodes, in order.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes[..self.n_nodes].iter().map(|&node| node as usize)
    }

    fn last(&self) -> usize {
        self.nodes[self.n_nodes - 1] as usize
    }
}

/// What became of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role<'a> {
    /// An operation of its own.
    Alone,
    /// Computed inside an operation that ends with a later node.
    Inside,
    /// The last node of a fused operation.
    Last(&'a Group),
}

/// What a device said of a chain, alike for chains of alike nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Question {
    op: StepOp,
    device: DeviceIndex,
    classes: [u32; LONGEST],
    /// For each source 0 where absent, 1 where it would be copied, else two more than its kind.
    kinds: [u16; LONGEST],
}

pub(super) struct Fuser<'a> {
    facts: &'a Facts<'a>,
    memory: &'a Memory,
    /// Live readers of each tensor, each operand counted; views count as readers.
    readers: TensorMap<u32>,
    /// The node that reads a tensor last, by its position.
    last_reader: TensorMap<u32>,
    /// Nodes that write into memory of others, by their positions.
    writes: Vec<usize>,
    groups: Vec<Group>,
    /// For each node [`NONE`], [`VIEW`] when inside a group, or the group that it ends.
    roles: Vec<u32>,
    answers: Vec<Option<(Question, bool)>>,
}

impl<'a> Fuser<'a> {
    pub(super) fn new(facts: &'a Facts<'a>, memory: &'a Memory) -> Self {
        let graph = facts.graph;
        let mut fuser = Self {
            facts,
            memory,
            readers: TensorMap::filled(0, graph.len()),
            last_reader: TensorMap::filled(NONE, graph.len()),
            writes: Vec::new(),
            groups: Vec::new(),
            roles: vec![NONE; graph.nodes().len()],
            answers: vec![None; 64],
        };
        for (position, node) in graph.nodes().iter().enumerate() {
            for source in graph.node_sources(node).iter().flatten() {
                fuser.readers[source.id] += 1;
                fuser.last_reader[source.id] = position as u32;
            }
            if node.written.is_some() {
                fuser.writes.push(position);
            }
        }
        for &view in graph.live_views() {
            for source in graph.tensor(view).present_sources() {
                fuser.readers[source] += 1;
                fuser.last_reader[source] = VIEW;
            }
        }
        fuser
    }

    pub(super) fn role(&self, position: usize) -> Role<'_> {
        match self.roles[position] {
            NONE => Role::Alone,
            VIEW => Role::Inside,
            group => Role::Last(&self.groups[group as usize]),
        }
    }

    /// Finds the groups of a split.
    pub(super) fn fuse(&mut self, split: &Split) {
        for position in split.nodes.clone() {
            if self.roles[position] != NONE {
                continue;
            }
            let Some(group) = self.group(position, split) else { continue };
            for node in group.nodes() {
                self.roles[node] = VIEW;
            }
            self.roles[group.last()] = self.groups.len() as u32;
            self.groups.push(group);
        }
    }

    fn graph(&self) -> &'a Graph {
        self.facts.graph
    }

    fn id(&self, position: u32) -> TensorId {
        self.graph().nodes()[position as usize].id
    }

    fn group(&mut self, position: usize, split: &Split) -> Option<Group> {
        let node = position as u32;
        match self.graph().tensor(self.id(node)).op()? {
            Op::LayerNorm(norm) => self.norm(node, norm.epsilon, split),
            Op::MulMat(op) => self.matrix(node, MatrixOp::MulMat(*op), split),
            Op::Conv1d(op) => self.matrix(node, MatrixOp::Conv1d(*op), split),
            Op::View
            | Op::Attention(_)
            | Op::Binary(_)
            | Op::Copy(_)
            | Op::CopyInto(_)
            | Op::GetRows(_)
            | Op::RmsNorm(_)
            | Op::Scale(_)
            | Op::SetRows(_)
            | Op::SoftMax(_)
            | Op::Unary(_) => None,
        }
    }

    /// The node that alone reads `node`, in the same split, if `node` need not exist otherwise.
    fn successor(&self, node: u32, range: &Range<usize>) -> Option<u32> {
        let id = self.id(node);
        let next = self.last_reader[id];
        let alone = self.readers[id] == 1 && range.contains(&(next as usize));
        let free = alone && self.roles[next as usize] == NONE;
        (free && !self.graph().tensor(id).output).then_some(next)
    }

    /// The node after `node` if it is that arithmetic, with its other operand.
    fn binary_after(
        &self,
        node: u32,
        kind: BinaryKind,
        either_side: bool,
        range: &Range<usize>,
    ) -> Option<(u32, TensorId)> {
        let next = self.successor(node, range)?;
        let graph = self.graph();
        let desc = graph.tensor(self.id(next));
        let &Op::Binary(op) = desc.op()? else { return None };
        let &[Some(a), Some(b)] = desc.sources.as_slice() else { return None };
        if op.kind != kind || a == b {
            None
        } else if a == self.id(node) {
            Some((next, b))
        } else {
            let fits = either_side && graph.layout_class(a) == graph.layout_class(b);
            fits.then_some((next, a))
        }
    }

    /// Whether a tensor is one plain row of `n` values.
    fn is_row(&self, id: TensorId, n: usize) -> bool {
        let layout = self.graph().layout(id);
        layout.shape().dims() == [n, 1, 1, 1] && layout.is_contiguous()
    }

    fn norm(&mut self, norm: u32, epsilon: f32, split: &Split) -> Option<Group> {
        let graph = self.graph();
        let n = graph.layout(self.id(norm)).shape()[0];
        let (mul, weight) = self.binary_after(norm, BinaryKind::Mul, false, &split.nodes)?;
        let (add, bias) = self.binary_after(mul, BinaryKind::Add, false, &split.nodes)?;
        if !self.is_row(weight, n) || !self.is_row(bias, n) {
            return None;
        }
        let x = graph.tensor(self.id(norm)).sources[0];
        let op = StepOp::NormAffine { epsilon };
        let group = Group::new(op, &[x, Some(weight), Some(bias)], &[norm, mul, add]);
        self.is_runnable(&group, split.device).then_some(group)
    }

    fn matrix(&mut self, node: u32, base: MatrixOp, split: &Split) -> Option<Group> {
        let (graph, range) = (self.graph(), &split.nodes);
        let id = self.id(node);
        let (layout, sources) = (graph.layout(id), &graph.tensor(id).sources);
        let mut nodes = [node, NONE, NONE, NONE];
        let mut length = 1;
        let mut push = |next: u32| {
            nodes[length] = next;
            length += 1;
            next
        };
        let mut last = node;
        let mut bias = None;
        if let Some((add, other)) = self.binary_after(last, BinaryKind::Add, false, range)
            && self.is_row(other, layout.shape()[0])
        {
            (bias, last) = (Some(other), push(add));
        }
        let mut activation = None;
        if let Some(next) = self.successor(last, range)
            && let Some(Op::Unary(unary)) = graph.tensor(self.id(next)).op()
        {
            (activation, last) = (Some(unary.kind), push(next));
        }
        let mut residual = None;
        if let Some((add, other)) = self.binary_after(last, BinaryKind::Add, true, range)
            && graph.layout_class(other) == graph.layout_class(id)
        {
            residual = Some(other);
            push(add);
        }
        let operands = [sources[0], sources[1], bias, residual];
        let op = StepOp::Matrix { base, activation };
        let mut group = Group::new(op, &operands, &nodes[..length]);
        // A device may fuse less than all: give up the tail, node by node.
        while group.n_nodes > 1 {
            if self.is_runnable(&group, split.device) {
                return Some(group);
            }
            group.n_nodes -= 1;
            group.nodes[group.n_nodes] = NONE;
            let StepOp::Matrix { activation, .. } = &mut group.op else { return None };
            if group.sources[3].take().is_none() && activation.take().is_none() {
                group.sources[2] = None;
            }
        }
        None
    }

    /// Whether the device runs the group and no write stands in its way.
    fn is_runnable(&mut self, group: &Group, device: DeviceIndex) -> bool {
        let graph = self.graph();
        let mut question = Question { op: group.op, device, classes: [NONE; 4], kinds: [0; 4] };
        for (at, position) in group.nodes().enumerate() {
            question.classes[at] = graph.nodes()[position].class;
        }
        for (at, source) in group.sources().iter().enumerate() {
            let Some(id) = *source else { continue };
            let kind = self.memory[graph.root(id)];
            let kind = kind.filter(|&kind| self.facts.can_use(device, kind));
            question.kinds[at] = kind.map_or(1, |kind| kind.index() as u16 + 2);
        }
        let slot = question
            .classes
            .iter()
            .fold(0, |slot, &class| (slot ^ u64::from(class)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let slot = (slot >> 32) as usize % self.answers.len();
        let answer = match self.answers[slot] {
            Some((known, answer)) if known == question => answer,
            Some(_) | None => {
                let answer = self.ask(group, device);
                self.answers[slot] = Some((question, answer));
                answer
            }
        };
        answer && self.reads_are_stable(group)
    }

    fn ask(&self, group: &Group, device: DeviceIndex) -> bool {
        let graph = self.graph();
        let mut layouts: [Option<Layout>; LONGEST] = [None; LONGEST];
        let mut kinds: [Option<&dyn BufferType>; LONGEST] = [None; LONGEST];
        for (at, source) in group.sources().iter().enumerate() {
            let Some(id) = *source else { continue };
            layouts[at] = Some(*graph.layout(id));
            kinds[at] = usable_type(self.facts, self.memory, device, graph.root(id));
        }
        let case = OpCase {
            op: &group.op,
            sources: &layouts[..group.n_sources],
            buffer_types: &kinds[..group.n_sources],
            dst: graph.layout(graph.nodes()[group.last()].id),
        };
        self.facts.devices[device.0].device.supports_op(&case).is_ok()
    }

    /// Whether nothing that the group reads is written between its first and last node.
    fn reads_are_stable(&self, group: &Group) -> bool {
        let graph = self.graph();
        let (first, last) = (group.nodes[0] as usize, group.last());
        let from = self.writes.partition_point(|&write| write < first);
        let between = self.writes[from..].iter().take_while(|&&write| write < last);
        let mut written = between.map(|&write| graph.nodes()[write].root);
        !written.any(|root| group.sources().iter().flatten().any(|&id| graph.root(id) == root))
    }
}
