//! Inputs that stay the same are not copied to their devices again.

use std::sync::Arc;

use tensoryard_graph::{DType, Graph, GraphBuilder};
use tensoryard_runtime::{BackendOptions, Device, Input, Selected, Session, SessionOptions};
use tensoryard_sim::SimOptions;

use crate::support::{cpu, driver};

/// y = x + mask on the simulated device, the inputs in host memory; another graph for between.
fn graphs() -> [Arc<Graph>; 2] {
    ["sum", "other"].map(|name| {
        let g = GraphBuilder::new(name);
        let x = g.input("x", DType::F32, [64]);
        let mask = g.input("mask", DType::F32, [64]);
        let sum = x.add(mask).named("pinned");
        let y = if name == "sum" { sum } else { sum.scale(2.0, 0.0).named("pinned too") };
        y.output("y");
        Arc::new(g.finish().unwrap())
    })
}

/// The first graph on a simulated device, the inputs in host memory.
fn session(asynchronous: bool, graphs: &[&Arc<Graph>]) -> Session {
    let options = SimOptions { asynchronous, ..SimOptions::named("A") };
    let sim = driver().device(options).unwrap();
    let devices = [sim as Arc<dyn Device>, cpu()]
        .map(|device| Selected { device, options: BackendOptions::default() });
    let mut options = SessionOptions::default();
    options.plan.named_pins.parse("pinned*=A").unwrap();
    options.plan.named_pins.parse("y=A").unwrap();
    Session::open(&devices, Arc::default(), graphs, options).unwrap()
}

#[test]
fn timings_tell_what_was_copied_and_not_what_was_there() {
    let [graph, _] = graphs();
    for asynchronous in [true, false] {
        let mut session = session(asynchronous, &[&graph]);
        let mut copied = |x: f32| {
            let before = session.counters().copied_bytes;
            let (x, mask) = ([x; 64], [0.5; 64]);
            let inputs = [Input::f32("x", &x), Input::f32("mask", &mask)];
            let mut timings = Vec::new();
            session.run_timed(&graph, &inputs, &mut timings).unwrap();
            let told: usize = timings.iter().map(|timing| timing.copied_bytes).sum();
            assert_eq!(told as u64, session.counters().copied_bytes - before);
            told
        };
        assert_eq!([copied(1.0), copied(1.0), copied(2.0)], [512, 0, 256]);
    }
}

#[test]
fn only_what_changed_is_copied_and_results_stay_right() {
    let [graph, other] = graphs();
    for asynchronous in [true, false] {
        let mut session = session(asynchronous, &[&graph, &other]);
        let mask = [0.5; 64];
        let mut run = |graph: &Arc<Graph>, x: f32, mask: &[f32]| {
            let before = session.counters();
            let x = [x; 64];
            let inputs = [Input::f32("x", &x), Input::f32("mask", mask)];
            let y = session.run(graph, &inputs).unwrap().f32("y").unwrap();
            let after = session.counters();
            (y[63], after.copies - before.copies, after.unchanged - before.unchanged)
        };
        assert_eq!(run(&graph, 1.0, &mask), (1.5, 2, 0));
        assert_eq!(run(&graph, 1.0, &mask), (1.5, 0, 2));
        assert_eq!(run(&graph, 2.0, &mask), (2.5, 1, 1));
        let mut changed = mask;
        changed[63] = 1.0;
        assert_eq!(run(&graph, 2.0, &changed), (3.0, 1, 1));
        // Another graph works in the same memory, so nothing is taken for granted afterwards.
        assert_eq!(run(&other, 3.0, &mask), (7.0, 2, 0));
        assert_eq!(run(&graph, 2.0, &changed), (3.0, 2, 0));
        assert_eq!(run(&graph, 2.0, &changed), (3.0, 0, 2));
    }
}
