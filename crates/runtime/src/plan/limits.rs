//! Memory limits: what each kind of memory must hold, and whether it can.
//!
//! Kinds of memory that are the same bytes are one memory, counted once: all host memory, and
//! the kinds that one device offers besides its default. Devices that compute in one kind share
//! it. A limit is for everything together: weights, state and compute memory.

use std::sync::Arc;

use tensoryard_graph::{Layout, Origin, TensorId};

use super::{Blueprint, DeviceIndex, MemoryPlan, PlanDevice, Residence, Resident};
use crate::{BufferType, PlanError, same_buffer_type};

/// How much memory planning may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes for each device in order. A device without an entry, or with `None`, has no limit
    /// when a graph is planned, and the memory that is free when weights and state are assigned.
    pub devices: Vec<Option<usize>>,
    /// Whether weights and state that do not fit on a device may go to the next.
    pub spill: bool,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { devices: Vec::new(), spill: true }
    }
}

impl MemoryLimits {
    /// The limit of a device, where it has one.
    pub fn of(&self, device: DeviceIndex) -> Option<usize> {
        self.devices.get(device.0).copied().flatten()
    }

    /// These limits, and for the other devices the memory that they have free now, where they
    /// say so.
    #[must_use]
    pub fn or_free(&self, devices: &[PlanDevice]) -> Self {
        let limit = |(index, device): (usize, &PlanDevice)| {
            self.of(DeviceIndex(index)).or_else(|| {
                let memory = device.device.memory();
                (memory.total > 0).then_some(memory.free)
            })
        };
        Self { devices: devices.iter().enumerate().map(limit).collect(), spill: self.spill }
    }
}

/// What one memory must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUse {
    /// Name of the memory: the first kind that lies in it.
    pub name: String,
    /// The devices that compute in it.
    pub devices: Vec<DeviceIndex>,
    /// Bytes of weights.
    pub weights: usize,
    /// Bytes of state.
    pub state: usize,
    /// Bytes of compute memory, at the most.
    pub compute: usize,
    /// Bytes that it may hold, where there is a limit.
    pub limit: Option<usize>,
}

impl MemoryUse {
    /// Bytes of everything together.
    pub fn peak(&self) -> usize {
        self.weights.saturating_add(self.state).saturating_add(self.compute)
    }

    /// Bytes beyond the limit; 0 when all fits.
    pub fn over_by(&self) -> usize {
        self.limit.map_or(0, |limit| self.peak().saturating_sub(limit))
    }
}

/// Which kinds of memory are the same bytes.
#[derive(Debug, Clone)]
pub(super) struct Memories {
    kinds: Vec<(Arc<dyn BufferType>, usize)>,
    /// Each memory with nothing in it.
    empty: Vec<MemoryUse>,
}

/// Sizes of the largest chunks of a kind, by position.
struct Largest<'a> {
    kind: &'a Arc<dyn BufferType>,
    shared: Vec<usize>,
    staged: Vec<usize>,
}

impl Memories {
    pub fn new(devices: &[PlanDevice], limits: &MemoryLimits) -> Self {
        let mut memories = Self { kinds: Vec::new(), empty: Vec::new() };
        // Defaults first: what else a device offers lies in the memory of its default.
        for device in devices {
            memories.add(&device.buffer_type, None);
        }
        for device in devices {
            let own = memories.of(&*device.buffer_type);
            for kind in device.device.buffer_types() {
                memories.add(kind, own);
            }
        }
        for (index, device) in devices.iter().enumerate() {
            let index = DeviceIndex(index);
            if let Some(memory) = memories.of(&*device.buffer_type) {
                let memory = &mut memories.empty[memory];
                memory.devices.push(index);
                // Of several limits for one memory the smallest counts.
                memory.limit = match (memory.limit, limits.of(index)) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        memories
    }

    fn add(&mut self, kind: &Arc<dyn BufferType>, same_as: Option<usize>) {
        if self.of(&**kind).is_some() {
            return;
        }
        let host = self.kinds.iter().find(|(other, _)| other.is_host() && kind.is_host());
        let memory = match (host, same_as) {
            (Some(&(_, memory)), _) => memory,
            (None, Some(memory)) if !kind.is_host() => memory,
            (None, _) => {
                self.empty.push(MemoryUse {
                    name: kind.name().to_owned(),
                    devices: Vec::new(),
                    weights: 0,
                    state: 0,
                    compute: 0,
                    limit: None,
                });
                self.empty.len() - 1
            }
        };
        self.kinds.push((Arc::clone(kind), memory));
    }

    /// Number of the memory that a kind lies in; `None` for a kind that no device offers.
    pub fn of(&self, kind: &dyn BufferType) -> Option<usize> {
        let known = self.kinds.iter().find(|(other, _)| same_buffer_type(&**other, kind));
        known.map(|&(_, memory)| memory)
    }

    /// Number of the memory of the first kind with that name.
    pub fn named(&self, name: &str) -> Option<usize> {
        let known = self.kinds.iter().find(|(kind, _)| kind.name() == name);
        known.map(|&(_, memory)| memory)
    }

    /// Every memory with nothing in it.
    pub fn empty(&self) -> Vec<MemoryUse> {
        self.empty.clone()
    }

    /// Adds weights and state.
    pub fn add_residents(&self, uses: &mut [MemoryUse], residents: &[Resident]) {
        for resident in residents {
            if let Some(memory) = self.of(&*resident.kind) {
                let memory = &mut uses[memory];
                memory.weights = memory.weights.saturating_add(resident.weights);
                memory.state = memory.state.saturating_add(resident.state);
            }
        }
    }

    /// Adds the compute memory of plans that use one workspace in turn.
    pub fn add_compute(&self, uses: &mut [MemoryUse], plans: &[&MemoryPlan]) {
        // A workspace keeps the largest of the n-th chunks of each kind, apart for those that are
        // staged.
        let mut largest: Vec<Largest<'_>> = Vec::new();
        for plan in plans {
            for (number, pool) in plan.pools.iter().enumerate() {
                let kind = &pool.buffer_type;
                let known =
                    largest.iter().position(|other| same_buffer_type(&**other.kind, &**kind));
                let at = known.unwrap_or_else(|| {
                    largest.push(Largest { kind, shared: Vec::new(), staged: Vec::new() });
                    largest.len() - 1
                });
                for staged in [false, true] {
                    let Largest { shared, staged: apart, .. } = &mut largest[at];
                    let sizes = if staged { apart } else { shared };
                    let chunks = plan.chunks.iter();
                    let chunks =
                        chunks.filter(|chunk| chunk.pool == number && chunk.staged == staged);
                    for (position, chunk) in chunks.enumerate() {
                        let bytes = plan.chunk_bytes(chunk);
                        match sizes.get_mut(position) {
                            Some(size) => *size = bytes.max(*size),
                            None => sizes.push(bytes),
                        }
                    }
                }
            }
        }
        for Largest { kind, shared, staged } in largest {
            if let Some(memory) = self.of(&**kind) {
                let bytes = shared.into_iter().chain(staged).fold(0, usize::saturating_add);
                uses[memory].compute = uses[memory].compute.saturating_add(bytes);
            }
        }
    }
}

impl Blueprint {
    /// What each memory must hold for this graph alone: its weights, its state, its compute
    /// memory.
    #[doc(alias = "ggml_backend_sched_reserve_size")]
    pub fn memory_use(&self, limits: &MemoryLimits) -> Vec<MemoryUse> {
        let memories = Memories::new(&self.devices, limits);
        let mut uses = memories.empty();
        for id in self.graph.live_leaves(Origin::Weight) {
            if let Some((memory, bytes)) = self.resident(&memories, id) {
                uses[memory].weights = uses[memory].weights.saturating_add(bytes);
            }
        }
        for id in self.graph.live_leaves(Origin::State) {
            if let Some((memory, bytes)) = self.resident(&memories, id) {
                uses[memory].state = uses[memory].state.saturating_add(bytes);
            }
        }
        memories.add_compute(&mut uses, &[&self.memory]);
        uses
    }

    /// The memory that a weight or state tensor lies in, and its bytes there.
    fn resident(&self, memories: &Memories, id: TensorId) -> Option<(usize, usize)> {
        let kind = self.residence.of(id)?;
        Some((memories.of(&**kind)?, padded_bytes(&**kind, self.graph.layout(id))))
    }
}

/// Bytes that a tensor takes among others in one buffer.
pub(super) fn padded_bytes(kind: &dyn BufferType, layout: &Layout) -> usize {
    let bytes = kind.tensor_bytes(layout);
    bytes.checked_next_multiple_of(kind.alignment()).unwrap_or(usize::MAX)
}

/// Whether everything fits: all that lives in the memories, and the plan's compute memory.
pub(super) fn check(
    devices: &[PlanDevice],
    residence: &Residence,
    memory: &MemoryPlan,
    limits: &MemoryLimits,
) -> Result<(), PlanError> {
    if limits.devices.iter().all(Option::is_none) {
        return Ok(());
    }
    let memories = Memories::new(devices, limits);
    let mut uses = memories.empty();
    memories.add_residents(&mut uses, residence.residents());
    memories.add_compute(&mut uses, &[memory]);
    refuse_excess(devices, &uses)
}

/// An error for the memory with the greatest excess.
pub(super) fn refuse_excess(devices: &[PlanDevice], uses: &[MemoryUse]) -> Result<(), PlanError> {
    let worst = uses.iter().max_by_key(|memory| memory.over_by());
    match worst {
        Some(memory) if memory.over_by() > 0 => Err(does_not_fit(devices, memory)),
        Some(_) | None => Ok(()),
    }
}

fn does_not_fit(devices: &[PlanDevice], memory: &MemoryUse) -> PlanError {
    let names: Vec<&str> =
        memory.devices.iter().map(|index| &*devices[index.0].device.info().name).collect();
    PlanError::DoesNotFit {
        device: if names.is_empty() { memory.name.clone() } else { names.join(", ") },
        needed: memory.peak(),
        limit: memory.limit.unwrap_or(usize::MAX),
        by: memory.over_by(),
        weights: memory.weights,
        state: memory.state,
        compute: memory.compute,
    }
}
