//! What all stages ask about graph, devices and memory, as dense tables.
//!
//! Kinds of memory become small numbers, so that no stage compares names; what devices say about
//! an op is remembered for ops that are alike. Made once for a plan, and only read by the stages.

use std::sync::Arc;

use tensoryard_graph::{Graph, Layout, Node, Op, Origin, TensorId, TensorMap};

use super::{DeviceIndex, Placement, PlanDevice, Residence, can_use};
use crate::{BufferType, OpCase, StepOp, same_buffer_type};

/// A kind of memory, by its number in a [`Facts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(u16);

impl Kind {
    /// Position in tables by kind.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The kind of memory that each root lies in, as far as it is known.
pub type Memory = TensorMap<Option<Kind>>;

/// What a leaf outside compute memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum External {
    /// No leaf, or a graph input.
    No,
    /// A weight.
    Weight,
    /// A state tensor.
    State,
}

/// Graph, devices and residence, with tables over them.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The devices in order of priority.
    pub devices: &'a [PlanDevice],
    /// Kinds of memory of weights and state.
    pub residence: &'a Residence,
    kinds: Vec<&'a Arc<dyn BufferType>>,
    kind_of_device: Vec<Kind>,
    /// By device, then kind.
    usable: Vec<bool>,
    resident_memory: Memory,
    externals: TensorMap<External>,
    /// By device, whether a tensor of the graph may be larger than its largest buffer.
    narrow: Vec<bool>,
}

impl<'a> Facts<'a> {
    /// The tables of a graph, its devices and its leaves in memory.
    pub fn new(graph: &'a Graph, devices: &'a [PlanDevice], residence: &'a Residence) -> Self {
        let mut kinds: Vec<&'a Arc<dyn BufferType>> = Vec::with_capacity(devices.len() + 2);
        let mut kind_of_device = Vec::with_capacity(devices.len());
        for device in devices {
            kind_of_device.push(kind_of(&mut kinds, &device.buffer_type));
        }
        let mut resident_memory = TensorMap::filled(None, graph.len());
        let mut externals = TensorMap::filled(External::No, graph.len());
        for &leaf in graph.leaves() {
            if let Some(buffer_type) = residence.of(leaf) {
                resident_memory[leaf] = Some(kind_of(&mut kinds, buffer_type));
                let is_state = graph.tensor(leaf).origin == Origin::State;
                externals[leaf] = if is_state { External::State } else { External::Weight };
            }
        }
        let usable = devices
            .iter()
            .flat_map(|device| kinds.iter().map(move |kind| can_use(device, &***kind)))
            .collect();
        let largest = graph.ids().map(|id| graph.layout(id).data_bytes()).max().unwrap_or(0);
        // Kinds of memory pad tensors, though not to twice their size.
        // One device leaves no choice; there allocating tells what is too large.
        let narrow = devices.iter().map(|device| {
            let kind = &device.buffer_type;
            devices.len() > 1
                && kind.max_size() < largest.saturating_mul(2).saturating_add(kind.alignment())
        });
        let narrow = narrow.collect();
        Self {
            graph,
            devices,
            residence,
            kinds,
            kind_of_device,
            usable,
            resident_memory,
            externals,
            narrow,
        }
    }

    /// All devices, those of higher priority first.
    pub fn device_indices(&self) -> impl DoubleEndedIterator<Item = DeviceIndex> + use<> {
        (0..self.devices.len()).map(DeviceIndex)
    }

    /// The kind of memory that results of a device go to.
    pub fn kind_of_device(&self, device: DeviceIndex) -> Kind {
        self.kind_of_device[device.0]
    }

    /// How many kinds of memory there are.
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// Whether a device may be unable to hold some tensor of the graph.
    pub(crate) fn is_narrow(&self, device: DeviceIndex) -> bool {
        self.narrow[device.0]
    }

    /// Whether the results of a node, and what must be copied to it, fit into the largest buffer
    /// of a device; as text when not.
    pub(crate) fn check_sizes(
        &self,
        memory: impl Fn(TensorId) -> Option<Kind>,
        node: &Node,
        device: DeviceIndex,
    ) -> Result<(), String> {
        if !self.is_narrow(device) {
            return Ok(());
        }
        let own = &*self.devices[device.0].buffer_type;
        if node.root == node.id {
            self.check_size(own, node.id, self.graph.layout(node.id))?;
        }
        for source in self.graph.node_sources(node).iter().flatten() {
            let is_open = memory(source.root).is_none();
            let readable = match memory(source.root) {
                Some(kind) => self.can_use(device, kind),
                // It may come to lie in any memory that computes and is wide enough.
                None => self.device_indices().any(|other| {
                    let kind = self.kind_of_device(other);
                    let bytes = self.buffer_type(kind).tensor_bytes(self.graph.layout(source.root));
                    self.can_use(device, kind) && bytes <= self.buffer_type(kind).max_size()
                }),
            };
            if !readable {
                let layout = self.graph.layout(source.id);
                let copied = Layout::contiguous(layout.dtype(), layout.shape());
                self.check_size(own, source.id, copied.as_ref().unwrap_or(layout)).map_err(
                    |reason| if is_open { reason } else { format!("a copy of {reason}") },
                )?;
            }
        }
        Ok(())
    }

    fn check_size(
        &self,
        kind: &dyn BufferType,
        id: TensorId,
        layout: &Layout,
    ) -> Result<(), String> {
        let (bytes, max) = (kind.tensor_bytes(layout), kind.max_size());
        if bytes <= max {
            return Ok(());
        }
        let name = &self.graph.tensor(id).name;
        Err(format!("{name:?} takes {bytes} bytes, the largest buffer of {} is {max}", kind.name()))
    }

    /// The buffer type of a kind.
    pub fn buffer_type(&self, kind: Kind) -> &'a Arc<dyn BufferType> {
        self.kinds[kind.index()]
    }

    /// Whether a device can compute with tensors in that kind of memory.
    pub fn can_use(&self, device: DeviceIndex, kind: Kind) -> bool {
        self.usable[device.0 * self.kinds.len() + kind.index()]
    }

    /// Whether a device reads a tensor where it lies; `root` owns the memory of the tensor.
    pub fn reads_in_place(&self, memory: &Memory, device: DeviceIndex, root: TensorId) -> bool {
        memory[root].is_none_or(|kind| self.can_use(device, kind))
    }

    /// Where weights and states lie; everything else is open.
    pub(crate) fn resident_memory(&self) -> &Memory {
        &self.resident_memory
    }

    pub(crate) fn external(&self, root: TensorId) -> External {
        self.externals[root]
    }

    /// The kind of memory of every root, once all is placed.
    pub fn memory(&self, placement: &Placement) -> Memory {
        let mut memory = self.resident_memory.clone();
        let inputs = self.graph.leaves().iter().copied();
        for id in inputs.chain(self.graph.nodes().iter().map(|node| node.root)) {
            if self.externals[id] == External::No
                && let Some(device) = placement.device(id)
            {
                memory[id] = Some(self.kind_of_device(device));
            }
        }
        memory
    }
}

fn kind_of<'a>(kinds: &mut Vec<&'a Arc<dyn BufferType>>, wanted: &'a Arc<dyn BufferType>) -> Kind {
    let known = kinds.iter().position(|kind| Arc::ptr_eq(kind, wanted));
    let known = known
        .or_else(|| kinds.iter().position(|kind| same_buffer_type(&***kind, &**wanted)))
        .unwrap_or_else(|| {
            kinds.push(wanted);
            kinds.len() - 1
        });
    Kind(u16::try_from(known).unwrap_or(u16::MAX))
}

/// Operands in the longest list that is remembered.
const MAX_OPERANDS: usize = 8;

/// An op as it would be asked about, alike for nodes of the same layouts and kinds of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Question {
    class: u32,
    device: u32,
    /// The usable kinds of the sources, one more than their number, a byte each.
    kinds: u64,
    op: Op,
}

/// What devices said about ops that are alike.
#[derive(Debug)]
pub(crate) struct Support {
    answers: Vec<Option<(Question, bool)>>,
}

impl Support {
    const SIZE: usize = 256;

    pub(crate) fn new() -> Self {
        Self { answers: vec![None; Self::SIZE] }
    }

    /// Whether a device runs a node with its sources in that memory, as far as it is known and
    /// the device can use it; other sources would be copied.
    pub(crate) fn ask(
        &mut self,
        facts: &Facts<'_>,
        memory: &Memory,
        node: &Node,
        device: DeviceIndex,
    ) -> bool {
        let sources = facts.graph.node_sources(node);
        let Some(&op) = facts.graph.tensor(node.id).op() else { return true };
        let mut kinds = 0;
        let memorable = sources.len() <= MAX_OPERANDS && facts.kinds() < 255;
        if memorable {
            for source in sources.iter().rev() {
                let kind = source.and_then(|source| memory[source.root]);
                let kind = kind.filter(|&kind| facts.can_use(device, kind));
                kinds = kinds << 8 | kind.map_or(0, |kind| u64::from(kind.0) + 1);
            }
        }
        let question = Question { class: node.class, device: device.0 as u32, kinds, op };
        let at = slot(&question);
        if memorable
            && let Some((known, answer)) = &self.answers[at]
            && *known == question
        {
            return *answer;
        }
        let layouts: Vec<Option<Layout>> =
            sources.iter().map(|source| source.map(|s| *facts.graph.layout(s.id))).collect();
        let buffer_types: Vec<Option<&dyn BufferType>> = sources
            .iter()
            .map(|source| source.and_then(|s| usable_type(facts, memory, device, s.root)))
            .collect();
        let op = StepOp::Op(op);
        let dst = facts.graph.layout(node.id);
        let case = OpCase { op: &op, sources: &layouts, buffer_types: &buffer_types, dst };
        let answer = facts.devices[device.0].device.supports_op(&case).is_ok();
        if memorable {
            self.answers[at] = Some((question, answer));
        }
        answer
    }
}

/// The buffer type of a root, where the device can use it.
pub(crate) fn usable_type<'a>(
    facts: &Facts<'a>,
    memory: &Memory,
    device: DeviceIndex,
    root: TensorId,
) -> Option<&'a dyn BufferType> {
    let kind = memory[root].filter(|&kind| facts.can_use(device, kind))?;
    Some(&**facts.buffer_type(kind))
}

fn slot(question: &Question) -> usize {
    let word = u64::from(question.class) << 16 ^ u64::from(question.device) ^ question.kinds << 32;
    let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % Support::SIZE
}
