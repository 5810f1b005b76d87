//! What assigning results in: the device and kind of memory of each weight and state tensor.
//!
//! Leaves are found by name, and listed in the order of first use. A graph's leaves are looked up
//! in it when the graph is planned before anything is loaded.

use std::collections::HashMap;
use std::sync::Arc;

use tensoryard_graph::{Graph, Layout};

use super::super::leaves::{Leaf, LeafKind, collect};
use super::super::limits::{MemoryUse, padded_bytes};
use super::super::{DeviceIndex, MemoryLimits, Residence, Resident};
use crate::{BufferType, Device, PlanError, same_buffer_type};

/// Where a weight or state tensor lives.
#[derive(Debug, Clone)]
pub struct Home {
    /// The device.
    pub device: DeviceIndex,
    /// Name of the device.
    pub device_name: Arc<str>,
    /// The kind of memory.
    pub buffer_type: Arc<dyn BufferType>,
    /// Type, shape and strides.
    pub layout: Layout,
    /// Bytes taken, padding included.
    pub bytes: usize,
}

/// Where all weights and state tensors of some graphs live.
#[derive(Debug, Clone, Default)]
pub struct Assignment {
    weights: Homes,
    states: Homes,
    memory: Vec<MemoryUse>,
    limits: MemoryLimits,
}

#[derive(Debug, Clone, Default)]
struct Homes {
    list: Vec<(String, Home)>,
    index: HashMap<String, usize>,
}

impl Homes {
    fn insert(&mut self, name: &str, home: Home) {
        self.index.insert(name.to_owned(), self.list.len());
        self.list.push((name.to_owned(), home));
    }

    fn get(&self, name: &str) -> Option<&Home> {
        self.index.get(name).map(|&at| &self.list[at].1)
    }
}

impl Assignment {
    /// Everything on one device, whatever it takes.
    ///
    /// # Errors
    /// Graphs that disagree about a leaf.
    pub fn on_device(graphs: &[&Graph], device: &dyn Device) -> Result<Self, PlanError> {
        let mut assignment = Self::default();
        for leaf in collect(graphs)? {
            let kind = kind_on(&leaf, device, &device.buffer_types()[0]);
            assignment.settle(&leaf, DeviceIndex(0), &device.info().name, kind);
        }
        Ok(assignment)
    }

    /// Nothing yet, under these limits.
    pub(super) fn within(limits: MemoryLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(super) fn set_memory(&mut self, memory: Vec<MemoryUse>) {
        self.memory = memory;
    }

    pub(super) fn set_limits(&mut self, limits: MemoryLimits) {
        self.limits = limits;
    }

    /// Gives a leaf its place.
    pub(super) fn settle(
        &mut self,
        leaf: &Leaf,
        device: DeviceIndex,
        device_name: &str,
        buffer_type: Arc<dyn BufferType>,
    ) {
        let bytes = padded_bytes(&*buffer_type, &leaf.layout);
        let (device_name, layout) = (Arc::from(device_name), leaf.layout);
        let home = Home { device, device_name, buffer_type, layout, bytes };
        match leaf.kind {
            LeafKind::Weight => self.weights.insert(&leaf.name, home),
            LeafKind::State => self.states.insert(&leaf.name, home),
        }
    }

    /// Where a weight lives.
    pub fn weight(&self, name: &str) -> Option<&Home> {
        self.weights.get(name)
    }

    /// Where a state tensor lives.
    pub fn state(&self, name: &str) -> Option<&Home> {
        self.states.get(name)
    }

    /// The weights in order of first use.
    pub fn weights(&self) -> impl Iterator<Item = (&str, &Home)> {
        self.weights.list.iter().map(|(name, home)| (name.as_str(), home))
    }

    /// The state tensors in order of first use.
    pub fn states(&self) -> impl Iterator<Item = (&str, &Home)> {
        self.states.list.iter().map(|(name, home)| (name.as_str(), home))
    }

    /// What each memory must hold for all graphs together.
    pub fn memory(&self) -> &[MemoryUse] {
        &self.memory
    }

    /// The limits that it was made for: those given, and else the memory that was free. Less
    /// where graphs placed by cost would only fit one by one.
    pub fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Where the leaves of a graph will be kept.
    ///
    /// # Errors
    /// One that is not assigned or has another layout; a view of one that is kept as a whole.
    pub fn residence(&self, graph: &Graph) -> Result<Residence, PlanError> {
        let find = |homes: &Homes, name: &str| {
            homes.get(name).map(|home| (home.layout, Arc::clone(&home.buffer_type)))
        };
        Residence::build(
            graph,
            |name| find(&self.weights, name),
            |name| find(&self.states, name),
            self.residents(),
        )
    }

    pub(super) fn residents(&self) -> Vec<Resident> {
        let mut residents: Vec<Resident> = Vec::new();
        for (_, home) in &self.weights.list {
            resident(&mut residents, &home.buffer_type).weights += home.bytes;
        }
        for (_, home) in &self.states.list {
            resident(&mut residents, &home.buffer_type).state += home.bytes;
        }
        residents
    }
}

/// The entry of a kind of memory, made when it is new.
pub(in crate::plan) fn resident<'a>(
    residents: &'a mut Vec<Resident>,
    kind: &Arc<dyn BufferType>,
) -> &'a mut Resident {
    let known = residents.iter().position(|other| same_buffer_type(&*other.kind, &**kind));
    let at = known.unwrap_or_else(|| {
        residents.push(Resident { kind: Arc::clone(kind), weights: 0, state: 0 });
        residents.len() - 1
    });
    &mut residents[at]
}

/// The kind of memory that a leaf is best kept in on a device.
pub(super) fn kind_on(
    leaf: &Leaf,
    device: &dyn Device,
    usual: &Arc<dyn BufferType>,
) -> Arc<dyn BufferType> {
    let kind = match leaf.kind {
        LeafKind::Weight => device.weight_buffer_type(&leaf.layout, &leaf.uses),
        LeafKind::State => Arc::clone(usual),
    };
    if leaf.viewed && !kind.takes_views() { Arc::clone(usual) } else { kind }
}
