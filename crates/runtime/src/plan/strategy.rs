//! Placement by predicted time, in the place of placement by adjacency.
//!
//! Guarantee: what it returns is valid, honours every pin and limit, and is never predicted to
//! take longer than the placement by priority, which is one of its candidates and stands when
//! nothing is better. The same graph gives the same placement: work is bounded by counts, never
//! by clocks. Preference: from the best of a few rough placements, stretches of nodes are moved
//! as long as the prediction gets better. Accepted weakness: it is a local search; moves that
//! only pay together may be missed.

use super::judge::Judge;
use super::rough::Rough;
use super::{DeviceIndex, Facts, Placement, PlanDevice, PlanOptions, Wishes, place};
use crate::{DeviceRates, PlanError};
use tensoryard_graph::TensorId;

/// How devices are chosen for ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// Where the weights are, by adjacency, in order of the devices.
    #[default]
    Priority,
    /// By predicted time, under memory limits.
    Cost,
}

/// Nodes times judgements, at the most.
const MAX_WORK: usize = 1_500_000;
/// Judgements for the smallest and for the largest graphs.
const MAX_JUDGEMENTS: usize = 1200;
const MIN_JUDGEMENTS: usize = 100;
/// Rough placements that are improved.
const MAX_STARTS: usize = 3;

/// The rates of all devices: those of the options, and else what the devices say.
///
/// # Errors
/// A device whose rates nobody knows.
pub fn rates_of(
    devices: &[PlanDevice],
    options: &PlanOptions,
) -> Result<Vec<DeviceRates>, PlanError> {
    let rates = devices.iter().enumerate().map(|(index, device)| {
        let known = options.rates.get(index).copied().or_else(|| device.device.rates());
        known.ok_or_else(|| PlanError::NoRates(device.device.info().name.clone()))
    });
    rates.collect()
}

/// Places every live tensor so that the run is predicted to end soonest.
pub(super) fn place_by_cost(
    facts: &Facts<'_>,
    wishes: Wishes<'_>,
    options: &PlanOptions,
) -> Result<Placement, PlanError> {
    let (graph, devices) = (facts.graph, facts.devices);
    let rates = rates_of(devices, options)?;
    let by_priority = place::place(facts, wishes)?;
    let nodes: Vec<TensorId> = graph.live_nodes().collect();
    if devices.len() < 2 || nodes.is_empty() {
        return Ok(by_priority);
    }
    let left = (MAX_WORK / nodes.len()).clamp(MIN_JUDGEMENTS, MAX_JUDGEMENTS);
    let mut judge = Judge::new(facts, wishes, options, &rates, &nodes, left);
    let residence = facts.residence;
    let rough = Rough::new(graph, devices, residence, wishes.pins, &rates, &nodes, &by_priority);
    let limit = judge.makespan(&by_priority);
    let mut starts: Vec<(u64, Vec<DeviceIndex>)> = Vec::new();
    for candidate in rough.candidates() {
        if let Some(score) = judge.score(&candidate)
            && starts.iter().all(|(_, known)| *known != candidate)
        {
            starts.push((score, candidate));
        }
    }
    starts.sort_by_key(|(score, _)| *score);
    starts.truncate(MAX_STARTS);
    // Each start gets an equal part of what is left.
    let count = starts.len();
    for (number, (score, start)) in starts.iter_mut().enumerate() {
        let share = judge.left() / (count - number);
        *score = improve(&mut judge, &rough, *score, start, share);
    }
    match starts.into_iter().min_by_key(|(score, _)| *score) {
        Some((score, found)) if limit.is_none_or(|limit| score < limit) => judge.place(&found),
        Some(_) | None => Ok(by_priority),
    }
}

/// Moves nodes while that is predicted to help, in so many judgements. Returns the final
/// prediction.
fn improve(
    judge: &mut Judge<'_>,
    rough: &Rough<'_>,
    mut score: u64,
    current: &mut Vec<DeviceIndex>,
    share: usize,
) -> u64 {
    let stop = judge.left().saturating_sub(share);
    loop {
        let before = score;
        let runs = stretches(current).into_iter().map(|(start, end)| (start..end).collect());
        let groups: Vec<Vec<usize>> = rough.chains().iter().cloned().chain(runs).collect();
        for group in groups {
            for device in judge.facts.device_indices() {
                if judge.left() <= stop {
                    return score;
                }
                let mut moved = current.clone();
                rough.shift(&mut moved, group.iter().copied(), device);
                if moved == *current {
                    continue;
                }
                if let Some(found) = judge.score(&moved)
                    && found < score
                {
                    (score, *current) = (found, moved);
                }
            }
        }
        if score == before {
            return score;
        }
    }
}

/// Stretches worth moving, the longest first: each run of nodes on one device, then its halves,
/// its ends and its single nodes.
pub(super) fn stretches(devices: &[DeviceIndex]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, device) in devices.iter().enumerate() {
        match runs.last_mut() {
            Some((start, end)) if devices[*start] == *device => *end = at + 1,
            Some(_) | None => runs.push((at, at + 1)),
        }
    }
    let mut found: Vec<(usize, usize)> = Vec::new();
    for &(start, end) in &runs {
        found.push((start, end));
        let mut length = (end - start) / 2;
        while length > 0 {
            found.push((start, start + length));
            found.push((end - length, end));
            length /= 2;
        }
    }
    for &(start, end) in &runs {
        found.extend((start..end).map(|at| (at, at + 1)));
    }
    found.sort_by_key(|&(start, end)| std::cmp::Reverse(end - start));
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_runs_halves_ends_and_single_nodes() {
        let devices: Vec<_> = [0, 0, 0, 0, 1].map(DeviceIndex).to_vec();
        let found = stretches(&devices);
        assert_eq!(found[..3], [(0, 4), (0, 2), (2, 4)]);
        for single in 0..5 {
            assert!(found.contains(&(single, single + 1)));
        }
    }
}
