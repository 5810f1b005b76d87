//! The strategy by predicted time: better where priority is poor, never worse.

use std::sync::Arc;

use tensoryard_conformance::random_graph::random_graph;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_conformance::rng::Rng;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind};
use tensoryard_runtime::plan::verify::verify;
use tensoryard_runtime::plan::{Assignment, Pin, Reason, Strategy, predict};
use tensoryard_runtime::{Blueprint, DeviceRates, Input, PlanDevice, PlanError, PlanOptions, plan};

use crate::policy::{
    A, B, build, devices, draft_on, find, options, placed, predicted, rated, rates, weights_of,
};
use crate::support::{Bench, full, without};

fn by_cost(change: impl FnOnce(&mut PlanOptions)) -> PlanOptions {
    options(|o| {
        o.strategy = Strategy::Cost;
        change(o);
    })
}

/// Predicted nanoseconds by priority and by cost, for leaves on one device.
fn both(graph: &Arc<Graph>, devices: &[PlanDevice], holder: usize) -> (u64, u64, Blueprint) {
    let priority = draft_on(graph, devices, holder, &options(|_| ())).unwrap();
    let cost = draft_on(graph, devices, holder, &by_cost(|_| ())).unwrap();
    verify(&cost).unwrap();
    (predicted(&priority).makespan_ns, predicted(&cost).makespan_ns, cost)
}

#[test]
fn a_fast_device_computes_with_weights_of_a_slow_one_of_higher_priority() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [64, 64]);
        g.weight("w", DType::F32, [64, 64]).mul_mat(x).named("y").output("y");
    });
    let devices = devices(vec![rated("slow", 1.0, 1.0), rated("fast", 1000.0, 1.0)]);
    let (priority, cost, blueprint) = both(&graph, &devices, 0);
    // 2 · 64³ operations at one a nanosecond, and x there, 16 KiB out of one and into the other.
    assert_eq!(priority, 524_288 + 2 * 16_384);
    // The weight the other way, and a thousandth of the time.
    assert_eq!(cost, 525 + 2 * 16_384);
    assert_eq!(placed(&blueprint, &["w", "y"]), [0, 1]);
    assert_eq!(blueprint.placement.reason(find(&graph, "y")), Reason::Predicted);
}

#[test]
fn what_is_best_by_priority_stays_with_its_reasons() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [64, 64]);
        g.weight("w", DType::F32, [64, 64]).mul_mat(x).named("y").output("y");
    });
    let devices = devices(vec![rated("fast", 1000.0, 1.0), rated("slow", 1.0, 1.0)]);
    let (priority, cost, blueprint) = both(&graph, &devices, 0);
    assert_eq!(priority, cost);
    assert_eq!(blueprint.placement.reason(find(&graph, "y")), Reason::Weight(0));
}

#[test]
fn small_ops_do_not_go_to_and_fro() {
    // The first device lacks relu, so that adjacency changes device at every op.
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [8, 8]);
        let mut y = g.weight("w", DType::F32, [8, 8]).mul_mat(x);
        for _ in 0..4 {
            y = y.unary(UnaryKind::Relu).scale(2.0, 0.0);
        }
        y.output("y");
    });
    let mut given = [rated("A", 10.0, 0.1), rated("B", 1.0, 0.1)];
    given[0].ops = without("A", &[OpKind::Unary]).ops;
    given[1].ops = without("B", &[OpKind::MulMat]).ops;
    let devices = devices(given.to_vec());
    let (priority, cost, blueprint) = both(&graph, &devices, 0);
    assert_eq!(blueprint.splits.len(), 2, "{}", blueprint.dump());
    // Nine transfers of 256 bytes, out and in, each 5120 ns; the weight stays.
    assert!(priority > 9 * 5120 - 2 * 5120, "{priority}");
    // x to A, the product back, and 8 ops on B of 64 and 128 operations.
    assert_eq!(cost, 2 * 5120 + 103 + 4 * (64 + 128));
}

#[test]
fn independent_branches_run_at_the_same_time() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [32, 32]);
        let branch = |seed: f32| {
            let mut y = x.scale(seed, 0.0);
            for _ in 0..6 {
                y = y.mul_mat(y);
            }
            y
        };
        branch(1.0).add(branch(2.0)).output("y");
    });
    let devices = devices(vec![rated("A", 1.0, 1.0), rated("B", 1.0, 1.0)]);
    let (priority, cost, blueprint) = both(&graph, &devices, 0);
    // Six products of 65,536 operations a branch: one branch at a time, or both together.
    assert!(priority >= 12 * 65_536, "{priority}");
    assert!(cost < 7 * 65_536, "{cost}\n{}", blueprint.dump());
}

#[test]
fn pins_and_missing_ops_are_honoured() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [64, 64]);
        let y = g.weight("w", DType::F32, [64, 64]).mul_mat(x).named("held");
        y.unary(UnaryKind::Relu).named("only A").output("y");
    });
    let mut given = [rated("slow", 1.0, 1.0), rated("fast", 1000.0, 1.0)];
    given[1].ops = without("fast", &[OpKind::Unary]).ops;
    let devices = devices(given.to_vec());
    let pins = vec![Pin { tensor: find(&graph, "held"), device: A }];
    let blueprint = draft_on(&graph, &devices, 0, &by_cost(|o| o.pins = pins)).unwrap();
    verify(&blueprint).unwrap();
    assert_eq!(placed(&blueprint, &["held", "y"]), [0, 0]);
    assert_eq!(blueprint.placement.reason(find(&graph, "held")), Reason::Pinned);
}

#[test]
fn a_fast_device_without_room_is_left_alone() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [64, 64]);
        g.weight("w", DType::F32, [64, 64]).mul_mat(x).named("y").output("y");
    });
    // x is on the last device whatever happens.
    let given = vec![rated("slow", 1.0, 1.0), rated("fast", 1000.0, 1.0), rated("last", 1.0, 1.0)];
    let devices = devices(given);
    let roomy = by_cost(|o| o.limits.devices = vec![None, Some(3 * 16_384)]);
    let blueprint = draft_on(&graph, &devices, 0, &roomy).unwrap();
    assert_eq!(placed(&blueprint, &["y"]), [1]);
    let narrow = by_cost(|o| o.limits.devices = vec![None, Some(3 * 16_384 - 1)]);
    let blueprint = draft_on(&graph, &devices, 0, &narrow).unwrap();
    assert_ne!(placed(&blueprint, &["y"]), [1]);
}

#[test]
fn unknown_rates_are_an_error_and_stated_ones_count_more() {
    let graph = build(|g| {
        g.input("x", DType::F32, [4, 1]).scale(2.0, 0.0).output("y");
    });
    let unrated = devices(vec![rated("A", 1.0, 1.0), full("B")]);
    let error = draft_on(&graph, &unrated, 0, &by_cost(|_| ())).unwrap_err();
    assert!(matches!(&error, PlanError::NoRates(name) if name == "B"), "{error}");
    let stated = by_cost(|o| o.rates = vec![DeviceRates::UNLIMITED; 2]);
    assert!(draft_on(&graph, &unrated, 0, &stated).is_ok());
}

/// Two to four devices with rates; the last runs everything.
fn random_devices(rng: &mut Rng) -> Vec<PlanDevice> {
    let count = 2 + rng.below(3);
    let names = ["first", "second", "third", "fourth"];
    let given = (0..count).map(|index| {
        let mut given =
            rated(names[index], rng.pick(&[0.1, 1.0, 20.0]), rng.pick(&[0.05, 1.0, 8.0]));
        if let Some(rates) = &mut given.rates {
            rates.op_overhead_ns = rng.pick(&[0.0, 5.0, 200.0]);
            rates.split_overhead_ns = rng.pick(&[0.0, 50.0, 500.0]);
            rates.transfer_latency_ns = rng.pick(&[0.0, 20.0, 400.0]);
            rates.memory_bytes_per_s = rng.pick(&[0.5e9, 10e9]);
        }
        if index > 0 && rng.chance(20) {
            given.memory = format!("{} memory", names[index - 1]);
        }
        if index + 1 < count {
            given.ops.retain(|_| rng.chance(85));
        }
        given
    });
    devices(given.collect::<Vec<ReferenceOptions>>())
}

#[test]
fn it_is_never_predicted_worse_than_priority_on_random_graphs() {
    let (mut better, mut planned) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng::new(seed ^ 0xc057);
        let random = random_graph(seed, 4 + rng.below(24));
        let graph = Arc::new(random.graph.clone());
        let devices = random_devices(&mut rng);
        let holder = rng.below(devices.len());
        let fusion = rng.chance(50);
        let Ok(priority) = draft_on(&graph, &devices, holder, &options(|o| o.fusion = fusion))
        else {
            continue;
        };
        let cost = draft_on(&graph, &devices, holder, &by_cost(|o| o.fusion = fusion)).unwrap();
        if let Err(violations) = verify(&cost) {
            panic!("seed {seed}: {violations:#?}\n{}\n{}", graph.dump(), cost.dump());
        }
        let (before, after) = (predicted(&priority).makespan_ns, predicted(&cost).makespan_ns);
        assert!(after <= before, "seed {seed}: {after} ns by cost, {before} ns by priority");
        planned += 1;
        better += usize::from(after < before);
    }
    assert!(planned > 200, "{planned} graphs were planned");
    assert!(better > planned / 4, "better on {better} of {planned}");
}

#[test]
fn weights_and_state_are_assigned_no_worse_than_by_priority_on_random_graphs() {
    let mut better = 0;
    for seed in 0..80 {
        let mut rng = Rng::new(seed ^ 0xa551);
        let random = random_graph(seed, 4 + rng.below(16));
        let graph = Arc::new(random.graph.clone());
        let devices = random_devices(&mut rng);
        let total = |options: &PlanOptions| -> Result<u64, PlanError> {
            let assignment = plan::assign(&[&graph], &devices, options)?;
            let residence = assignment.residence(&graph)?;
            let blueprint = plan::draft(&graph, &devices, residence, options)?;
            assert_eq!(verify(&blueprint).err(), None, "seed {seed}");
            Ok(predict(&blueprint, &rates(&devices)).makespan_ns)
        };
        let Ok(priority) = total(&options(|_| ())) else { continue };
        let cost = total(&by_cost(|_| ())).unwrap();
        assert!(cost <= priority, "seed {seed}: {cost} ns by cost, {priority} ns by priority");
        better += usize::from(cost < priority);
    }
    assert!(better > 20, "better on {better} of 80");
}

#[test]
fn weights_go_to_the_fast_device_as_far_as_there_is_room() {
    let graph = build(|g| {
        let mut y = g.input("x", DType::F32, [32, 32]);
        for layer in 0..4 {
            y = g.weight(format!("w{layer}"), DType::F32, [32, 32]).mul_mat(y);
        }
        y.output("y");
    });
    // A is slow and first, and slower to copy from than to compute on; B is fast, C holds the
    // input.
    let devices =
        devices(vec![rated("A", 0.5, 0.01), rated("B", 100.0, 1.0), rated("C", 0.4, 1.0)]);
    let homes = |options: &PlanOptions| -> Vec<usize> {
        let assignment = plan::assign(&[&graph], &devices, options).unwrap();
        assignment.weights().map(|(_, home)| home.device.0).collect()
    };
    assert_eq!(homes(&options(|_| ())), [0, 0, 0, 0]);
    assert_eq!(homes(&by_cost(|_| ())), [1, 1, 1, 1]);
    // Three weights of 4 KiB, the input that is kept, an operand and a result.
    let limits = vec![None, Some(6 * 4096), None];
    let found = homes(&by_cost(|o| o.limits.devices = limits));
    assert_eq!(found.iter().filter(|&&device| device == 1).count(), 3, "{found:?}");
}

#[test]
fn both_strategies_compute_the_same_bits() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed ^ 0xb175);
        let random = random_graph(seed, 4 + rng.below(16));
        let graph = Arc::new(random.graph.clone());
        let devices: Vec<_> =
            random_devices(&mut rng).into_iter().map(|device| device.device).collect();
        let holder = rng.below(devices.len());
        let mut results = Vec::new();
        for options in [options(|_| ()), by_cost(|_| ())] {
            let Ok(mut bench) = Bench::open(&[&graph], &devices, &random.weights, holder, holder)
            else {
                continue;
            };
            let Ok(plan) = bench.plan_with(&graph, &options) else { continue };
            for (name, bytes) in &random.states {
                if bench.state.get(name).is_some() {
                    bench.state.write(name, bytes).unwrap();
                }
            }
            let inputs: Vec<Input<'_>> =
                random.inputs.iter().map(|(name, bytes)| Input { name, bytes }).collect();
            bench.run(&plan, &inputs).unwrap();
            let names = (0..graph.len()).map(|n| format!("out{n}"));
            let outputs: Vec<Vec<u32>> = names
                .filter(|name| graph.output(name).is_some())
                .map(|name| bench.output(&plan, &name).into_iter().map(f32::to_bits).collect())
                .collect();
            results.push(outputs);
        }
        if let [priority, cost] = &results[..] {
            assert_eq!(priority, cost, "seed {seed}");
        }
    }
}

#[test]
fn the_same_graph_is_placed_the_same_way_every_time() {
    let random = random_graph(7, 30);
    let graph = Arc::new(random.graph.clone());
    let devices = random_devices(&mut Rng::new(3));
    let holder = devices.len() - 1;
    let first = draft_on(&graph, &devices, holder, &by_cost(|_| ())).unwrap();
    let second = draft_on(&graph, &devices, holder, &by_cost(|_| ())).unwrap();
    assert_eq!(first.dump(), second.dump());
}

#[test]
fn loaded_weights_stay_where_they_are() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [32, 32]);
        g.weight("w", DType::F32, [32, 32]).mul_mat(x).output("y");
    });
    let devices = devices(vec![rated("A", 1.0, 1.0), rated("B", 100.0, 1.0)]);
    let on_slow = Assignment::on_device(&[&graph], &*devices[0].device).unwrap();
    let source = weights_of(&graph);
    let weights =
        tensoryard_runtime::Weights::load(&source, &[&graph], &on_slow, |_, _| true).unwrap();
    let options = by_cost(|_| ());
    let assignment = plan::assign_around(&[&graph], &devices, Some(&weights), &options).unwrap();
    assert_eq!(assignment.weight("w").unwrap().device, A);
    assert_eq!(plan::assign(&[&graph], &devices, &options).unwrap().weight("w").unwrap().device, B);
}

#[test]
fn a_weight_too_large_to_be_copied_does_not_go_to_a_fast_device() {
    // The matrix takes 64 KiB, all else 1 KiB.
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [256, 1]);
        let y = g.weight("w", DType::F32, [256, 64]).mul_mat(x).named("y");
        y.unary(UnaryKind::Relu).output("z");
    });
    let mut fast = rated("fast", 1000.0, 1000.0);
    fast.max_size = 32 << 10;
    let devices = devices(vec![fast, rated("slow", 0.001, 1000.0)]);
    let chosen = by_cost(|_| ());
    let assignment = plan::assign(&[&graph], &devices, &chosen).unwrap();
    assert_eq!(assignment.weight("w").unwrap().device, B);
    let residence = assignment.residence(&graph).unwrap();
    let blueprint = plan::draft(&graph, &devices, residence, &chosen).unwrap();
    verify(&blueprint).unwrap();
    assert_eq!(placed(&blueprint, &["y"]), [1]);
}
