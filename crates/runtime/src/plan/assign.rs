//! The first stage: where weights and state live, decided before a byte of them is loaded.
//!
//! Guarantee: what is assigned fits its device's limit together with the compute memory of the
//! graphs, measured by drafting them, or assigning fails with the numbers. Preference: devices in
//! order of priority, in order of first use, so that a block of a model stays together and what
//! spills makes few splits. A leaf goes where most of its readers run. Accepted weakness: a leaf
//! that no longer fits closes its device for those behind it, though smaller ones might fit.

use std::sync::Arc;

use tensoryard_graph::Graph;

use super::assign_cost::assign_by_cost;
use super::leaves::{Leaf, LeafKind, Spot, collect};
use super::limits::{Memories, MemoryUse, padded_bytes, refuse_excess};
use super::{
    Blueprint, DeviceIndex, MemoryLimits, Pin, PlanDevice, PlanOptions, Strategy, check_devices,
    draft, pins,
};
use crate::{BufferType, PlanError, Weights};

mod homes;

use homes::kind_on;
pub(super) use homes::resident;
pub use homes::{Assignment, Home};

/// How often compute memory is measured and the rest assigned anew, before memories that are
/// still exceeded are closed one by one.
const MAX_ROUNDS: usize = 8;

/// Assigns the weights and state tensors of all graphs to devices.
///
/// # Errors
/// Devices, pins or limits that cannot be honoured; a leaf that no device can hold; graphs that
/// cannot be planned.
pub fn assign(
    graphs: &[&Arc<Graph>],
    devices: &[PlanDevice],
    options: &PlanOptions,
) -> Result<Assignment, PlanError> {
    assign_around(graphs, devices, None, options)
}

/// As [`assign`], around weights that are loaded already and stay where they are.
///
/// # Errors
/// As [`assign`]; a loaded weight of another layout.
pub fn assign_around(
    graphs: &[&Arc<Graph>],
    devices: &[PlanDevice],
    loaded: Option<&Weights>,
    options: &PlanOptions,
) -> Result<Assignment, PlanError> {
    check_devices(devices)?;
    Assigner::new(graphs, devices, loaded, options)?.assign()
}

/// A device that may hold a leaf.
struct Choice {
    device: DeviceIndex,
    kind: Arc<dyn BufferType>,
    bytes: usize,
    ability: Ability,
}

/// Which of the ops that read a leaf a device runs with the leaf in its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ability {
    All,
    Some,
    None,
}

/// A leaf with the devices that may hold it.
struct Item {
    leaf: Leaf,
    choices: Vec<Choice>,
    /// Whether the first choice is the only one, whatever the limits say.
    fixed: bool,
}

/// In which order devices are filled.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    /// The devices, that to be filled first in front.
    pub order: Vec<DeviceIndex>,
    /// For each leaf the device to be tried before all others, if there is one.
    pub preferred: Vec<Option<DeviceIndex>>,
}

impl Wish {
    pub fn in_order(order: Vec<DeviceIndex>) -> Self {
        Self { order, preferred: Vec::new() }
    }
}

pub(super) struct Assigner<'a> {
    pub graphs: &'a [&'a Arc<Graph>],
    pub devices: &'a [PlanDevice],
    pub options: &'a PlanOptions,
    limits: MemoryLimits,
    memories: Memories,
    items: Vec<Item>,
}

impl<'a> Assigner<'a> {
    fn new(
        graphs: &'a [&'a Arc<Graph>],
        devices: &'a [PlanDevice],
        loaded: Option<&Weights>,
        options: &'a PlanOptions,
    ) -> Result<Self, PlanError> {
        let plain: Vec<&Graph> = graphs.iter().map(|graph| &***graph).collect();
        let mut limits = options.limits.or_free(devices);
        if let Some(weights) = loaded {
            add_loaded(&mut limits, &options.limits, devices, weights);
        }
        let memories = Memories::new(devices, &limits);
        let mut pinned: Vec<Vec<Pin>> = Vec::new();
        for graph in &plain {
            pinned.push(match plain.len() {
                1 => pins::all(graph, devices, options)?,
                _ => options.named_pins.resolve(graph, devices)?.0,
            });
        }
        let mut items = Vec::new();
        for leaf in collect(&plain)? {
            let weight = loaded.filter(|_| leaf.kind == LeafKind::Weight);
            let item = match weight.and_then(|weights| weights.get(&leaf.name)) {
                Some(weight) => {
                    let kind = weight.buffer().buffer_type();
                    let holder = devices.iter().position(|device| super::can_use(device, &**kind));
                    Item::fixed(leaf, DeviceIndex(holder.unwrap_or(0)), Arc::clone(kind))
                }
                None => Item::new(leaf, &plain, devices, &pinned)?,
            };
            items.push(item);
        }
        Ok(Self { graphs, devices, options, limits, memories, items })
    }

    /// Kinds and names of the leaves in order.
    pub fn leaves(&self) -> impl Iterator<Item = (LeafKind, &str)> {
        self.items.iter().map(|item| (item.leaf.kind, item.leaf.name.as_str()))
    }

    /// Fills the devices, measures what computing takes, and fills again until all fits.
    fn assign(&self) -> Result<Assignment, PlanError> {
        match self.options.strategy {
            Strategy::Priority => {
                let wish = Wish::in_order((0..self.devices.len()).map(DeviceIndex).collect());
                self.settle(&wish).map(|(assignment, _)| assignment)
            }
            Strategy::Cost => assign_by_cost(self),
        }
    }

    /// Assigns as wished, as far as limits allow. Also tells how the graphs are run then, with
    /// ops placed by priority.
    pub fn settle(&self, wish: &Wish) -> Result<(Assignment, Vec<Blueprint>), PlanError> {
        let settled = self.settle_in_rounds(wish);
        let Err(error) = settled else { return settled };
        if !self.limits.spill {
            return Err(error);
        }
        // Whatever the order is, one device alone may do.
        let count = self.devices.len();
        let alone = |device: usize| self.settle_alone(DeviceIndex(device));
        (0..count).rev().find_map(alone).ok_or(error)
    }

    /// Fills and measures until all fits. Ends: after the first rounds, each further one closes a
    /// memory for good.
    fn settle_in_rounds(&self, wish: &Wish) -> Result<(Assignment, Vec<Blueprint>), PlanError> {
        let mut kept = Kept::nothing(self.memories.empty().len());
        let mut round = 0;
        loop {
            round += 1;
            let mut assignment = self.fill(wish, &kept)?;
            let blueprints = match self.draft_all(&assignment) {
                Ok(blueprints) => blueprints,
                Err(PlanError::TooLarge { tensor, bytes, buffer_type, max }) => {
                    let narrow = self.memories.named(&buffer_type);
                    let error = PlanError::TooLarge { tensor, bytes, buffer_type, max };
                    match narrow.filter(|_| self.limits.spill) {
                        Some(memory) if kept.close(memory, &error) => continue,
                        Some(_) | None => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            };
            let uses = self.uses_of(&assignment, &blueprints);
            let Err(error) = refuse_excess(self.devices, &uses) else {
                assignment.set_memory(uses);
                return Ok((assignment, blueprints));
            };
            if !self.limits.spill {
                return Err(error);
            }
            let grown =
                uses.iter().zip(&kept.reserved).any(|(memory, &bytes)| memory.compute > bytes);
            for (memory, bytes) in uses.iter().zip(&mut kept.reserved) {
                *bytes = memory.compute.max(*bytes);
            }
            if round >= MAX_ROUNDS || !grown {
                let over = (0..uses.len()).filter(|&memory| uses[memory].over_by() > 0);
                let open = over.filter(|&memory| kept.closed[memory].is_none());
                let worst = open.max_by_key(|&memory| uses[memory].over_by());
                if !worst.is_some_and(|memory| kept.close(memory, &error)) {
                    return Err(error);
                }
            }
        }
    }

    /// Everything that is free to choose in the memory of one device, if that can be run and fits.
    fn settle_alone(&self, device: DeviceIndex) -> Option<(Assignment, Vec<Blueprint>)> {
        let kept = Kept::nothing(self.memories.empty().len());
        let mut wish = Wish::in_order(vec![device]);
        wish.preferred = vec![Some(device); self.items.len()];
        let mut assignment = self.fill(&wish, &kept).ok()?;
        let blueprints = self.draft_all(&assignment).ok()?;
        let uses = self.uses_of(&assignment, &blueprints);
        refuse_excess(self.devices, &uses).ok()?;
        assignment.set_memory(uses);
        Some((assignment, blueprints))
    }

    /// How the graphs are run with an assignment, with ops placed by predicted time.
    pub fn draft_by_cost(
        &self,
        mut assignment: Assignment,
    ) -> Result<(Assignment, Vec<Blueprint>), PlanError> {
        let mut options = self.options_for_all();
        (options.strategy, options.limits) = (Strategy::Cost, self.limits.clone());
        let blueprints = self.draft_with(&assignment, &options)?;
        let uses = self.uses_of(&assignment, &blueprints);
        if refuse_excess(self.devices, &uses).is_ok() {
            assignment.set_memory(uses);
            return Ok((assignment, blueprints));
        }
        // Each graph alone fits, all of them in one workspace do not: none may take more then
        // than all do by priority.
        for memory in assignment.memory() {
            for device in &memory.devices {
                options.limits.devices[device.0] = Some(memory.peak());
            }
        }
        let blueprints = self.draft_with(&assignment, &options)?;
        let uses = self.uses_of(&assignment, &blueprints);
        refuse_excess(self.devices, &uses)?;
        assignment.set_memory(uses);
        assignment.set_limits(options.limits);
        Ok((assignment, blueprints))
    }

    /// How the graphs are run with an assignment, with ops placed by priority and no regard to
    /// limits: what is too much is measured all the same, to assign better next time.
    fn draft_all(&self, assignment: &Assignment) -> Result<Vec<Blueprint>, PlanError> {
        let mut options = self.options_for_all();
        options.strategy = Strategy::Priority;
        options.limits.devices.clear();
        self.draft_with(assignment, &options)
    }

    fn options_for_all(&self) -> PlanOptions {
        let mut options = self.options.clone();
        // Tensors by id mean one graph; with several it is not known which.
        if self.graphs.len() > 1 {
            options.pins.clear();
            options.observed.clear();
        }
        options
    }

    fn draft_with(
        &self,
        assignment: &Assignment,
        options: &PlanOptions,
    ) -> Result<Vec<Blueprint>, PlanError> {
        let draft =
            |graph: &&Arc<Graph>| draft(graph, self.devices, assignment.residence(graph)?, options);
        self.graphs.iter().map(draft).collect()
    }

    fn uses_of(&self, assignment: &Assignment, blueprints: &[Blueprint]) -> Vec<MemoryUse> {
        let mut uses = self.memories.empty();
        self.memories.add_residents(&mut uses, &assignment.residents());
        let plans: Vec<_> = blueprints.iter().map(|blueprint| &blueprint.memory).collect();
        self.memories.add_compute(&mut uses, &plans);
        uses
    }

    /// Fills the devices as wished, as far as memories are not kept free.
    fn fill(&self, wish: &Wish, kept: &Kept) -> Result<Assignment, PlanError> {
        let mut assignment = Assignment::within(self.limits.clone());
        let mut uses = self.memories.empty();
        let mut closed = vec![false; self.devices.len()];
        let mut chosen: Vec<Option<usize>> =
            self.items.iter().map(|item| item.fixed.then_some(0)).collect();
        for (item, choice) in self.items.iter().zip(&chosen) {
            if let Some(choice) = *choice {
                self.occupy(&mut uses, item, choice);
            }
        }
        for (number, (item, choice)) in self.items.iter().zip(&mut chosen).enumerate() {
            if choice.is_some() {
                continue;
            }
            let first = wish.preferred.get(number).copied().flatten();
            let found = self.choose(item, (&wish.order, first), kept, &uses, &mut closed)?;
            self.occupy(&mut uses, item, found);
            *choice = Some(found);
        }
        for (item, choice) in self.items.iter().zip(chosen) {
            if let Some(choice) = choice.and_then(|at| item.choices.get(at)) {
                let name = &self.devices[choice.device.0].device.info().name;
                assignment.settle(&item.leaf, choice.device, name, Arc::clone(&choice.kind));
            }
        }
        Ok(assignment)
    }

    fn occupy(&self, uses: &mut [MemoryUse], item: &Item, choice: usize) {
        let Choice { kind, bytes, .. } = &item.choices[choice];
        let Some(memory) = self.memories.of(&**kind) else { return };
        let total = match item.leaf.kind {
            LeafKind::Weight => &mut uses[memory].weights,
            LeafKind::State => &mut uses[memory].state,
        };
        *total = total.saturating_add(*bytes);
    }

    fn choose(
        &self,
        item: &Item,
        (order, first): (&[DeviceIndex], Option<DeviceIndex>),
        kept: &Kept,
        uses: &[MemoryUse],
        closed: &mut [bool],
    ) -> Result<usize, PlanError> {
        let mut preferred: Vec<usize> = order
            .iter()
            .filter_map(|device| item.choices.iter().position(|choice| choice.device == *device))
            .collect();
        preferred.sort_by_key(|&at| {
            let choice = &item.choices[at];
            (first != Some(choice.device), choice.ability)
        });
        if !self.limits.spill {
            return preferred.first().copied().ok_or_else(|| self.no_room(item, kept, uses));
        }
        preferred.retain(|&at| {
            let memory = self.memories.of(&*item.choices[at].kind);
            memory.is_none_or(|memory| kept.closed[memory].is_none())
        });
        for &at in &preferred {
            let Choice { device, kind, bytes, .. } = &item.choices[at];
            if closed[device.0] {
                continue;
            }
            let room = self.room(&**kind, kept, uses);
            if room.left.is_none_or(|left| *bytes <= left) {
                return Ok(at);
            }
            // What would not fit into the empty device says nothing of what comes behind it.
            closed[device.0] = room.whole.is_none_or(|whole| *bytes <= whole);
        }
        let fits = |at: &usize| {
            let Choice { kind, bytes, .. } = &item.choices[*at];
            self.room(&**kind, kept, uses).left.is_none_or(|left| *bytes <= left)
        };
        let found = preferred.iter().copied().find(fits);
        found.ok_or_else(|| self.no_room(item, kept, uses))
    }

    fn room(&self, kind: &dyn BufferType, kept: &Kept, uses: &[MemoryUse]) -> Room {
        let Some(memory) = self.memories.of(kind) else { return Room { whole: None, left: None } };
        let whole = uses[memory].limit.map(|limit| limit.saturating_sub(kept.reserved[memory]));
        let left = whole.map(|whole| whole.saturating_sub(uses[memory].peak()));
        Room { whole, left }
    }

    /// What each device said of a leaf that none of them holds.
    fn no_room(&self, item: &Item, kept: &Kept, uses: &[MemoryUse]) -> PlanError {
        let said = item.choices.iter().map(|Choice { device, kind, .. }| {
            let name = &self.devices[device.0].device.info().name;
            let memory = self.memories.of(&**kind);
            if let Some(reason) = memory.and_then(|memory| kept.closed[memory].as_ref()) {
                return format!("{name}: {reason}");
            }
            let limit = memory.and_then(|memory| uses[memory].limit).unwrap_or(usize::MAX);
            let taken = memory.map_or(0, |memory| uses[memory].peak());
            let compute = memory.map_or(0, |memory| kept.reserved[memory]);
            format!("{name}: limit {limit}, taken {taken}, needed for computing {compute}")
        });
        PlanError::NoRoom {
            kind: item.leaf.kind.name(),
            name: item.leaf.name.clone(),
            bytes: item.leaf.layout.data_bytes(),
            reasons: said.collect::<Vec<_>>().join("; "),
        }
    }
}

/// What is kept free of weights and state, by memory.
struct Kept {
    /// Bytes for computing.
    reserved: Vec<usize>,
    /// Why nothing more may go there at all.
    closed: Vec<Option<String>>,
}

impl Kept {
    fn nothing(memories: usize) -> Self {
        Self { reserved: vec![0; memories], closed: vec![None; memories] }
    }

    /// Closes a memory; false when it is closed already.
    fn close(&mut self, memory: usize, error: &PlanError) -> bool {
        let was_open = self.closed[memory].is_none();
        self.closed[memory].get_or_insert_with(|| error.to_string());
        was_open
    }
}

/// Room for weights and state in a memory; `None` where there is no limit.
struct Room {
    /// In the empty memory.
    whole: Option<usize>,
    /// Now.
    left: Option<usize>,
}

/// Where the limit is what was free, the loaded weights were not free and yet are counted.
fn add_loaded(
    limits: &mut MemoryLimits,
    given: &MemoryLimits,
    devices: &[PlanDevice],
    weights: &Weights,
) {
    let memories = Memories::new(devices, limits);
    for (kind, bytes) in weights.kinds() {
        let memory = memories.of(&**kind);
        for (index, device) in devices.iter().enumerate() {
            if memory.is_some()
                && memory == memories.of(&*device.buffer_type)
                && given.of(DeviceIndex(index)).is_none()
                && let Some(limit) = &mut limits.devices[index]
            {
                *limit = limit.saturating_add(*bytes);
            }
        }
    }
}

impl Item {
    fn fixed(leaf: Leaf, device: DeviceIndex, kind: Arc<dyn BufferType>) -> Self {
        let bytes = padded_bytes(&*kind, &leaf.layout);
        let choices = vec![Choice { device, kind, bytes, ability: Ability::All }];
        Self { leaf, choices, fixed: true }
    }

    /// A leaf that is to be assigned, with what pins and largest buffers allow.
    fn new(
        leaf: Leaf,
        graphs: &[&Graph],
        devices: &[PlanDevice],
        pinned: &[Vec<Pin>],
    ) -> Result<Self, PlanError> {
        let mut choices = Vec::new();
        let mut refusals = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            let kind = kind_on(&leaf, &*device.device, &device.buffer_type);
            let (takes, max) = (kind.tensor_bytes(&leaf.layout), kind.max_size());
            if takes > max {
                let (name, kind) = (&device.device.info().name, kind.name());
                refusals.push((
                    DeviceIndex(index),
                    format!(
                        "{name}: it takes {takes} bytes, the largest buffer of {kind} is {max}"
                    ),
                ));
                continue;
            }
            let ability = match leaf.runnable(graphs, device, &*kind) {
                all if all == leaf.readers.len() => Ability::All,
                0 => Ability::None,
                _ => Ability::Some,
            };
            let bytes = padded_bytes(&*kind, &leaf.layout);
            choices.push(Choice { device: DeviceIndex(index), kind, bytes, ability });
        }
        if let Some(device) = pin_of(&leaf.spots, pinned) {
            if let Some((_, reason)) = refusals.iter().find(|(refusing, _)| *refusing == device) {
                return Err(PlanError::Pin {
                    tensor: leaf.name.clone(),
                    device: devices[device.0].device.info().name.clone(),
                    reason: reason.clone(),
                });
            }
            choices.retain(|choice| choice.device == device);
            return Ok(Self { leaf, choices, fixed: true });
        }
        // A pinned reader draws what it reads, where that can be held.
        if let Some(device) = pin_of(&leaf.readers, pinned)
            && let Some(at) = choices.iter().position(|choice| choice.device == device)
        {
            return Ok(Self { leaf, choices: vec![choices.swap_remove(at)], fixed: true });
        }
        if choices.is_empty() {
            let said: Vec<String> = refusals.into_iter().map(|(_, reason)| reason).collect();
            return Err(PlanError::NoRoom {
                kind: leaf.kind.name(),
                bytes: leaf.layout.data_bytes(),
                reasons: said.join("; "),
                name: leaf.name,
            });
        }
        Ok(Self { leaf, choices, fixed: false })
    }
}

/// The device that the first pinned one of these tensors is pinned to.
fn pin_of(spots: &[Spot], pinned: &[Vec<Pin>]) -> Option<DeviceIndex> {
    spots.iter().find_map(|spot| {
        let pins = pinned[spot.graph].iter();
        pins.rev().find(|pin| pin.tensor == spot.tensor).map(|pin| pin.device)
    })
}
