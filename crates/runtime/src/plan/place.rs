//! Stage 1: a device for every tensor.
//!
//! Guarantee: every live op is placed where it is supported and where the memory that it writes
//! can be used, or planning fails with what each device said. Preference: where the weights are,
//! and few changes of device, by adjacency in graph order. Accepted weakness: adjacency is not
//! time; a run of small ops may stay on a slow device because its neighbours are there.

mod check;
mod placement;

use tensoryard_graph::{Node, TensorId};

pub use placement::{Pin, Placement, Reason, Stage};

use super::facts::{External, Facts, Memory, Support};
use super::{DeviceIndex, Kind};
use crate::PlanError;

/// What placement is told besides the facts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes<'a> {
    /// Tensors whose device is fixed.
    pub pins: &'a [Pin],
    /// Whether faster devices may take ops over whose weights lie in host memory of the last.
    pub offload: bool,
}

struct Placer<'a> {
    facts: &'a Facts<'a>,
    placement: Placement,
    memory: Memory,
    support: Support,
    /// Nodes that write into the result of another op, with that result; sorted by it.
    writers: Vec<(TensorId, Node)>,
    /// Nodes without a device.
    open: usize,
}

/// Places every live tensor of the graph.
///
/// # Errors
/// An op that no device runs, memory that no device can use, a pin that cannot be honoured.
pub fn place(facts: &Facts<'_>, wishes: Wishes<'_>) -> Result<Placement, PlanError> {
    place_watched(facts, wishes, |_, _| {})
}

/// As [`place`], and shows what is placed after each stage, also when a later one fails.
///
/// # Errors
/// As [`place`].
pub fn place_watched(
    facts: &Facts<'_>,
    wishes: Wishes<'_>,
    mut seen: impl FnMut(Stage, &Placement),
) -> Result<Placement, PlanError> {
    let graph = facts.graph;
    let mut placer = Placer {
        facts,
        placement: Placement::open(graph),
        memory: facts.resident_memory().clone(),
        support: Support::new(),
        writers: Vec::new(),
        open: graph.nodes().len(),
    };
    for node in graph.nodes().iter().filter(|node| node.root != node.id) {
        if graph.tensor(node.root).is_computed() {
            placer.writers.push((node.root, *node));
        }
    }
    placer.writers.sort_by_key(|&(root, node)| (root, node.id));
    placer.fix_pins(wishes.pins)?;
    seen(Stage::Pins, &placer.placement);
    placer.fix_memory()?;
    seen(Stage::Memory, &placer.placement);
    placer.follow_weights(wishes.offload);
    seen(Stage::Weights, &placer.placement);
    placer.grow();
    seen(Stage::Growth, &placer.placement);
    placer.upgrade();
    placer.fill_open()?;
    seen(Stage::Upgrades, &placer.placement);
    placer.follow_consumers();
    placer.follow_bases();
    seen(Stage::Followers, &placer.placement);
    Ok(placer.placement)
}

impl<'a> Placer<'a> {
    fn nodes(&self) -> &'a [Node] {
        self.facts.graph.nodes()
    }

    fn set(&mut self, id: TensorId, device: DeviceIndex, reason: Reason) {
        self.placement.set(id, device, reason);
        if self.facts.external(id) == External::No {
            self.memory[id] = Some(self.facts.kind_of_device(device));
        }
    }

    fn set_node(&mut self, node: &Node, device: DeviceIndex, reason: Reason) {
        if self.placement.device(node.id).is_none() {
            self.open -= 1;
        }
        self.set(node.id, device, reason);
    }

    /// Whether the device runs the node as things are placed now.
    fn supports(&mut self, node: &Node, device: DeviceIndex) -> bool {
        let facts = self.facts;
        if node.written.is_none() && (self.writers.is_empty() || self.writers_of(node).is_empty()) {
            return facts.check_sizes(|root| self.memory[root], node, device).is_ok()
                && self.support.ask(facts, &self.memory, node, device);
        }
        self.check(node, device).is_ok()
    }

    /// The first device that can use a kind of memory and run the node.
    fn first_able(&mut self, node: &Node, kind: Kind) -> Option<DeviceIndex> {
        let mut devices = self.facts.device_indices();
        devices.find(|&device| self.facts.can_use(device, kind) && self.supports(node, device))
    }

    fn fix_pins(&mut self, pins: &[Pin]) -> Result<(), PlanError> {
        let graph = self.facts.graph;
        // A result is pinned before what writes into it.
        let mut pins = pins.to_vec();
        pins.sort_by_key(|pin| pin.tensor);
        for pin in pins {
            if pin.tensor.index() >= graph.len() {
                return Err(PlanError::Pin {
                    tensor: pin.tensor.to_string(),
                    device: format!("device {}", pin.device.0),
                    reason: format!("graph {:?} has no such tensor", graph.name()),
                });
            }
            let desc = graph.tensor(pin.tensor);
            let refuse = |device: String, reason: String| PlanError::Pin {
                tensor: desc.name.clone(),
                device,
                reason,
            };
            let Some(device) = self.facts.devices.get(pin.device.0) else {
                let number = format!("device {}", pin.device.0);
                return Err(refuse(number, "there is no such device".to_owned()));
            };
            let name = device.device.info().name.clone();
            if desc.view.is_some() && desc.op().is_some_and(|op| op.is_view()) {
                return Err(refuse(name, "a view is where its base is".to_owned()));
            }
            let root = graph.root(pin.tensor);
            if self.facts.external(root) != External::No
                && let Some(kind) = self.memory[root]
                && !self.facts.can_use(pin.device, kind)
            {
                let lies_in = format!("it lies in {}", self.facts.buffer_type(kind).name());
                return Err(refuse(name, lies_in));
            }
            // What nothing reads is placed nowhere, pinned or not.
            if !graph.is_live(pin.tensor) {
                continue;
            }
            let position = self.nodes().binary_search_by_key(&pin.tensor, |node| node.id);
            match position.map(|position| self.nodes()[position]) {
                Ok(node) => {
                    if !self.supports(&node, pin.device)
                        && let Err(reason) = self.check(&node, pin.device)
                    {
                        return Err(refuse(name, reason));
                    }
                    self.set_node(&node, pin.device, Reason::Pinned);
                }
                Err(_) => self.set(pin.tensor, pin.device, Reason::Pinned),
            }
        }
        Ok(())
    }

    /// Leaves, and ops that write into memory which exists.
    fn fix_memory(&mut self) -> Result<(), PlanError> {
        let facts = self.facts;
        let last = DeviceIndex(facts.devices.len() - 1);
        for &leaf in facts.graph.leaves() {
            if self.placement.device(leaf).is_some() {
                continue;
            }
            if facts.external(leaf) == External::No {
                self.set(leaf, last, Reason::Input);
            } else if let Some(kind) = self.memory[leaf] {
                // Memory that no device can use is copied; the leaf follows who reads it.
                let able = facts.device_indices().find(|&device| facts.can_use(device, kind));
                if let Some(device) = able {
                    self.set(leaf, device, Reason::InMemory);
                }
            }
        }
        for node in self.nodes() {
            if node.root == node.id
                || facts.external(node.root) == External::No
                || self.placement.device(node.id).is_some()
            {
                continue;
            }
            let Some(kind) = self.memory[node.root] else { continue };
            match self.first_able(node, kind) {
                Some(device) => self.set_node(node, device, Reason::InMemory),
                None => {
                    let desc = facts.graph.tensor(node.id);
                    return Err(PlanError::Fixed {
                        op: desc.origin.name(),
                        tensor: desc.name.clone(),
                        buffer_type: facts.buffer_type(kind).name().to_owned(),
                        reasons: self.refusals(node),
                    });
                }
            }
        }
        Ok(())
    }

    /// The first operand that is a weight and attracts decides.
    fn follow_weights(&mut self, offload: bool) {
        let facts = self.facts;
        let last = DeviceIndex(facts.devices.len() - 1);
        for node in self.nodes() {
            if self.placement.device(node.id).is_some() {
                continue;
            }
            let mut sources = facts.graph.node_sources(node).iter().enumerate();
            let is_weight = |root| facts.external(root) == External::Weight;
            let weight = sources.find_map(|(operand, source)| {
                let root = source.map(|source| source.root).filter(|&root| is_weight(root))?;
                self.attracts(node, operand).then_some((operand, root))
            });
            let Some((operand, root)) = weight else { continue };
            let Some(kind) = self.memory[root] else { continue };
            let Some(device) = self.first_able(node, kind) else { continue };
            let operand = u32::try_from(operand).unwrap_or(u32::MAX);
            let offloads = offload && device == last && facts.buffer_type(kind).is_host();
            let taker = if offloads { self.taker(node) } else { None };
            match taker {
                Some(taker) => self.set_node(node, taker, Reason::Offloaded),
                None => self.set_node(node, device, Reason::Weight(operand)),
            }
        }
    }

    fn attracts(&self, node: &Node, operand: usize) -> bool {
        let operands = self.facts.graph.tensor(node.id).op().map(|op| op.operands());
        operands.and_then(|specs| specs.get(operand)).is_some_and(|spec| spec.attracts)
    }

    /// The first device before the last that runs the node and wants it.
    fn taker(&mut self, node: &Node) -> Option<DeviceIndex> {
        let faster = self.facts.devices.len() - 1;
        let mut devices = self.facts.device_indices().take(faster);
        devices.find(|&device| self.supports(node, device) && self.wants(node, device))
    }

    /// Four sweeps: down and up carrying every device but the last, then any.
    fn grow(&mut self) {
        let last = DeviceIndex(self.facts.devices.len() - 1);
        for carry_last in [false, true] {
            for (down, reason) in [(true, Reason::GrownDown), (false, Reason::GrownUp)] {
                if self.open == 0 {
                    return;
                }
                let mut carried: Option<DeviceIndex> = None;
                let nodes = self.nodes();
                for step in 0..nodes.len() {
                    let node = &nodes[if down { step } else { nodes.len() - 1 - step }];
                    match (self.placement.device(node.id), carried) {
                        (Some(device), _) => {
                            carried = (carry_last || device != last).then_some(device);
                        }
                        (None, Some(device)) if self.supports(node, device) => {
                            self.set_node(node, device, reason);
                        }
                        (None, _) => {}
                    }
                }
            }
        }
    }

    fn readable_sources(&self, node: &Node, device: DeviceIndex) -> (usize, usize) {
        let sources = self.facts.graph.node_sources(node).iter().flatten();
        let mut count = (0, 0);
        for source in sources {
            let kind = self.memory[source.root];
            count.0 += usize::from(kind.is_some_and(|kind| self.facts.can_use(device, kind)));
            count.1 += 1;
        }
        count
    }

    /// Raises nodes to a device of higher priority that shares the memory, and gives open
    /// nodes the device that can read most of their sources.
    fn upgrade(&mut self) {
        let facts = self.facts;
        // For each device, whether one of higher priority shares its memory.
        let kind = |device| facts.kind_of_device(device);
        let shares: Vec<bool> = facts
            .device_indices()
            .map(|of| facts.device_indices().take(of.0).any(|device| kind(device) == kind(of)))
            .collect();
        if self.open == 0 && !shares.contains(&true) {
            return;
        }
        for node in self.nodes() {
            match self.placement.device(node.id) {
                Some(current) if !shares[current.0] => {}
                Some(current) => {
                    let reason = self.placement.reason(node.id);
                    if matches!(reason, Reason::Pinned | Reason::InMemory) {
                        continue;
                    }
                    let better = facts.device_indices().take(current.0).find(|&device| {
                        let (readable, all) = self.readable_sources(node, device);
                        kind(device) == kind(current)
                            && readable == all
                            && self.supports(node, device)
                    });
                    if let Some(device) = better {
                        self.set_node(node, device, Reason::Upgraded);
                    }
                }
                None => {
                    let mut best: Option<(usize, DeviceIndex)> = None;
                    for device in facts.device_indices() {
                        let (readable, _) = self.readable_sources(node, device);
                        if readable > best.map_or(0, |(most, _)| most)
                            && self.supports(node, device)
                        {
                            best = Some((readable, device));
                        }
                    }
                    if let Some((_, device)) = best {
                        self.set_node(node, device, Reason::MostReadableSources);
                    }
                }
            }
        }
    }

    fn fill_open(&mut self) -> Result<(), PlanError> {
        if self.open == 0 {
            return Ok(());
        }
        for node in self.nodes() {
            if self.placement.device(node.id).is_some() {
                continue;
            }
            let mut devices = self.facts.device_indices();
            let Some(device) = devices.find(|&device| self.supports(node, device)) else {
                let desc = self.facts.graph.tensor(node.id);
                return Err(PlanError::Unsupported {
                    op: desc.origin.name(),
                    tensor: desc.name.clone(),
                    reasons: self.refusals(node),
                });
            };
            self.set_node(node, device, Reason::FirstAble);
        }
        Ok(())
    }

    /// Leaves in memory that no device can use go where their first reader is.
    fn follow_consumers(&mut self) {
        let facts = self.facts;
        let last = DeviceIndex(facts.devices.len() - 1);
        let leaves = facts.graph.leaves();
        if leaves.iter().all(|&leaf| self.placement.device(leaf).is_some()) {
            return;
        }
        for node in self.nodes() {
            let Some(device) = self.placement.device(node.id) else { continue };
            for source in facts.graph.node_sources(node).iter().flatten() {
                if self.placement.device(source.root).is_none() {
                    self.placement.set(source.root, device, Reason::Consumer);
                }
            }
        }
        for &leaf in leaves {
            if self.placement.device(leaf).is_none() {
                self.placement.set(leaf, last, Reason::InMemory);
            }
        }
    }

    /// Views go where their root is.
    fn follow_bases(&mut self) {
        let graph = self.facts.graph;
        for &view in graph.live_views() {
            if self.placement.device(view).is_none()
                && let Some(device) = self.placement.device(graph.root(view))
            {
                self.placement.set(view, device, Reason::BaseOfView);
            }
        }
    }
}
