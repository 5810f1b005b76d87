//! Random graphs on random devices compute what one device computes node by node.
//!
//! `TENSORYARD_RANDOM_GRAPHS` sets how many, `TENSORYARD_RANDOM_SEED` runs a single seed.

use std::collections::HashMap;
use std::sync::Arc;

use tensoryard_conformance::interpret;
use tensoryard_conformance::random_graph::{RandomGraph, random_graph};
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_conformance::rng::Rng;
use tensoryard_graph::{Graph, OpKind};
use tensoryard_runtime::{Device, Input, PlanError, PlanOptions};

use crate::support::Bench;

/// One to three devices; the last claims every op.
fn random_devices(rng: &mut Rng) -> Vec<Arc<dyn Device>> {
    let count = 1 + rng.below(3);
    let memories = ["first memory", "second memory", "third memory"];
    // Devices that share memory agree about it.
    let mut kinds = HashMap::new();
    (0..count)
        .map(|index| {
            let mut options = ReferenceOptions::new(["first", "second", "third"][index]);
            // Some devices share the memory of the one before, some read it.
            if index > 0 && rng.chance(25) {
                options.memory = memories[index - 1].to_owned();
            } else {
                options.memory = memories[index].to_owned();
            }
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
            let max_size = rng.pick(&[1 << 20, 1 << 20, 1024]);
            let fresh = (alignment, max_size, rng.pick(&[0, 0, 8]));
            (options.alignment, options.max_size, options.padding) =
                *kinds.entry(options.memory.clone()).or_insert(fresh);
            options.build()
        })
        .collect()
}

/// Bits of outputs and states, NaN as one value.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
}

enum Done {
    Ran,
    Refused,
}

fn check(seed: u64) -> Done {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let size = 3 + rng.below(20);
    let mut random = random_graph(seed, size);
    let graph = Arc::new(random.graph.clone());
    let devices = random_devices(&mut rng);
    let (weights, state) = (rng.below(devices.len()), rng.below(devices.len()));
    // A leaf may be larger than the largest buffer of its device.
    let Ok(mut bench) = Bench::open(&[&graph], &devices, &random.weights, weights, state) else {
        return Done::Refused;
    };
    let options = PlanOptions { fusion: rng.chance(70), ..PlanOptions::default() };
    let plan = match bench.plan_with(&graph, &options) {
        Ok(plan) => plan,
        Err(PlanError::Fixed { .. } | PlanError::TooLarge { .. }) => return Done::Refused,
        Err(error) => panic!("{error}"),
    };
    for (name, bytes) in &random.states {
        if bench.state.get(name).is_some() {
            bench.state.write(name, bytes).unwrap();
        }
    }
    let runs = if rng.chance(30) { 2 } else { 1 };
    for run in 0..runs {
        let expected = interpret(&graph, |name| leaf(&random, name)).unwrap();
        let inputs: Vec<Input<'_>> =
            random.inputs.iter().map(|(name, bytes)| Input { name, bytes }).collect();
        bench.run(&plan, &inputs).unwrap();
        for id in graph.outputs() {
            let Some(name) = output_name(&graph, id) else { continue };
            let expected: Vec<f32> =
                expected.tensor(&graph, id).unwrap().data.iter().map(|&v| v as f32).collect();
            let actual = bench.output(&plan, &name);
            assert!(
                bits(&actual) == bits(&expected),
                "run {run}, output {name}: {actual:?} for {expected:?}\n{}\n{}",
                graph.dump(),
                plan.dump()
            );
        }
        for (name, bytes) in &mut random.states {
            let Some(after) = expected.leaf(&graph, name) else { continue };
            assert!(
                bench.state.read(name).unwrap() == after,
                "run {run}, state {name}\n{}\n{}",
                graph.dump(),
                plan.dump()
            );
            *bytes = after.to_vec();
        }
        random.change_inputs(seed + 1);
    }
    Done::Ran
}

fn output_name(graph: &Graph, id: tensoryard_graph::TensorId) -> Option<String> {
    (0..graph.len()).map(|n| format!("out{n}")).find(|name| graph.output(name) == Some(id))
}

fn leaf(random: &RandomGraph, name: &str) -> Option<Vec<u8>> {
    random
        .inputs
        .iter()
        .chain(&random.states)
        .find(|(leaf, _)| leaf == name)
        .map(|(_, bytes)| bytes.clone())
        .or_else(|| random.weights.bytes(name).map(<[u8]>::to_vec))
}

#[test]
fn random_graphs_on_random_devices() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("TENSORYARD_RANDOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TENSORYARD_RANDOM_GRAPHS").unwrap_or(2000),
    };
    let count = seeds.end - seeds.start;
    let mut refused = 0;
    let mut failed = Vec::new();
    for seed in seeds {
        match std::panic::catch_unwind(|| check(seed)) {
            Ok(Done::Ran) => {}
            Ok(Done::Refused) => refused += 1,
            Err(_) => {
                eprintln!("seed {seed} failed: set TENSORYARD_RANDOM_SEED={seed}");
                failed.push(seed);
                if failed.len() == 5 {
                    break;
                }
            }
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?} failed");
    assert!(refused * 3 <= count, "{refused} of {count} graphs were refused");
}

#[test]
fn every_op_is_covered_by_the_last_device() {
    assert_eq!(ReferenceOptions::new("all").ops, OpKind::ALL);
}
