//! Inputs that stay the same are not copied to their devices again.

use std::collections::VecDeque;
use std::sync::Arc;

use tensoryard_conformance::rng::Rng;
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
    session_overlapping(asynchronous, graphs, 1)
}

fn session_overlapping(
    asynchronous: bool,
    graphs: &[&Arc<Graph>],
    overlapping_runs: usize,
) -> Session {
    let options = SimOptions { asynchronous, ..SimOptions::named("A") };
    let sim = driver().device(options).unwrap();
    let devices = [sim as Arc<dyn Device>, cpu()]
        .map(|device| Selected { device, options: BackendOptions::default() });
    let mut options = SessionOptions { overlapping_runs, ..SessionOptions::default() };
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

#[test]
fn plans_that_take_turns_in_copies_of_the_memory_never_see_old_inputs() {
    let [graph, other] = graphs();
    for overlapping_runs in 1..=3 {
        let mut session = session_overlapping(true, &[&graph, &other], overlapping_runs);
        let mut rng = Rng::new(7 + overlapping_runs as u64);
        let mut submitted = VecDeque::new();
        for round in 0..200 {
            // Few values, so that many inputs are as they were.
            let (x, mask) = (rng.below(2) as f32, rng.below(2) as f32);
            let is_other = rng.chance(40);
            let (xs, masks) = ([x; 64], [mask; 64]);
            let inputs = [Input::f32("x", &xs), Input::f32("mask", &masks)];
            let run = session.submit(if is_other { &other } else { &graph }, &inputs).unwrap();
            let expected = (x + mask) * if is_other { 2.0 } else { 1.0 };
            submitted.push_back((expected, run));
            if submitted.len() == overlapping_runs {
                let (expected, run) = submitted.pop_front().unwrap();
                let y = session.results(&run).unwrap().f32("y").unwrap();
                assert_eq!(y, [expected; 64], "round {round}");
            }
        }
        assert!(session.counters().unchanged > 0);
    }
}
