//! Where weights and state live when devices are chosen by predicted time.
//!
//! Devices are filled in several orders: that of priority, the fastest first, each device first.
//! From the best, stretches of neighbouring leaves are moved to other devices as long as the sum
//! of the predicted times of all graphs gets smaller. Meanwhile ops are placed by priority, which
//! follows the weights and is cheap; in the end the best is compared, ops placed by predicted
//! time, with the assignment by priority, which stands unless it is beaten.

use super::assign::{Assigner, Assignment, Wish};
use super::leaves::LeafKind;
use super::strategy::{rates_of, stretches};
use super::{Blueprint, DeviceIndex, predict};
use crate::rates::{Work, step_ns};
use crate::{DeviceRates, PlanError, StepOp};

/// Nodes of all graphs times assignments tried, at the most.
const MAX_WORK: usize = 300_000;
/// Assignments tried for the smallest and for the largest graphs.
const MAX_TRIES: usize = 300;
const MIN_TRIES: usize = 30;

/// Assigns so that the graphs are predicted to end soonest, one run of each.
pub(super) fn assign_by_cost(assigner: &Assigner<'_>) -> Result<Assignment, PlanError> {
    let rates = rates_of(assigner.devices, assigner.options)?;
    let nodes: usize = assigner.graphs.iter().map(|graph| graph.live_nodes().count()).sum();
    let tries = (MAX_WORK / nodes.max(1)).clamp(MIN_TRIES, MAX_TRIES);
    let search = Search { assigner, rates: &rates };
    let orders = search.orders();
    let plain = assigner.settle(&Wish::in_order(orders[0].clone()));
    let plain = plain.and_then(|(assignment, _)| assigner.draft_by_cost(assignment));
    let Some(best) = search.best(orders, tries) else {
        return plain.map(|(assignment, _)| assignment);
    };
    match (plain, assigner.draft_by_cost(best)) {
        (Ok((plain, plain_course)), Ok((better, course))) => {
            let beaten = search.total(&course) < search.total(&plain_course);
            Ok(if beaten { better } else { plain })
        }
        (Ok((assignment, _)), Err(_)) | (Err(_), Ok((assignment, _))) => Ok(assignment),
        (Err(error), Err(_)) => Err(error),
    }
}

struct Search<'a> {
    assigner: &'a Assigner<'a>,
    rates: &'a [DeviceRates],
}

impl Search<'_> {
    /// Orders to fill the devices in, that of priority first.
    fn orders(&self) -> Vec<Vec<DeviceIndex>> {
        let by_priority: Vec<DeviceIndex> =
            (0..self.assigner.devices.len()).map(DeviceIndex).collect();
        let mut by_speed = by_priority.clone();
        by_speed.sort_by_cached_key(|device| self.alone(*device));
        let mut orders = vec![by_priority.clone(), by_speed];
        for &first in &by_priority {
            let rest = by_priority.iter().copied().filter(|&device| device != first);
            orders.push(std::iter::once(first).chain(rest).collect());
        }
        orders
    }

    /// Nanoseconds that a device would compute if it ran everything.
    fn alone(&self, device: DeviceIndex) -> u64 {
        let mut total = 0u64;
        for graph in self.assigner.graphs {
            for id in graph.live_nodes() {
                let desc = graph.tensor(id);
                let Some(op) = desc.op() else { continue };
                let layouts: Vec<_> =
                    desc.sources.iter().map(|source| source.map(|id| *graph.layout(id))).collect();
                let work = Work::of(&StepOp::Op(*op), &layouts, &desc.layout);
                total = total.saturating_add(step_ns(&work, &self.rates[device.0]));
            }
        }
        total
    }

    /// Predicted nanoseconds of one run of each graph.
    fn total(&self, blueprints: &[Blueprint]) -> u64 {
        let times = blueprints.iter().map(|blueprint| predict(blueprint, self.rates).makespan_ns);
        times.fold(0, u64::saturating_add)
    }

    fn score(&self, wish: &Wish) -> Option<(u64, Assignment)> {
        let (assignment, blueprints) = self.assigner.settle(wish).ok()?;
        Some((self.total(&blueprints), assignment))
    }

    /// The best assignment that is found in so many tries; `None` when there is none.
    fn best(&self, orders: Vec<Vec<DeviceIndex>>, mut tries: usize) -> Option<Assignment> {
        let mut best: Option<(u64, Vec<DeviceIndex>, Assignment)> = None;
        for order in orders {
            if let Some((score, assignment)) = self.score(&Wish::in_order(order.clone()))
                && best.as_ref().is_none_or(|(known, ..)| score < *known)
            {
                best = Some((score, order, assignment));
            }
        }
        let (mut score, order, mut assignment) = best?;
        loop {
            let before = score;
            for (start, end) in stretches(&self.homes(&assignment)) {
                for device in (0..self.assigner.devices.len()).map(DeviceIndex) {
                    let homes = self.homes(&assignment);
                    if homes[start..end].iter().all(|home| *home == device) {
                        continue;
                    }
                    if tries == 0 {
                        return Some(assignment);
                    }
                    tries -= 1;
                    let mut preferred: Vec<_> = homes.into_iter().map(Some).collect();
                    preferred[start..end].fill(Some(device));
                    let moved = Wish { order: order.clone(), preferred };
                    if let Some((found, other)) = self.score(&moved)
                        && found < score
                    {
                        (score, assignment) = (found, other);
                    }
                }
            }
            if score == before {
                return Some(assignment);
            }
        }
    }

    /// The device of each leaf, in order.
    fn homes(&self, assignment: &Assignment) -> Vec<DeviceIndex> {
        let home = |(kind, name): (LeafKind, &str)| match kind {
            LeafKind::Weight => assignment.weight(name),
            LeafKind::State => assignment.state(name),
        };
        let leaves = self.assigner.leaves();
        leaves.map(|leaf| home(leaf).map_or(DeviceIndex(0), |home| home.device)).collect()
    }
}
