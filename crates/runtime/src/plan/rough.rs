//! Rough placements by simple rules, as starts of a search.
//!
//! - the placement by priority;
//! - for each device, everything on it that it runs;
//! - in graph order, each node where it would end soonest;
//! - in graph order, the chain of devices with the least sum of computing and copying, by
//!   dynamic programming.
//!
//! Fusion and the course of the queues are left out here; the judge knows them.

use tensoryard_graph::{Graph, Layout, TensorId, TensorMap};

use super::{DeviceIndex, Pin, Placement, PlanDevice, Residence, can_use};
use crate::rates::{Work, split_ns, step_ns, transfer_ns};
use crate::{BufferType, DeviceRates, OpCase, StepOp};

/// Elements of paths that dynamic programming may copy.
const MAX_CHAIN_WORK: usize = 100_000_000;

/// What the rough rules need to know of each node.
struct Node {
    /// Devices that run it, without regard to where its computed sources are.
    choices: Vec<DeviceIndex>,
    /// Nanoseconds on each device.
    times: Vec<u64>,
    /// Position of the node that owns the memory it writes into, if that is another node.
    writes_into: Option<usize>,
    sources: Vec<Source>,
}

/// What a node reads.
#[derive(Clone, Copy)]
struct Source {
    tensor: TensorId,
    bytes: usize,
    origin: SourceOrigin,
}

#[derive(Clone, Copy)]
enum SourceOrigin {
    /// The node at this position.
    Node(usize),
    /// A leaf, whose memory belongs to the device.
    Leaf(DeviceIndex),
}

/// Nodes with their costs.
pub(super) struct Rough<'a> {
    graph: &'a Graph,
    devices: &'a [PlanDevice],
    residence: &'a Residence,
    rates: &'a [DeviceRates],
    by_priority: Vec<DeviceIndex>,
    nodes: Vec<Node>,
    chains: Vec<Vec<usize>>,
}

impl<'a> Rough<'a> {
    pub fn new(
        graph: &'a Graph,
        devices: &'a [PlanDevice],
        residence: &'a Residence,
        pins: &[Pin],
        rates: &'a [DeviceRates],
        nodes: &[TensorId],
        placement: &Placement,
    ) -> Self {
        let mut positions = TensorMap::filled(None, graph.len());
        for (position, &id) in nodes.iter().enumerate() {
            positions[id] = Some(position);
        }
        let device_of = |id: TensorId| placement.device(id).unwrap_or(DeviceIndex(0));
        let mut rough = Self {
            graph,
            devices,
            residence,
            rates,
            by_priority: nodes.iter().map(|&id| device_of(id)).collect(),
            nodes: Vec::with_capacity(nodes.len()),
            chains: Vec::new(),
        };
        for &id in nodes {
            let pinned = pins.iter().rev().find(|pin| pin.tensor == id).map(|pin| pin.device);
            let choices = match pinned {
                Some(device) => vec![device],
                None => rough.choices(id, device_of(id)),
            };
            let desc = graph.tensor(id);
            let layouts = layouts(graph, &desc.sources);
            let work = desc.op().map(|op| Work::of(&StepOp::Op(*op), &layouts, &desc.layout));
            let time = |rates| work.as_ref().map_or(0, |work| step_ns(work, rates));
            let sources = desc.present_sources().map(|tensor| {
                let root = graph.root(tensor);
                let origin = match positions[root] {
                    Some(position) => SourceOrigin::Node(position),
                    None => SourceOrigin::Leaf(device_of(root)),
                };
                Source { tensor, bytes: graph.layout(tensor).data_bytes(), origin }
            });
            let node = Node {
                choices,
                times: rates.iter().map(time).collect(),
                writes_into: positions[graph.root(id)].filter(|_| graph.root(id) != id),
                sources: sources.collect(),
            };
            rough.nodes.push(node);
        }
        rough.agree();
        rough.chains = rough.find_chains();
        rough
    }

    /// Nodes that hang together in a row: each but the first reads the one before, which nothing
    /// else reads, and no other node. The longest first; single nodes are left out.
    pub fn chains(&self) -> &[Vec<usize>] {
        &self.chains
    }

    fn find_chains(&self) -> Vec<Vec<usize>> {
        // The one reader of each node; `usize::MAX` stands for several.
        let mut readers: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut sources: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let several = |slot: &mut Option<usize>, value: usize| match *slot {
            Some(known) if known != value => *slot = Some(usize::MAX),
            Some(_) | None => *slot = Some(value),
        };
        for (position, node) in self.nodes.iter().enumerate() {
            for source in &node.sources {
                if let SourceOrigin::Node(source) = source.origin {
                    several(&mut readers[source], position);
                    several(&mut sources[position], source);
                }
            }
        }
        let mut chain_of: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut chains: Vec<Vec<usize>> = Vec::new();
        for (position, source) in sources.iter().enumerate() {
            let before = source.filter(|&source| readers.get(source) == Some(&Some(position)));
            let chain = match before {
                Some(before) => chain_of[before],
                None => {
                    chains.push(Vec::new());
                    chains.len() - 1
                }
            };
            chains[chain].push(position);
            chain_of.push(chain);
        }
        chains.retain(|chain| chain.len() > 1);
        chains.sort_by_key(|chain| std::cmp::Reverse(chain.len()));
        chains
    }

    /// Devices that run a node, as far as that can be told before its sources are placed. The
    /// device by priority is always one.
    fn choices(&self, id: TensorId, by_priority: DeviceIndex) -> Vec<DeviceIndex> {
        let desc = self.graph.tensor(id);
        let layouts = layouts(self.graph, &desc.sources);
        let runs = |device: &PlanDevice| {
            let Some(op) = desc.op() else { return true };
            if let Some(kind) = self.residence.of(self.graph.root(id))
                && !can_use(device, &**kind)
            {
                return false;
            }
            let kind_of = |id: TensorId| -> Option<&dyn BufferType> {
                let kind = self.residence.of(self.graph.root(id))?;
                can_use(device, &**kind).then_some(&**kind)
            };
            let kinds: Vec<Option<&dyn BufferType>> =
                desc.sources.iter().map(|source| source.and_then(kind_of)).collect();
            let op = StepOp::Op(*op);
            let case =
                OpCase { op: &op, sources: &layouts, buffer_types: &kinds, dst: &desc.layout };
            device.device.supports_op(&case).is_ok()
        };
        let able = self
            .devices
            .iter()
            .enumerate()
            .filter(|&(index, device)| DeviceIndex(index) == by_priority || runs(device));
        able.map(|(index, _)| DeviceIndex(index)).collect()
    }

    /// What is written into a node's memory runs where the node does, so both have one choice
    /// of devices.
    fn agree(&mut self) {
        for position in (0..self.nodes.len()).rev() {
            let Some(owner) = self.nodes[position].writes_into else { continue };
            let allowed = self.nodes[position].choices.clone();
            let common: Vec<_> = self.nodes[owner]
                .choices
                .iter()
                .copied()
                .filter(|device| allowed.contains(device))
                .collect();
            if !common.is_empty() {
                self.nodes[owner].choices = common;
            }
        }
    }

    /// Moves nodes to a device, as far as it runs them, with what writes into them.
    pub fn shift(
        &self,
        devices: &mut [DeviceIndex],
        positions: impl Iterator<Item = usize>,
        device: DeviceIndex,
    ) {
        for position in positions {
            let owner = self.nodes[position].writes_into.unwrap_or(position);
            if self.nodes[owner].choices.contains(&device) {
                devices[owner] = device;
            }
        }
        self.follow(devices);
    }

    /// What writes into another node's memory goes with it.
    fn follow(&self, devices: &mut [DeviceIndex]) {
        for (position, node) in self.nodes.iter().enumerate() {
            if let Some(owner) = node.writes_into
                && node.choices.contains(&devices[owner])
            {
                devices[position] = devices[owner];
            }
        }
    }

    /// The rough placements, that by priority first.
    pub fn candidates(&self) -> Vec<Vec<DeviceIndex>> {
        let mut candidates = vec![self.by_priority.clone()];
        for device in (0..self.devices.len()).map(DeviceIndex) {
            let mut all = self.by_priority.clone();
            self.shift(&mut all, 0..self.nodes.len(), device);
            candidates.push(all);
        }
        candidates.push(self.soonest());
        candidates.extend(self.chain());
        candidates
    }

    /// The kind of memory of a source, when the nodes are where the list says.
    fn kind_of(&self, source: &Source, devices: &[DeviceIndex]) -> (&dyn BufferType, DeviceIndex) {
        match source.origin {
            SourceOrigin::Node(position) => {
                let device = devices[position];
                (&*self.devices[device.0].buffer_type, device)
            }
            SourceOrigin::Leaf(device) => {
                let kind = self.residence.of(self.graph.root(source.tensor));
                (&**kind.unwrap_or(&self.devices[device.0].buffer_type), device)
            }
        }
    }

    /// Nanoseconds to bring a source to a device, and the device that it comes from; `None` when
    /// it can be read where it is.
    fn transfer(
        &self,
        source: &Source,
        devices: &[DeviceIndex],
        to: DeviceIndex,
    ) -> Option<(u64, DeviceIndex)> {
        let (kind, holder) = self.kind_of(source, devices);
        let target = &self.devices[to.0];
        if can_use(target, kind) {
            return None;
        }
        let from = (!kind.is_host()).then(|| &self.rates[holder.0]);
        let into = (!target.buffer_type.is_host()).then(|| &self.rates[to.0]);
        Some((transfer_ns(source.bytes, from, into), holder))
    }

    /// Each node in order where it ends soonest, given those before it.
    fn soonest(&self) -> Vec<DeviceIndex> {
        let mut placed: Vec<DeviceIndex> = Vec::with_capacity(self.nodes.len());
        let mut ends: Vec<u64> = Vec::with_capacity(self.nodes.len());
        let mut free = vec![0u64; self.devices.len()];
        let mut here = vec![None::<u64>; self.graph.len() * self.devices.len()];
        for node in &self.nodes {
            let mut best: Option<(u64, DeviceIndex)> = None;
            for &device in self.allowed(node, &placed).iter() {
                let mut ready = free[device.0];
                for source in &node.sources {
                    ready = ready.max(self.arrives(source, &placed, &ends, &free, &here, device));
                }
                let mut end = ready.saturating_add(node.times[device.0]);
                if placed.last() != Some(&device) {
                    end = end.saturating_add(split_ns(&self.rates[device.0]));
                }
                if best.is_none_or(|(known, _)| end < known) {
                    best = Some((end, device));
                }
            }
            let (end, device) = best.unwrap_or((0, DeviceIndex(0)));
            for source in &node.sources {
                if let Some((_, holder)) = self.transfer(source, &placed, device) {
                    let at = self.arrives(source, &placed, &ends, &free, &here, device);
                    let slot = source.tensor.index() * self.devices.len() + device.0;
                    if here[slot].is_none() {
                        free[holder.0] = free[holder.0].max(at);
                        here[slot] = Some(at);
                    }
                }
            }
            free[device.0] = free[device.0].max(end);
            placed.push(device);
            ends.push(end);
        }
        self.follow(&mut placed);
        placed
    }

    /// When a source can be read on a device.
    fn arrives(
        &self,
        source: &Source,
        placed: &[DeviceIndex],
        ends: &[u64],
        free: &[u64],
        here: &[Option<u64>],
        device: DeviceIndex,
    ) -> u64 {
        let written = match source.origin {
            SourceOrigin::Node(position) => ends[position],
            SourceOrigin::Leaf(_) => 0,
        };
        match self.transfer(source, placed, device) {
            None => written,
            Some((time, holder)) => {
                let slot = source.tensor.index() * self.devices.len() + device.0;
                let copied = || free[holder.0].max(written).saturating_add(time);
                here[slot].unwrap_or_else(copied)
            }
        }
    }

    /// Devices for a node when those before it are placed.
    fn allowed<'n>(
        &self,
        node: &'n Node,
        placed: &[DeviceIndex],
    ) -> std::borrow::Cow<'n, [DeviceIndex]> {
        match node.writes_into {
            Some(owner) => vec![placed[owner]].into(),
            None => node.choices.as_slice().into(),
        }
    }

    /// The devices along the cheapest chain; `None` when the graph is too large for it.
    fn chain(&self) -> Option<Vec<DeviceIndex>> {
        let (count, devices) = (self.nodes.len(), self.devices.len());
        if count.checked_mul(count)?.checked_mul(devices)? > MAX_CHAIN_WORK {
            return None;
        }
        // The cheapest path that ends on each device.
        let mut paths: Vec<Option<(u64, Vec<DeviceIndex>)>> = vec![None; devices];
        for (position, node) in self.nodes.iter().enumerate() {
            let mut longer: Vec<Option<(u64, usize)>> = vec![None; devices];
            for (to, longer) in longer.iter_mut().enumerate() {
                if position == 0 {
                    if node.choices.contains(&DeviceIndex(to)) {
                        *longer = Some((self.step_cost(node, &[], DeviceIndex(to)), to));
                    }
                    continue;
                }
                for (from, path) in paths.iter().enumerate() {
                    let Some((cost, path)) = path else { continue };
                    if !self.allowed(node, path).contains(&DeviceIndex(to)) {
                        continue;
                    }
                    let cost = cost.saturating_add(self.step_cost(node, path, DeviceIndex(to)));
                    if longer.is_none_or(|(known, _)| cost < known) {
                        *longer = Some((cost, from));
                    }
                }
            }
            let next = longer.iter().enumerate().map(|(to, best)| {
                let (cost, from) = (*best)?;
                let mut path = paths[from].as_ref().map_or_else(Vec::new, |(_, path)| path.clone());
                path.push(DeviceIndex(to));
                Some((cost, path))
            });
            paths = next.collect();
        }
        let best = paths.into_iter().flatten().min_by_key(|(cost, _)| *cost);
        best.map(|(_, path)| path)
    }

    /// What a node adds to a chain.
    fn step_cost(&self, node: &Node, path: &[DeviceIndex], device: DeviceIndex) -> u64 {
        let mut cost = node.times[device.0];
        if path.last() != Some(&device) {
            cost = cost.saturating_add(split_ns(&self.rates[device.0]));
        }
        for source in &node.sources {
            if let Some((time, _)) = self.transfer(source, path, device) {
                cost = cost.saturating_add(time);
            }
        }
        cost
    }
}

fn layouts(graph: &Graph, sources: &[Option<TensorId>]) -> Vec<Option<Layout>> {
    sources.iter().map(|source| source.map(|id| *graph.layout(id))).collect()
}
