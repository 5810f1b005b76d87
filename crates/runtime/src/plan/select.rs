//! Stage 3: nodes become operations of the device that they run on.
//!
//! Several nodes become one operation where a pattern matches and the device offers the fused
//! form. This stage stands before allocation, so that tensors which only existed inside a fused
//! operation take no memory and no operand can be overwritten before the operation reads it.

use std::ops::Range;

use tensoryard_graph::ops::Op;
use tensoryard_graph::{Layout, Node, TensorId};

use super::facts::{Facts, Memory};
use super::fuse::{Fuser, Role};
use super::split::{Copies, Splits};
use super::{ArrivalIndex, DeviceIndex, Kind};
use crate::StepOp;

/// Something that is computed, copied or given, and lies somewhere in memory during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A tensor of the graph where it was made.
    Tensor(TensorId),
    /// A tensor of the graph as an arrival holds it: all of that, or a part.
    Copy(ArrivalIndex, TensorId),
    /// A temporary of the plan, by number.
    Temporary(usize),
}

/// What one step will compute, before places in memory are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operation<'a> {
    /// The device.
    pub device: DeviceIndex,
    /// What to compute.
    pub op: StepOp,
    /// The result.
    pub dst: Value,
    /// The operands; absent optional ones are `None`.
    pub sources: &'a [Option<Value>],
    /// Nodes of the graph that it computes; the last is the one that names it.
    pub nodes: &'a [TensorId],
}

/// An [`Operation`] in the lists of its [`Operations`].
#[derive(Debug, Clone, PartialEq)]
pub struct OperationEntry {
    /// The device.
    pub device: DeviceIndex,
    /// What to compute.
    pub op: StepOp,
    /// The result.
    pub dst: Value,
    /// The operands in [`Operations::values`].
    pub sources: Range<usize>,
    /// The nodes in [`Operations::nodes`].
    pub nodes: Range<usize>,
}

/// The operations of all splits in order. One list for all operands and one for all nodes:
/// thousands of small lists would cost more than all decisions about them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Operations {
    /// The operations.
    pub entries: Vec<OperationEntry>,
    /// Operands of all operations.
    pub values: Vec<Option<Value>>,
    /// Nodes of all operations.
    pub nodes: Vec<TensorId>,
}

impl Operations {
    /// Number of operations.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is computed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// An operation by its number, counted over all splits.
    pub fn get(&self, number: usize) -> Option<Operation<'_>> {
        self.entries.get(number).map(|entry| self.operation(entry))
    }

    /// The operations in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Operation<'_>> + ExactSizeIterator {
        self.entries.iter().map(|entry| self.operation(entry))
    }

    /// The operations of a range, in order.
    pub fn slice(
        &self,
        range: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = Operation<'_>> + ExactSizeIterator {
        let entries = self.entries.get(range).unwrap_or_default();
        entries.iter().map(|entry| self.operation(entry))
    }

    fn operation(&self, entry: &OperationEntry) -> Operation<'_> {
        Operation {
            device: entry.device,
            op: entry.op,
            dst: entry.dst,
            sources: self.values.get(entry.sources.clone()).unwrap_or_default(),
            nodes: self.nodes.get(entry.nodes.clone()).unwrap_or_default(),
        }
    }

    fn push(
        &mut self,
        device: DeviceIndex,
        op: StepOp,
        dst: Value,
        sources: Range<usize>,
        nodes: Range<usize>,
    ) {
        self.entries.push(OperationEntry { device, op, dst, sources, nodes });
    }
}

/// The operations of all splits.
#[derive(Debug, Clone, PartialEq)]
pub struct Selected {
    /// Operations of all splits in order.
    pub operations: Operations,
    /// The operations of each split, as ranges.
    pub ranges: Vec<Range<usize>>,
    /// Layouts of temporaries.
    pub temporaries: Vec<Layout>,
}

/// Chooses the operations of every split.
pub fn select(facts: &Facts<'_>, memory: &Memory, splits: &Splits, fusion: bool) -> Selected {
    let graph = facts.graph;
    let nodes = graph.nodes();
    let operations = Operations {
        entries: Vec::with_capacity(nodes.len()),
        values: Vec::with_capacity(nodes.len() * 2),
        nodes: Vec::with_capacity(nodes.len()),
    };
    let ranges = Vec::with_capacity(splits.splits.len());
    let mut selected = Selected { operations, ranges, temporaries: Vec::new() };
    let mut fuser = fusion.then(|| Fuser::new(facts, memory));
    for split in &splits.splits {
        let start = selected.operations.len();
        if let Some(fuser) = &mut fuser {
            fuser.fuse(split);
        }
        let reader = Reader {
            facts,
            memory,
            copies: &splits.copies,
            device: split.device,
            kind: facts.kind_of_device(split.device),
        };
        for position in split.nodes.clone() {
            let role = fuser.as_ref().map_or(Role::Alone, |fuser| fuser.role(position));
            match role {
                Role::Inside => {}
                Role::Alone => reader.push_node(&nodes[position], &mut selected),
                // A fused operation stands where its last node stood: all its sources exist there.
                Role::Last(group) => {
                    let operations = &mut selected.operations;
                    let (values, first) = (operations.values.len(), operations.nodes.len());
                    for source in group.sources() {
                        operations.values.push(source.map(|id| reader.value(id, graph.root(id))));
                    }
                    operations.nodes.extend(group.nodes().map(|position| nodes[position].id));
                    let dst = Value::Tensor(nodes[position].id);
                    let sources = values..operations.values.len();
                    let range = first..operations.nodes.len();
                    operations.push(split.device, group.op, dst, sources, range);
                }
            }
        }
        selected.ranges.push(start..selected.operations.len());
    }
    selected
}

/// Where the nodes of a split find their operands.
struct Reader<'a> {
    facts: &'a Facts<'a>,
    memory: &'a Memory,
    copies: &'a Copies,
    device: DeviceIndex,
    kind: Kind,
}

impl Reader<'_> {
    fn value(&self, id: TensorId, root: TensorId) -> Value {
        if self.facts.reads_in_place(self.memory, self.device, root) {
            return Value::Tensor(id);
        }
        let arrival = self.copies.arrival(id, self.kind);
        arrival.map_or(Value::Tensor(id), |arrival| Value::Copy(arrival, id))
    }

    /// Adds the operation of one node.
    fn push_node(&self, node: &Node, selected: &mut Selected) {
        let graph = self.facts.graph;
        let Some(&op) = graph.tensor(node.id).op() else { return };
        let sources = graph.node_sources(node);
        if node.written.is_some() {
            return self.push_write(node, op, selected);
        }
        let operations = &mut selected.operations;
        let (values, first) = (operations.values.len(), operations.nodes.len());
        for source in sources {
            operations.values.push(source.map(|source| self.value(source.id, source.root)));
        }
        operations.nodes.push(node.id);
        let sources = values..operations.values.len();
        let dst = Value::Tensor(node.id);
        operations.push(self.device, StepOp::Op(op), dst, sources, first..first + 1);
    }

    /// Adds a write; a source that shares memory with the written base is copied out first.
    fn push_write(&self, node: &Node, op: Op, selected: &mut Selected) {
        let graph = self.facts.graph;
        let sources = graph.node_sources(node);
        let mut values: Vec<Option<Value>> = Vec::with_capacity(sources.len());
        for (operand, source) in sources.iter().enumerate() {
            let Some(source) = source else {
                values.push(None);
                continue;
            };
            let written = node.written.map(usize::from) == Some(operand);
            let layout = graph.layout(source.id);
            let apart = Layout::contiguous(layout.dtype(), layout.shape());
            values.push(Some(match apart {
                _ if written => Value::Tensor(source.id),
                Ok(layout) if source.root == node.root => {
                    let temporary = Value::Temporary(selected.temporaries.len());
                    selected.temporaries.push(layout);
                    let operations = &mut selected.operations;
                    let (at, nodes) = (operations.values.len(), operations.nodes.len());
                    operations.values.push(Some(Value::Tensor(source.id)));
                    let copy = Op::from(tensoryard_graph::ops::Copy { dtype: layout.dtype() });
                    let (op, sources) = (StepOp::Op(copy), at..at + 1);
                    operations.push(self.device, op, temporary, sources, nodes..nodes);
                    temporary
                }
                Ok(_) | Err(_) => self.value(source.id, source.root),
            }));
        }
        let operations = &mut selected.operations;
        let (at, first) = (operations.values.len(), operations.nodes.len());
        operations.values.append(&mut values);
        operations.nodes.push(node.id);
        let sources = at..operations.values.len();
        let dst = Value::Tensor(node.id);
        operations.push(self.device, StepOp::Op(op), dst, sources, first..first + 1);
    }
}
