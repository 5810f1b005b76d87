//! Random graphs on random devices compute, bit by bit, what the oracle computes node by node.
//!
//! `TENSORYARD_RANDOM_GRAPHS` sets how many, `TENSORYARD_RANDOM_SEED` runs a single seed.

use std::collections::HashMap;
use std::sync::Arc;

use tensoryard_conformance::compare::Accuracy;
use tensoryard_conformance::fuzz::{Scene, run_seeds};
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_conformance::rng::Rng;
use tensoryard_runtime::Device;

/// Largest buffers that bind nothing, and some that do.
pub const LARGE: &[usize] = &[1 << 20];
pub const SOME_SMALL: &[usize] = &[1 << 20, 1 << 20, 1024];

/// One to three devices with largest buffers of these sizes; the last claims every op.
pub fn random_devices(rng: &mut Rng, max_sizes: &[usize]) -> Vec<Arc<dyn Device>> {
    let count = 1 + rng.below(3);
    let memories = ["first memory", "second memory", "third memory"];
    // Devices that share memory agree about it.
    let mut kinds = HashMap::new();
    (0..count)
        .map(|index| {
            let mut options = ReferenceOptions::new(["first", "second", "third"][index]);
            // Some devices share the memory of the one before, some read that of others.
            let shared = index > 0 && rng.chance(25);
            options.memory = memories[index - usize::from(shared)].to_owned();
            if rng.chance(30) {
                options.reads = vec![rng.pick(&memories).to_owned()];
            }
            options.fuses_norm = rng.chance(70);
            options.epilogue = rng.below(4);
            if index + 1 < count {
                let share = rng.pick(&[30, 60, 90]);
                options.ops.retain(|_| rng.chance(share));
            }
            let alignment = rng.pick(&[4, 32, 128]);
            let max_size = rng.pick(max_sizes);
            let fresh = (alignment, max_size, rng.pick(&[0, 0, 8]));
            (options.alignment, options.max_size, options.padding) =
                *kinds.entry(options.memory.clone()).or_insert(fresh);
            options.build()
        })
        .collect()
}

fn random_scene(seed: u64) -> Scene {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let devices = random_devices(&mut rng, SOME_SMALL);
    Scene {
        weights_on: rng.below(devices.len()),
        state_on: rng.below(devices.len()),
        devices,
        threads: 1,
        fusion: rng.chance(70),
        runs: rng.pick(&[1, 1, 2]),
        accuracy: Accuracy::Exact,
    }
}

#[test]
fn random_graphs_on_random_devices() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("TENSORYARD_RANDOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TENSORYARD_RANDOM_GRAPHS").unwrap_or(2000),
    };
    run_seeds(seeds, random_scene).assert_ok();
}
