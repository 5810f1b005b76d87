//! Small graphs that broke the planning of other systems.

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::graphs::build;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, OpKind};
use tensoryard_runtime::plan::{Pin, Reason, Slot};
use tensoryard_runtime::{DeviceIndex, Input, PlanOptions};

use crate::policy::{find, weights_of};
use crate::support::{Bench, full, without};

#[test]
fn planning_again_gives_the_same_plan_and_leaves_the_graph_alone() {
    let graph = build("case", |g| {
        let x = g.input("x", DType::F32, [4, 4]);
        let y = g.state("s", DType::F32, [4, 4]).mul_mat(x);
        y.unary(UnaryKind::Neg).add(x).output("y");
    });
    let fingerprint = graph.fingerprint();
    let copy = (*graph).clone();
    let mut bench = Bench::new(&graph, vec![without("A", &[OpKind::Unary]), full("B")]);
    let first = bench.plan(&graph);
    for _ in 0..3 {
        let again = bench.plan(&graph);
        bench.workspace.reserve(&again).unwrap();
        assert_eq!(again.dump(), first.dump());
    }
    assert_eq!(graph.fingerprint(), fingerprint);
    assert!(graph.same_as(&copy));
    // Other devices, any number of times.
    let bench = Bench::new(&graph, vec![full("C")]);
    assert_ne!(bench.plan(&graph).dump(), first.dump());
}

#[test]
fn a_pin_holds_whenever_the_graph_is_planned() {
    let graph = build("case", |g| {
        let x = g.input("x", DType::F32, [4]).scale(1.0, 0.0);
        x.unary(UnaryKind::Neg).named("pinned").scale(2.0, 0.0).output("y");
    });
    let mut bench = Bench::new(&graph, vec![full("A"), full("B")]);
    let pinned = find(&graph, "pinned");
    let pins = vec![Pin { tensor: pinned, device: DeviceIndex(0) }];
    let options = PlanOptions { pins, ..PlanOptions::default() };
    for _ in 0..2 {
        let plan = bench.plan_with(&graph, &options).unwrap();
        bench.workspace.reserve(&plan).unwrap();
        assert_eq!(plan.placement.device(pinned), Some(DeviceIndex(0)));
        assert_eq!(plan.placement.reason(pinned), Reason::Pinned);
        bench.run(&plan, &[Input::f32("x", &[1.0; 4])]).unwrap();
        assert_eq!(bench.output(&plan, "y"), [-2.0; 4]);
    }
}

#[test]
fn attention_stays_on_the_fast_device_although_its_mask_is_elsewhere() {
    let graph = build("case", |g| {
        let q = g.input("q", DType::F32, [4, 2, 1]);
        let w = g.weight("w", DType::F32, [4, 4]);
        let k = w.mul_mat(q).named("k");
        q.attention(k, k, Some(g.input("mask", DType::F32, [2, 2])), 0.5).output("y");
    });
    let devices = [full("fast").build(), full("slow").build()];
    let mut bench = Bench::open(&[&graph], &devices, &weights_of(&graph), 0, 0).unwrap();
    let plan = bench.plan_with(&graph, &PlanOptions::default()).unwrap();
    let fast = Some(DeviceIndex(0));
    assert_eq!(plan.placement.device(graph.output("y").unwrap()), fast);
    assert_eq!(plan.placement.device(find(&graph, "mask")), Some(DeviceIndex(1)));
    assert_eq!(plan.splits.len(), 1);
    let inputs = [Input::f32("q", &[1.0; 8]), Input::f32("mask", &[0.0; 4])];
    bench.run(&plan, &inputs).unwrap();
    assert_eq!(bench.output(&plan, "y"), [2.0; 8]);
}

#[test]
fn two_graphs_share_a_state_while_their_plans_take_turns() {
    let make = |factor: f32| {
        build("case", |g| {
            let s = g.state("s", DType::F32, [2]);
            let new = s.scale(factor, 1.0).copy_into(s);
            new.unary(UnaryKind::Abs).output("y");
        })
    };
    let (first, second) = (make(2.0), make(-1.0));
    let devices = [full("A").build(), full("B").build()];
    let weights = MemoryWeights::default();
    let mut bench = Bench::open(&[&first, &second], &devices, &weights, 0, 0).unwrap();
    let (p, q) = (bench.plan(&first), bench.plan(&second));
    let mut seen = Vec::new();
    for plan in [&p, &q, &p] {
        // Nothing but the state outlives a run.
        bench.workspace = tensoryard_runtime::Workspace::new();
        bench.run(plan, &[]).unwrap();
        seen.push(bench.output(plan, "y")[0]);
    }
    // 0 → 1 → 0 → 1.
    assert_eq!(seen, [1.0, 0.0, 1.0]);
    assert_eq!(bench.state.read("s").unwrap(), encode(DType::F32, &[1.0, 1.0]));
}

#[test]
fn inputs_that_nothing_reads_are_legal_and_take_no_memory() {
    let graph = build("case", |g| {
        _ = g.input("unread", DType::F32, [1 << 20]);
        g.input("x", DType::F32, [4]).scale(1.0, 1.0).output("y");
    });
    let mut bench = Bench::new(&graph, vec![without("A", &[OpKind::Unary]), full("B")]);
    let plan = bench.plan(&graph);
    assert_eq!(plan.placement.reason(find(&graph, "unread")), Reason::Unused);
    assert!(plan.arrivals.iter().all(|a| a.tensor != find(&graph, "unread")));
    assert!(plan.compute_bytes().iter().all(|(_, bytes)| *bytes <= 64));
    bench.run(&plan, &[Input::f32("x", &[1.0; 4])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [2.0; 4]);
}

#[test]
fn weights_state_and_inputs_are_never_taken_over() {
    let graph = build("case", |g| {
        g.weight("w", DType::F32, [4]).scale(2.0, 0.0).output("p");
        g.state("s", DType::F32, [4]).scale(2.0, 0.0).output("q");
        g.input("x", DType::F32, [4]).scale(2.0, 0.0).output("r");
    });
    let devices = [full("A").build()];
    let mut bench = Bench::open(&[&graph], &devices, &weights_of(&graph), 0, 0).unwrap();
    let plan = bench.plan(&graph);
    for name in ["p", "q", "r"] {
        let slot = plan.memory.tensors[graph.output(name).unwrap()];
        assert!(matches!(slot, Slot::Fresh(_)), "{name}");
    }
    for _ in 0..2 {
        bench.run(&plan, &[Input::f32("x", &[3.0; 4])]).unwrap();
        assert_eq!(bench.output(&plan, "p"), [1.0; 4]);
        assert_eq!(bench.output(&plan, "q"), [0.0; 4]);
        assert_eq!(bench.output(&plan, "r"), [6.0; 4]);
    }
}

#[test]
fn a_source_listed_twice_is_copied_and_freed_once() {
    let graph = build("case", |g| {
        let x = g.input("x", DType::F32, [4, 4]).scale(1.0, 0.0);
        let y = x.unary(UnaryKind::Neg);
        y.mul_mat(y).add(y).output("y");
    });
    let mut bench = Bench::new(&graph, vec![without("A", &[OpKind::Unary]), full("B")]);
    let plan = bench.plan(&graph);
    bench.run(&plan, &[Input::f32("x", &[1.0; 16])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [3.0; 16]);
}
