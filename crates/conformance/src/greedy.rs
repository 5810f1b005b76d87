//! A yardstick for placement: the greedy rules of the field's scheduler, written down plainly.
//!
//! It shares no code with planning and knows nothing of memory: it places, cuts and counts. Each
//! tensor that a device cannot read where it lies is copied once for that device, views as they
//! are. Ops run where the memory that they write can be used. It may place what cannot run: a
//! result where nobody can write into it, a write that reads what it overwrites on a device that
//! cannot copy it first. Then it measures nothing.

use std::collections::HashSet;
use std::sync::Arc;

use tensoryard_graph::{Graph, Layout, Origin, TensorId};
use tensoryard_runtime::plan::Residence;
use tensoryard_runtime::{BufferType, OpCase, PlanDevice, StepOp};

/// What the greedy placement costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// Bytes copied between memories in one run.
    pub copied_bytes: usize,
    /// Number of splits.
    pub splits: usize,
}

struct Greedy<'a> {
    graph: &'a Graph,
    devices: &'a [PlanDevice],
    residence: &'a Residence,
    /// By tensor.
    placed: Vec<Option<usize>>,
}

/// Places and cuts a graph; `None` when the result cannot run.
pub fn measure(graph: &Graph, devices: &[PlanDevice], residence: &Residence) -> Option<Measure> {
    let placed = vec![None; graph.len()];
    let mut greedy = Greedy { graph, devices, residence, placed };
    greedy.place()?;
    Some(greedy.count())
}

impl Greedy<'_> {
    fn memory(&self, id: TensorId) -> Option<&Arc<dyn BufferType>> {
        let root = self.graph.root(id);
        let placed = self.placed[root.index()];
        let own = || placed.map(|device| &self.devices[device].buffer_type);
        self.residence.of(root).or_else(own)
    }

    fn uses(&self, device: usize, memory: &dyn BufferType) -> bool {
        let device = &self.devices[device];
        memory.name() == device.buffer_type.name() || device.device.supports_buffer_type(memory)
    }

    fn reads(&self, device: usize, id: TensorId) -> bool {
        self.memory(id).is_some_and(|memory| self.uses(device, &**memory))
    }

    fn supports(&self, device: usize, id: TensorId) -> bool {
        let desc = self.graph.tensor(id);
        let Some(op) = desc.op() else { return true };
        let layouts: Vec<Option<Layout>> =
            desc.sources.iter().map(|source| source.map(|id| *self.graph.layout(id))).collect();
        let kinds: Vec<Option<&dyn BufferType>> = desc
            .sources
            .iter()
            .map(|source| source.filter(|&id| self.reads(device, id)))
            .map(|source| source.and_then(|id| self.memory(id)).map(|memory| &**memory))
            .collect();
        let step = StepOp::Op(*op);
        let case = OpCase { op: &step, sources: &layouts, buffer_types: &kinds, dst: &desc.layout };
        let written = op.writes().is_none() || self.reads(device, id);
        written && self.devices[device].device.supports_op(&case).is_ok()
    }

    fn first(&self, id: TensorId, memory: &dyn BufferType) -> Option<usize> {
        (0..self.devices.len()).find(|&d| self.uses(d, memory) && self.supports(d, id))
    }

    fn place(&mut self) -> Option<()> {
        let last = self.devices.len() - 1;
        let nodes: Vec<TensorId> = self.graph.live_nodes().collect();
        self.place_what_is_held()?;
        // Neighbours: down and up with all devices but the last, then with any.
        for limit in [last, last + 1] {
            self.sweep(nodes.iter(), limit);
            self.sweep(nodes.iter().rev(), limit);
        }
        for &id in &nodes {
            self.placed[id.index()] = self.improved(id);
        }
        for &id in &nodes {
            if self.placed[id.index()].is_none() {
                let able = (0..=last).find(|&device| self.supports(device, id));
                self.placed[id.index()] = Some(able?);
            }
        }
        let runs = |&id: &TensorId| {
            let able = self.placed[id.index()].is_some_and(|d| self.supports(d, id));
            able && !self.reads_what_it_writes(id)
        };
        nodes.iter().all(runs).then_some(())
    }

    /// Places what lies somewhere, inputs, and what has weights.
    fn place_what_is_held(&mut self) -> Option<()> {
        let graph = self.graph;
        let last = self.devices.len() - 1;
        for id in graph.ids().filter(|&id| graph.is_live(id)) {
            let desc = graph.tensor(id);
            self.placed[id.index()] = match desc.origin {
                Origin::Input => Some(last),
                Origin::Weight | Origin::State => {
                    (0..=last).find(|&d| self.reads(d, id)).or(Some(last))
                }
                Origin::Op(op) if op.is_view() => None,
                Origin::Op(op) => match self.residence.of(graph.root(id)) {
                    Some(memory) => Some(self.first(id, &**memory)?),
                    None => {
                        let operands = op.operands().iter().zip(&desc.sources);
                        let mut weights = operands.filter_map(|(spec, source)| {
                            let root = graph.root((*source)?);
                            let weight = graph.tensor(root).origin == Origin::Weight;
                            (spec.attracts && weight).then_some(root)
                        });
                        let memory = weights.next().and_then(|root| self.residence.of(root));
                        memory.and_then(|memory| self.first(id, &**memory))
                    }
                },
            };
        }
        Some(())
    }

    /// A device of higher priority in the same memory; for what is open, the one that reads most.
    fn improved(&self, id: TensorId) -> Option<usize> {
        let sources: Vec<TensorId> = self.graph.tensor(id).present_sources().collect();
        let own = |device: usize| self.devices[device].buffer_type.name();
        if let Some(current) = self.placed[id.index()] {
            if self.residence.of(self.graph.root(id)).is_some() {
                return Some(current);
            }
            let better = (0..current).find(|&d| {
                own(d) == own(current)
                    && self.supports(d, id)
                    && sources.iter().all(|&source| self.reads(d, source))
            });
            return better.or(Some(current));
        }
        let mut best: Option<(usize, usize)> = None;
        for device in (0..self.devices.len()).filter(|&device| self.supports(device, id)) {
            let count = sources.iter().filter(|&&source| self.reads(device, source)).count();
            if count > best.map_or(0, |(most, _)| most) {
                best = Some((count, device));
            }
        }
        best.map(|(_, device)| device)
    }

    fn reads_what_it_writes(&self, id: TensorId) -> bool {
        let desc = self.graph.tensor(id);
        let Some(written) = desc.op().and_then(|op| op.writes()) else { return false };
        let root = self.graph.root(id);
        let mut others = desc.sources.iter().enumerate().filter(|(at, _)| *at != written);
        others.any(|(_, source)| source.is_some_and(|source| self.graph.root(source) == root))
    }

    /// Carries devices below `limit` from node to node.
    fn sweep<'n>(&mut self, nodes: impl Iterator<Item = &'n TensorId>, limit: usize) {
        let mut carried = None;
        for &id in nodes {
            match self.placed[id.index()] {
                Some(device) => carried = Some(device).filter(|&device| device < limit),
                None => {
                    if let Some(device) = carried
                        && self.supports(device, id)
                    {
                        self.placed[id.index()] = Some(device);
                    }
                }
            }
        }
    }

    /// The last rule: cuts where the device changes, and for copied weights; each tensor is
    /// copied once for each device.
    fn count(&self) -> Measure {
        let graph = self.graph;
        let mut measure = Measure { copied_bytes: 0, splits: 0 };
        let mut copied: HashSet<(TensorId, usize)> = HashSet::new();
        let mut current: Option<usize> = None;
        let mut arrivals = 0;
        for id in graph.live_nodes() {
            let desc = graph.tensor(id);
            let Some(device) = self.placed[id.index()] else { continue };
            let written = desc.op().and_then(|op| op.writes());
            let operands = desc.sources.iter().enumerate();
            let foreign: Vec<TensorId> = operands
                .filter(|(operand, _)| written != Some(*operand))
                .filter_map(|(_, source)| source.filter(|&source| !self.reads(device, source)))
                .collect();
            let streams = foreign.iter().any(|&source| {
                graph.tensor(graph.root(source)).origin == Origin::Weight
                    && !copied.contains(&(source, device))
            });
            if current != Some(device) || (streams && arrivals > 0) {
                measure.splits += 1;
                (current, arrivals) = (Some(device), 0);
            }
            for source in foreign {
                if copied.insert((source, device)) {
                    measure.copied_bytes += graph.layout(source).data_bytes();
                    arrivals += 1;
                }
            }
        }
        measure
    }
}
