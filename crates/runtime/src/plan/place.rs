//! Stage 1: a device for every tensor.
//!
//! Guarantee: every live op is placed where it is supported and where the memory that it writes
//! can be used, or planning fails with what each device said. Preference: where the weights are,
//! and few changes of device, by adjacency in graph order. Accepted weakness: adjacency is not
//! time; a run of small ops may stay on a slow device because its neighbours are there.

use std::collections::HashMap;

use tensoryard_graph::ops::{Copy, Op};
use tensoryard_graph::{Graph, Layout, Origin, TensorId, TensorMap};

use super::{DeviceIndex, PlanDevice, Residence, can_use};
use crate::{BufferType, OpCase, PlanError, StepOp};

/// Why a tensor is placed where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The user said so.
    Pinned,
    /// A leaf, or an op that writes one: the memory is there already.
    InMemory,
    /// A view follows the tensor whose memory it looks into.
    BaseOfView,
    /// A graph input goes to the last device.
    Input,
    /// The weight that is this operand is there.
    Weight(usize),
    /// A neighbour earlier in the graph is there.
    GrownDown,
    /// A neighbour later in the graph is there.
    GrownUp,
    /// A device of higher priority uses the same memory.
    Upgraded,
    /// Most sources can be read there.
    MostReadableSources,
    /// The first device that runs the op.
    FirstAble,
    /// The run is predicted to end soonest this way.
    Predicted,
    /// Nothing reads the tensor.
    Unused,
}

impl Reason {
    /// The reason in words, for reports.
    pub fn text(self) -> String {
        match self {
            Reason::Pinned => "pinned".to_owned(),
            Reason::InMemory => "in memory".to_owned(),
            Reason::BaseOfView => "base of view".to_owned(),
            Reason::Input => "input".to_owned(),
            Reason::Weight(operand) => format!("weight {operand}"),
            Reason::GrownDown => "grown down".to_owned(),
            Reason::GrownUp => "grown up".to_owned(),
            Reason::Upgraded => "upgraded".to_owned(),
            Reason::MostReadableSources => "most readable sources".to_owned(),
            Reason::FirstAble => "first able".to_owned(),
            Reason::Predicted => "predicted".to_owned(),
            Reason::Unused => "unused".to_owned(),
        }
    }
}

/// A tensor whose device the user fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin {
    /// The tensor.
    pub tensor: TensorId,
    /// Its device.
    pub device: DeviceIndex,
}

/// The device of each tensor, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    devices: TensorMap<Option<(DeviceIndex, Reason)>>,
}

impl Placement {
    /// The device of a live tensor; `None` for one that nothing reads.
    pub fn device(&self, id: TensorId) -> Option<DeviceIndex> {
        self.devices[id].map(|(device, _)| device)
    }

    /// Why the tensor is there.
    pub fn reason(&self, id: TensorId) -> Reason {
        self.devices[id].map_or(Reason::Unused, |(_, reason)| reason)
    }

    /// States another reason for where a placed tensor is.
    pub(super) fn restate(&mut self, id: TensorId, reason: Reason) {
        if let Some((_, stated)) = &mut self.devices[id] {
            *stated = reason;
        }
    }
}

struct Placer<'a> {
    graph: &'a Graph,
    devices: &'a [PlanDevice],
    residence: &'a Residence,
    placed: TensorMap<Option<(DeviceIndex, Reason)>>,
    /// Live nodes that compute something, in graph order.
    nodes: Vec<TensorId>,
    /// Live ops that write into the result of another op, by that result.
    writers: HashMap<TensorId, Vec<TensorId>>,
}

/// The memory that a root is taken to lie in, while it is not placed yet.
type Assumed<'a> = Option<(TensorId, &'a dyn BufferType)>;

/// Places every live tensor of the graph.
///
/// # Errors
/// An op that no device runs, memory that no device can use, a pin that cannot be honoured.
pub fn place(
    graph: &Graph,
    devices: &[PlanDevice],
    residence: &Residence,
    pins: &[Pin],
) -> Result<Placement, PlanError> {
    let mut placer = Placer {
        graph,
        devices,
        residence,
        placed: TensorMap::filled(None, graph.len()),
        nodes: graph.live_nodes().collect(),
        writers: HashMap::new(),
    };
    for id in graph.live_nodes() {
        let root = graph.root(id);
        if root != id && graph.tensor(root).is_computed() {
            placer.writers.entry(root).or_default().push(id);
        }
    }
    placer.fix_pins(pins)?;
    placer.fix_memory()?;
    placer.follow_weights();
    placer.grow();
    placer.upgrade();
    placer.fill_open()?;
    placer.follow_bases();
    Ok(Placement { devices: placer.placed })
}

impl Placer<'_> {
    fn indices(&self) -> impl DoubleEndedIterator<Item = DeviceIndex> + use<> {
        (0..self.devices.len()).map(DeviceIndex)
    }

    /// The kind of memory that a tensor lies in, as far as it is placed.
    fn memory_of(&self, id: TensorId) -> Option<&dyn BufferType> {
        self.memory_assuming(id, None)
    }

    fn memory_assuming<'a>(
        &'a self,
        id: TensorId,
        assumed: Assumed<'a>,
    ) -> Option<&'a dyn BufferType> {
        let root = self.graph.root(id);
        if let Some((of, memory)) = assumed
            && of == root
        {
            return Some(memory);
        }
        if let Some(kind) = self.residence.of(root) {
            return Some(&**kind);
        }
        self.placed[root].map(|(device, _)| &*self.devices[device.0].buffer_type)
    }

    /// Whether the device runs the node, as [`PlanError::Unsupported`] text when not.
    ///
    /// Sources in memory that the device cannot use are asked about without a kind of memory,
    /// since they would be copied. A result that later ops write into must lie where they run.
    fn check(&self, id: TensorId, device: DeviceIndex) -> Result<(), String> {
        self.check_assuming(id, device, None)?;
        let memory = &*self.devices[device.0].buffer_type;
        for &writer in self.writers.get(&id).into_iter().flatten() {
            let able = self.indices().any(|other| {
                can_use(&self.devices[other.0], memory)
                    && self.check_assuming(writer, other, Some((id, memory))).is_ok()
            });
            if !able {
                let name = &self.graph.tensor(writer).name;
                return Err(format!("no device writes {name:?} into {}", memory.name()));
            }
        }
        Ok(())
    }

    fn check_assuming(
        &self,
        id: TensorId,
        device: DeviceIndex,
        assumed: Assumed<'_>,
    ) -> Result<(), String> {
        let plan_device = &self.devices[device.0];
        let desc = self.graph.tensor(id);
        let Some(op) = desc.op() else { return Ok(()) };
        if let Some(written) = op.writes() {
            match self.memory_assuming(id, assumed) {
                Some(memory) if can_use(plan_device, memory) => {}
                Some(memory) => return Err(format!("cannot use {}", memory.name())),
                None => return Err("what it writes into is not placed".to_owned()),
            }
            for (operand, source) in desc.sources.iter().enumerate() {
                if let Some(source) = *source
                    && operand != written
                    && self.graph.root(source) == self.graph.root(id)
                {
                    self.check_copy(source, device, assumed)?;
                }
            }
        }
        let kinds: Vec<Option<&dyn BufferType>> = desc
            .sources
            .iter()
            .map(|source| source.and_then(|id| self.usable_memory(id, device, assumed)))
            .collect();
        let case = OpCase {
            op: &StepOp::Op(*op),
            sources: &self.layouts(&desc.sources),
            buffer_types: &kinds,
            dst: &desc.layout,
        };
        plan_device.device.supports_op(&case).map_err(|unsupported| unsupported.to_string())
    }

    /// Whether the device can copy a source out of memory that an op writes.
    fn check_copy(
        &self,
        source: TensorId,
        device: DeviceIndex,
        assumed: Assumed<'_>,
    ) -> Result<(), String> {
        let layout = self.graph.layout(source);
        let dst = Layout::contiguous(layout.dtype(), layout.shape()).map_err(|e| e.to_string())?;
        let case = OpCase {
            op: &StepOp::Op(Op::from(Copy { dtype: layout.dtype() })),
            sources: &[Some(*layout)],
            buffer_types: &[self.usable_memory(source, device, assumed)],
            dst: &dst,
        };
        let answer = self.devices[device.0].device.supports_op(&case);
        answer.map_err(|unsupported| format!("a source lies in what is written: {unsupported}"))
    }

    fn layouts(&self, sources: &[Option<TensorId>]) -> Vec<Option<Layout>> {
        sources.iter().map(|source| source.map(|id| *self.graph.layout(id))).collect()
    }

    fn usable_memory<'a>(
        &'a self,
        id: TensorId,
        device: DeviceIndex,
        assumed: Assumed<'a>,
    ) -> Option<&'a dyn BufferType> {
        self.memory_assuming(id, assumed).filter(|memory| can_use(&self.devices[device.0], *memory))
    }

    fn supports(&self, id: TensorId, device: DeviceIndex) -> bool {
        self.check(id, device).is_ok()
    }

    /// What every device says of a node that none of them runs.
    fn refusals(&self, id: TensorId) -> String {
        let said = self.indices().map(|device| {
            let name = &self.devices[device.0].device.info().name;
            let answer = self.check(id, device).err().unwrap_or_else(|| "runs it".to_owned());
            format!("{name}: {answer}")
        });
        said.collect::<Vec<_>>().join("; ")
    }

    fn fix_pins(&mut self, pins: &[Pin]) -> Result<(), PlanError> {
        // A result is pinned before what writes into it.
        let mut pins = pins.to_vec();
        pins.sort_by_key(|pin| pin.tensor);
        for pin in pins {
            if pin.tensor.index() >= self.graph.len() {
                return Err(PlanError::Pin {
                    tensor: pin.tensor.to_string(),
                    device: format!("device {}", pin.device.0),
                    reason: format!("graph {:?} has no such tensor", self.graph.name()),
                });
            }
            let desc = self.graph.tensor(pin.tensor);
            let refuse = |device: String, reason: String| PlanError::Pin {
                tensor: desc.name.clone(),
                device,
                reason,
            };
            let Some(device) = self.devices.get(pin.device.0) else {
                let number = format!("device {}", pin.device.0);
                return Err(refuse(number, "there is no such device".to_owned()));
            };
            let name = device.device.info().name.clone();
            if desc.view.is_some() && desc.op().is_some_and(|op| op.is_view()) {
                return Err(refuse(name, "a view is where its base is".to_owned()));
            }
            if let Some(kind) = self.residence.of(self.graph.root(pin.tensor))
                && !can_use(device, &**kind)
            {
                return Err(refuse(name, format!("it lies in {}", kind.name())));
            }
            if let Err(reason) = self.check(pin.tensor, pin.device) {
                return Err(refuse(name, reason));
            }
            self.placed[pin.tensor] = Some((pin.device, Reason::Pinned));
        }
        Ok(())
    }

    /// Leaves, and ops that write into memory which exists.
    fn fix_memory(&mut self) -> Result<(), PlanError> {
        let last = DeviceIndex(self.devices.len() - 1);
        for id in self.graph.ids().filter(|&id| self.graph.is_live(id)) {
            let desc = self.graph.tensor(id);
            if self.placed[id].is_some() {
                continue;
            }
            if desc.origin == Origin::Input {
                self.placed[id] = Some((last, Reason::Input));
                continue;
            }
            let Some(kind) = self.residence.of(self.graph.root(id)) else { continue };
            if desc.op().is_some_and(|op| op.is_view()) {
                continue;
            }
            let able = self.indices().find(|&device| {
                can_use(&self.devices[device.0], &**kind) && self.supports(id, device)
            });
            match able {
                Some(device) => self.placed[id] = Some((device, Reason::InMemory)),
                None => {
                    return Err(PlanError::Fixed {
                        op: desc.origin.name(),
                        tensor: desc.name.clone(),
                        buffer_type: kind.name().to_owned(),
                        reasons: self.refusals(id),
                    });
                }
            }
        }
        Ok(())
    }

    /// The first operand that is a weight and attracts decides.
    fn follow_weights(&mut self) {
        for position in 0..self.nodes.len() {
            let id = self.nodes[position];
            if self.placed[id].is_some() {
                continue;
            }
            let desc = self.graph.tensor(id);
            let Some(op) = desc.op() else { continue };
            let weight = op.operands().iter().zip(&desc.sources).enumerate().find_map(
                |(operand, (spec, source))| {
                    let root = self.graph.root((*source)?);
                    let is_weight = self.graph.tensor(root).origin == Origin::Weight;
                    (spec.attracts && is_weight).then_some((operand, root))
                },
            );
            let Some((operand, root)) = weight else { continue };
            let Some(kind) = self.residence.of(root) else { continue };
            let able = self.indices().find(|&device| {
                can_use(&self.devices[device.0], &**kind) && self.supports(id, device)
            });
            if let Some(device) = able {
                self.placed[id] = Some((device, Reason::Weight(operand)));
            }
        }
    }

    /// Four sweeps: down and up carrying every device but the last, then any.
    fn grow(&mut self) {
        let last = DeviceIndex(self.devices.len() - 1);
        for carry_last in [false, true] {
            for (down, reason) in [(true, Reason::GrownDown), (false, Reason::GrownUp)] {
                let mut carried: Option<DeviceIndex> = None;
                for step in 0..self.nodes.len() {
                    let at = if down { step } else { self.nodes.len() - 1 - step };
                    let id = self.nodes[at];
                    match (self.placed[id], carried) {
                        (Some((device, _)), _) => {
                            carried = (carry_last || device != last).then_some(device);
                        }
                        (None, Some(device)) if self.supports(id, device) => {
                            self.placed[id] = Some((device, reason));
                        }
                        (None, _) => {}
                    }
                }
            }
        }
    }

    fn readable(&self, source: TensorId, device: DeviceIndex) -> bool {
        self.memory_of(source).is_some_and(|memory| can_use(&self.devices[device.0], memory))
    }

    /// Raises nodes to a device of higher priority that shares the memory, and gives open
    /// nodes the device that can read most of their sources.
    fn upgrade(&mut self) {
        for position in 0..self.nodes.len() {
            let id = self.nodes[position];
            let desc = self.graph.tensor(id);
            match self.placed[id] {
                Some((_, Reason::Pinned | Reason::InMemory)) => {}
                Some((current, _)) => {
                    let better = self.indices().take(current.0).find(|&device| {
                        let (a, b) = (&self.devices[device.0], &self.devices[current.0]);
                        crate::same_buffer_type(&*a.buffer_type, &*b.buffer_type)
                            && self.supports(id, device)
                            && desc.present_sources().all(|source| self.readable(source, device))
                    });
                    if let Some(device) = better {
                        self.placed[id] = Some((device, Reason::Upgraded));
                    }
                }
                None => {
                    let count = |device: DeviceIndex| {
                        desc.present_sources()
                            .filter(|&source| self.readable(source, device))
                            .count()
                    };
                    // `max_by_key` keeps the last of equals, so the order is turned round.
                    let best = self
                        .indices()
                        .rev()
                        .filter(|&device| self.supports(id, device))
                        .max_by_key(|&device| count(device))
                        .filter(|&device| count(device) > 0);
                    if let Some(device) = best {
                        self.placed[id] = Some((device, Reason::MostReadableSources));
                    }
                }
            }
        }
    }

    fn fill_open(&mut self) -> Result<(), PlanError> {
        for position in 0..self.nodes.len() {
            let id = self.nodes[position];
            if self.placed[id].is_some() {
                continue;
            }
            let Some(device) = self.indices().find(|&device| self.supports(id, device)) else {
                let desc = self.graph.tensor(id);
                return Err(PlanError::Unsupported {
                    op: desc.origin.name(),
                    tensor: desc.name.clone(),
                    reasons: self.refusals(id),
                });
            };
            self.placed[id] = Some((device, Reason::FirstAble));
        }
        Ok(())
    }

    /// Views go where their root is, and so do ops that write into an op's result.
    fn follow_bases(&mut self) {
        for id in self.graph.ids().filter(|&id| self.graph.is_live(id)) {
            let root = self.graph.root(id);
            if root != id && self.placed[id].is_none() {
                self.placed[id] = self.placed[root].map(|(device, _)| (device, Reason::BaseOfView));
            }
        }
    }
}
