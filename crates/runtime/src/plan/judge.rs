//! What a placement is worth: its predicted time, if it is valid and fits.

use std::collections::{HashMap, HashSet};

use tensoryard_graph::TensorId;

use super::predict::{Course, Stretch};
use super::{
    DeviceIndex, Facts, Pin, Placement, PlanOptions, Reason, Wishes, allocate, limits, place,
    select, split,
};
use crate::{DeviceRates, PlanError};

/// Judges placements of one graph.
pub(super) struct Judge<'a> {
    pub facts: &'a Facts<'a>,
    wishes: Wishes<'a>,
    options: &'a PlanOptions,
    rates: &'a [DeviceRates],
    nodes: &'a [TensorId],
    /// The nodes that no pin holds.
    free: Vec<bool>,
    /// Placements judged before; `None` are invalid or do not fit.
    known: HashMap<Vec<DeviceIndex>, Option<u64>>,
    /// How many more placements may be judged.
    left: usize,
}

impl<'a> Judge<'a> {
    pub fn new(
        facts: &'a Facts<'a>,
        wishes: Wishes<'a>,
        options: &'a PlanOptions,
        rates: &'a [DeviceRates],
        nodes: &'a [TensorId],
        left: usize,
    ) -> Self {
        let pinned: HashSet<TensorId> = wishes.pins.iter().map(|pin| pin.tensor).collect();
        let free = nodes.iter().map(|id| !pinned.contains(id)).collect();
        Self { facts, wishes, options, rates, nodes, free, known: HashMap::new(), left }
    }

    /// How many more placements may be judged.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The placement where every node is where the list says, and the rest follows.
    pub fn place(&self, wanted: &[DeviceIndex]) -> Result<Placement, PlanError> {
        let mut pins = self.wishes.pins.to_vec();
        let nodes = self.nodes.iter().zip(&self.free).zip(wanted);
        let free = nodes.filter(|((_, free), _)| **free).map(|((&id, _), &device)| (id, device));
        pins.extend(free.clone().map(|(tensor, device)| Pin { tensor, device }));
        let mut placement = place::place(self.facts, Wishes { pins: &pins, ..self.wishes })?;
        for (id, _) in free {
            placement.restate(id, Reason::Predicted);
        }
        Ok(placement)
    }

    /// Predicted nanoseconds of a list of devices, one for each node.
    pub fn score(&mut self, wanted: &[DeviceIndex]) -> Option<u64> {
        if let Some(&known) = self.known.get(wanted) {
            return known;
        }
        self.left = self.left.checked_sub(1)?;
        let placement = self.place(wanted).ok();
        let score = placement.and_then(|placement| self.makespan(&placement));
        self.known.insert(wanted.to_vec(), score);
        score
    }

    /// Predicted nanoseconds of a placement; `None` when it does not fit.
    pub fn makespan(&self, placement: &Placement) -> Option<u64> {
        let Self { facts, options, .. } = *self;
        let Facts { graph, devices, residence, .. } = *facts;
        let held = facts.memory(placement);
        let splits = split::split(facts, placement, &held, &options.observed);
        let selected = select::select(facts, &held, &splits, options.fusion);
        let is_narrow = facts.device_indices().any(|device| facts.is_narrow(device));
        if is_narrow || options.limits.devices.iter().any(Option::is_some) {
            let copies = options.overlapping_runs;
            let memory = allocate::allocate(facts, &held, &splits, &selected, copies).ok()?;
            limits::check(devices, residence, &memory, &options.limits).ok()?;
        }
        let stretches: Vec<Stretch<'_>> = splits
            .splits
            .iter()
            .zip(&selected.ranges)
            .map(|(split, operations)| Stretch {
                device: split.device,
                arrivals: &split.arrivals,
                operations: operations.clone(),
            })
            .collect();
        let course = Course {
            graph,
            devices,
            residence,
            placement,
            arrivals: &splits.arrivals,
            temporaries: &selected.temporaries,
            operations: &selected.operations,
            staged: options.overlapping_runs > 1,
        };
        Some(course.follow(&stretches, self.rates).makespan_ns)
    }
}
