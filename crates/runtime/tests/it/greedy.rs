//! Random graphs on random devices, planned only: every plan is valid, and none copies more than
//! the greedy yardstick.
//!
//! `TENSORYARD_PLANNED_GRAPHS` sets how many, `TENSORYARD_RANDOM_SEED` runs a single seed.

use std::sync::Arc;

use tensoryard_conformance::greedy::measure;
use tensoryard_conformance::random_graph::random_graph;
use tensoryard_conformance::rng::Rng;
use tensoryard_graph::TensorId;
use tensoryard_runtime::plan::verify::verify;
use tensoryard_runtime::plan::{Residence, draft};
use tensoryard_runtime::{Blueprint, PlanDevice, PlanError, PlanOptions, State, Weights};

use crate::random::{LARGE, SOME_SMALL, random_devices};

fn copied_bytes(blueprint: &Blueprint) -> usize {
    let graph = &blueprint.graph;
    blueprint.arrivals.iter().map(|arrival| graph.layout(arrival.tensor).data_bytes()).sum()
}

/// How a seed went: refused, not to be compared, or compared.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    Valid,
    Equal,
    FewerBytes,
}

fn plan(seed: u64) -> Outcome {
    let mut rng = Rng::new(seed ^ 0x9eed);
    let random = random_graph(seed, 3 + rng.below(25));
    let graph = Arc::new(random.graph);
    let limited = rng.chance(15);
    let devices = random_devices(&mut rng, if limited { SOME_SMALL } else { LARGE });
    let holders = [rng.below(devices.len()), rng.below(devices.len())];
    let load = Weights::load_on(&random.weights, &[&*graph], &*devices[holders[0]], |_, _| true);
    let (Ok(weights), Ok(state)) = (load, State::create_on(&[&*graph], &*devices[holders[1]]))
    else {
        return Outcome::Refused;
    };
    let devices: Vec<PlanDevice> = devices.iter().map(PlanDevice::new).collect();
    let residence = Residence::new(&graph, &weights, &state).unwrap();
    let mut options = PlanOptions { fusion: rng.chance(50), ..PlanOptions::default() };
    let plain = draft(&graph, &devices, residence.clone(), &options);
    options.overlapping_runs = 1 + usize::from(rng.chance(50));
    options.observed = graph.ids().filter(|_| rng.chance(15)).collect::<Vec<TensorId>>();
    let other = draft(&graph, &devices, residence.clone(), &options);
    let (plain, other) = match (plain, other) {
        (Ok(plain), Ok(other)) => (plain, other),
        // Staged memory takes more.
        (Err(PlanError::Fixed { .. } | PlanError::TooLarge { .. }), _) => return Outcome::Refused,
        (Err(error), _) | (_, Err(error)) => panic!("seed {seed}: {error}\n{}", graph.dump()),
    };
    for blueprint in [&plain, &other] {
        if let Err(violations) = verify(blueprint) {
            panic!("seed {seed}: {violations:#?}\n{}\n{}", graph.dump(), blueprint.dump());
        }
    }
    let seen: Vec<TensorId> = other.splits.iter().flat_map(|s| s.observed.clone()).collect();
    let wanted = |id: &TensorId| graph.is_live(*id) && graph.tensor(*id).op().is_some();
    assert_eq!(seen, options.observed.into_iter().filter(wanted).collect::<Vec<_>>());
    if limited {
        return Outcome::Valid;
    }
    let Some(greedy) = measure(&graph, &devices, &residence) else { return Outcome::Valid };
    let (bytes, splits) = (copied_bytes(&plain), plain.splits.len());
    let shown = || format!("seed {seed}: {greedy:?}\n{}\n{}", graph.dump(), plain.dump());
    assert!(bytes <= greedy.copied_bytes, "{bytes} bytes copied, {}", shown());
    if graph.nodes().is_empty() {
        return Outcome::Equal;
    }
    let fewer = bytes < greedy.copied_bytes;
    assert!(fewer || splits <= greedy.splits, "{splits} splits, {}", shown());
    if fewer { Outcome::FewerBytes } else { Outcome::Equal }
}

#[test]
fn random_plans_are_valid_and_copy_no_more_than_the_greedy_yardstick() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("TENSORYARD_RANDOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TENSORYARD_PLANNED_GRAPHS").unwrap_or(4000),
    };
    let total = seeds.end - seeds.start;
    let outcomes: Vec<Outcome> = seeds.map(plan).collect();
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    if total > 1000 {
        let compared = count(Outcome::Equal) + count(Outcome::FewerBytes);
        assert!(compared as u64 * 5 > total * 2, "{compared} of {total} were compared");
        assert!(count(Outcome::FewerBytes) > 0);
        assert!(count(Outcome::Refused) as u64 * 4 < total);
    }
}
