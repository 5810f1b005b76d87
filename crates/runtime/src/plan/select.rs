//! Stage 3: nodes become operations of the device that they run on.
//!
//! Several nodes become one operation where a pattern matches and the device offers the fused
//! form. This stage stands before allocation, so that tensors which only existed inside a fused
//! operation take no memory and no operand can be overwritten before the operation reads it.
//!
//! Patterns: `norm · weight + bias`; `mul_mat` or `conv_1d`, plus bias, activation, residual.
//! An inner node is absorbed only when nothing else reads it, it is no output, and no write in
//! between changes what it reads.

use std::collections::{HashMap, HashSet};

use tensoryard_graph::ops::{BinaryKind, Op};
use tensoryard_graph::{Graph, Layout, TensorId, TensorMap};

use super::split::memory_of;
use super::{Arrival, ArrivalIndex, DeviceIndex, Placement, PlanDevice, Residence, Split, can_use};
use crate::{BufferType, MatrixOp, OpCase, StepOp};

/// Something that is computed, copied or given, and lies somewhere in memory during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A tensor of the graph where it was made.
    Tensor(TensorId),
    /// The copy of a tensor on another device.
    Arrival(ArrivalIndex),
    /// A temporary of the plan, by number.
    Temporary(usize),
}

/// What one step will compute, before places in memory are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The device.
    pub device: DeviceIndex,
    /// What to compute.
    pub op: StepOp,
    /// The result.
    pub dst: Value,
    /// The operands; absent optional ones are `None`.
    pub sources: Vec<Option<Value>>,
    /// Nodes of the graph that it computes; the last is the one that names it.
    pub nodes: Vec<TensorId>,
}

/// The operations of all splits.
#[derive(Debug, Clone, PartialEq)]
pub struct Selected {
    /// Operations of all splits in order.
    pub operations: Vec<Operation>,
    /// The operations of each split, as ranges of `operations`.
    pub ranges: Vec<std::ops::Range<usize>>,
    /// Layouts of temporaries.
    pub temporaries: Vec<Layout>,
}

struct Selector<'a> {
    graph: &'a Graph,
    devices: &'a [PlanDevice],
    residence: &'a Residence,
    placement: &'a Placement,
    /// Live readers of each tensor, each operand counted; views count as readers.
    readers: TensorMap<u32>,
    /// The only live reader, where there is exactly one.
    only_reader: TensorMap<Option<TensorId>>,
    /// Split of each node.
    split_of: TensorMap<Option<usize>>,
    /// Nodes that belong to a fused operation already.
    absorbed: HashSet<TensorId>,
}

/// Chooses the operations of every split.
pub fn select(
    graph: &Graph,
    devices: &[PlanDevice],
    residence: &Residence,
    placement: &Placement,
    splits: &[Split],
    arrivals: &[Arrival],
    fusion: bool,
) -> Selected {
    let mut selector = Selector {
        graph,
        devices,
        residence,
        placement,
        readers: TensorMap::filled(0, graph.len()),
        only_reader: TensorMap::filled(None, graph.len()),
        split_of: TensorMap::filled(None, graph.len()),
        absorbed: HashSet::new(),
    };
    for id in graph.ids().filter(|&id| graph.is_live(id)) {
        for source in graph.tensor(id).present_sources() {
            selector.readers[source] += 1;
            selector.only_reader[source] = (selector.readers[source] == 1).then_some(id);
        }
    }
    for (number, split) in splits.iter().enumerate() {
        for &node in &split.nodes {
            selector.split_of[node] = Some(number);
        }
    }
    let copies: HashMap<(TensorId, DeviceIndex), ArrivalIndex> = arrivals
        .iter()
        .enumerate()
        .map(|(index, arrival)| ((arrival.tensor, arrival.device), ArrivalIndex(index)))
        .collect();
    let mut selected =
        Selected { operations: Vec::new(), ranges: Vec::new(), temporaries: Vec::new() };
    for split in splits {
        let start = selected.operations.len();
        let groups = selector.group(split, fusion);
        for group in groups {
            let value = |tensor: TensorId| match copies.get(&(tensor, split.device)) {
                Some(&index) => Value::Arrival(index),
                None => Value::Tensor(tensor),
            };
            let sources = group.sources.iter().map(|source| source.map(value)).collect();
            let dst = Value::Tensor(group.nodes[group.nodes.len() - 1]);
            let (device, op, nodes) = (split.device, group.op, group.nodes);
            let operation = Operation { device, op, dst, sources, nodes };
            push_without_overlap(graph, operation, &mut selected);
        }
        selected.ranges.push(start..selected.operations.len());
    }
    selected
}

/// Adds an operation; a source that shares memory with the written base is copied out first.
fn push_without_overlap(graph: &Graph, mut operation: Operation, selected: &mut Selected) {
    let StepOp::Op(op) = operation.op else {
        selected.operations.push(operation);
        return;
    };
    if let (Some(written), Value::Tensor(dst)) = (op.writes(), operation.dst) {
        for operand in 0..operation.sources.len() {
            let Some(Value::Tensor(source)) = operation.sources[operand] else { continue };
            if operand == written || graph.root(source) != graph.root(dst) {
                continue;
            }
            let dtype = graph.layout(source).dtype();
            let shape = graph.layout(source).shape();
            let Ok(layout) = Layout::contiguous(dtype, shape) else { continue };
            let temporary = Value::Temporary(selected.temporaries.len());
            selected.temporaries.push(layout);
            selected.operations.push(Operation {
                device: operation.device,
                op: StepOp::Op(Op::from(tensoryard_graph::ops::Copy { dtype })),
                dst: temporary,
                sources: vec![Some(Value::Tensor(source))],
                nodes: vec![],
            });
            operation.sources[operand] = Some(temporary);
        }
    }
    selected.operations.push(operation);
}

/// Nodes that become one operation.
struct Group {
    op: StepOp,
    sources: Vec<Option<TensorId>>,
    nodes: Vec<TensorId>,
}

impl Selector<'_> {
    fn group(&mut self, split: &Split, fusion: bool) -> Vec<Group> {
        // A fused operation stands where its last node stood: all its sources exist there.
        let mut fused: HashMap<TensorId, Group> = HashMap::new();
        for &node in split.nodes.iter().filter(|_| fusion) {
            if !self.absorbed.contains(&node)
                && let Some(group) = self.fuse(node, split.device)
            {
                self.absorbed.extend(&group.nodes);
                fused.insert(group.nodes[group.nodes.len() - 1], group);
            }
        }
        let mut groups = Vec::with_capacity(split.nodes.len());
        for &node in &split.nodes {
            if let Some(group) = fused.remove(&node) {
                groups.push(group);
            } else if !self.absorbed.contains(&node)
                && let Some(op) = self.graph.tensor(node).op()
            {
                let sources = self.graph.tensor(node).sources.clone();
                groups.push(Group { op: StepOp::Op(*op), sources, nodes: vec![node] });
            }
        }
        groups
    }

    fn fuse(&self, node: TensorId, device: DeviceIndex) -> Option<Group> {
        let desc = self.graph.tensor(node);
        match desc.op()? {
            Op::LayerNorm(norm) => self.fuse_norm(node, norm.epsilon, device),
            Op::MulMat(op) => self.fuse_matrix(node, MatrixOp::MulMat(*op), device),
            Op::Conv1d(op) => self.fuse_matrix(node, MatrixOp::Conv1d(*op), device),
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
    fn successor(&self, node: TensorId) -> Option<TensorId> {
        let next = self.only_reader[node]?;
        let inner = !self.graph.tensor(node).output && self.readers[node] == 1;
        let free = !self.absorbed.contains(&next);
        (inner
            && free
            && self.split_of[next].is_some()
            && self.split_of[next] == self.split_of[node])
            .then_some(next)
    }

    /// The node after `node` if it is that arithmetic, with its other operand.
    fn binary_after(
        &self,
        node: TensorId,
        kind: BinaryKind,
        either_side: bool,
    ) -> Option<(TensorId, TensorId)> {
        let next = self.successor(node)?;
        let desc = self.graph.tensor(next);
        match (desc.op()?, desc.sources.as_slice()) {
            (Op::Binary(op), &[Some(a), Some(b)]) if op.kind == kind && a != b => {
                if a == node {
                    Some((next, b))
                } else {
                    (either_side && self.graph.layout(a) == self.graph.layout(b))
                        .then_some((next, a))
                }
            }
            _ => None,
        }
    }

    /// Whether a tensor is one plain row of `n` values.
    fn is_row(&self, id: TensorId, n: usize) -> bool {
        let layout = self.graph.layout(id);
        layout.shape().dims() == [n, 1, 1, 1] && layout.is_contiguous()
    }

    fn fuse_norm(&self, norm: TensorId, epsilon: f32, device: DeviceIndex) -> Option<Group> {
        let n = self.graph.layout(norm).shape()[0];
        let (mul, weight) = self.binary_after(norm, BinaryKind::Mul, false)?;
        let (add, bias) = self.binary_after(mul, BinaryKind::Add, false)?;
        if !self.is_row(weight, n) || !self.is_row(bias, n) {
            return None;
        }
        let x = self.graph.tensor(norm).sources[0];
        let group = Group {
            op: StepOp::NormAffine { epsilon },
            sources: vec![x, Some(weight), Some(bias)],
            nodes: vec![norm, mul, add],
        };
        self.is_runnable(&group, device).then_some(group)
    }

    fn fuse_matrix(&self, node: TensorId, base: MatrixOp, device: DeviceIndex) -> Option<Group> {
        let layout = self.graph.layout(node);
        let matrix = self.graph.tensor(node);
        let mut nodes = vec![node];
        let mut last = node;
        let mut bias = None;
        if let Some((add, other)) = self.binary_after(last, BinaryKind::Add, false)
            && self.is_row(other, layout.shape()[0])
        {
            (bias, last) = (Some(other), add);
            nodes.push(add);
        }
        let mut activation = None;
        if let Some(next) = self.successor(last)
            && let Some(Op::Unary(unary)) = self.graph.tensor(next).op()
        {
            (activation, last) = (Some(unary.kind), next);
            nodes.push(next);
        }
        let mut residual = None;
        if let Some((add, other)) = self.binary_after(last, BinaryKind::Add, true)
            && self.graph.layout(other) == layout
        {
            residual = Some(other);
            nodes.push(add);
        }
        let mut group = Group {
            op: StepOp::Matrix { base, activation },
            sources: vec![matrix.sources[0], matrix.sources[1], bias, residual],
            nodes,
        };
        // A device may fuse less than all: give up the tail, node by node.
        while group.nodes.len() > 1 {
            if self.is_runnable(&group, device) {
                return Some(group);
            }
            group.nodes.pop();
            let StepOp::Matrix { activation, .. } = &mut group.op else { return None };
            if group.sources[3].take().is_none() && activation.take().is_none() {
                group.sources[2] = None;
            }
        }
        None
    }

    /// Whether the device runs the group and no write stands in its way.
    fn is_runnable(&self, group: &Group, device: DeviceIndex) -> bool {
        let plan_device = &self.devices[device.0];
        let layouts: Vec<Option<Layout>> =
            group.sources.iter().map(|source| source.map(|id| *self.graph.layout(id))).collect();
        let memory = |id: TensorId| -> Option<&dyn BufferType> {
            memory_of(self.graph, self.devices, self.residence, self.placement, id)
                .filter(|memory| can_use(plan_device, *memory))
        };
        let kinds: Vec<Option<&dyn BufferType>> =
            group.sources.iter().map(|source| source.and_then(memory)).collect();
        let dst = self.graph.layout(group.nodes[group.nodes.len() - 1]);
        let case = OpCase { op: &group.op, sources: &layouts, buffer_types: &kinds, dst };
        plan_device.device.supports_op(&case).is_ok() && self.reads_are_stable(group)
    }

    /// Whether nothing that the group reads is written between its first and last node.
    fn reads_are_stable(&self, group: &Group) -> bool {
        let first = group.nodes[0].index();
        let last = group.nodes[group.nodes.len() - 1].index();
        !self.graph.ids().skip(first).take(last - first).any(|id| {
            let desc = self.graph.tensor(id);
            let writes = desc.op().is_some_and(|op| op.writes().is_some());
            writes
                && group
                    .sources
                    .iter()
                    .flatten()
                    .any(|&source| self.graph.root(source) == self.graph.root(id))
        })
    }
}
