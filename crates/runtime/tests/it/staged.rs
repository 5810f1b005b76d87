//! Inputs, arrivals and outputs in chunks of their own, so that runs can overlap.

use std::sync::Arc;

use tensoryard_conformance::graphs::build;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind};
use tensoryard_runtime::plan::verify::{Violation, verify};
use tensoryard_runtime::plan::{Chunk, Slot};
use tensoryard_runtime::{Input, Plan, PlanOptions};

use crate::support::{Bench, full, only, without};

/// A chain that goes from A to B and back, with an output in between.
fn graph() -> Arc<Graph> {
    build("staged", |g| {
        let x = g.input("x", DType::F32, [4, 8]);
        let y = x.scale(2.0, 0.0).scale(1.0, 1.0);
        let z = y.unary(UnaryKind::Neg).unary(UnaryKind::Abs).output("z");
        z.scale(1.0, -1.0).scale(0.5, 0.0).output("w");
    })
}

fn bench(graph: &Graph) -> Bench {
    Bench::new(graph, vec![without("A", &[OpKind::Unary]), only("B", &[OpKind::Unary])])
}

fn staged(bench: &Bench, graph: &Arc<Graph>) -> Plan {
    let options = PlanOptions { fusion: false, overlapping_runs: 2, ..PlanOptions::default() };
    bench.plan_with(graph, &options).unwrap()
}

#[test]
fn staged_chunks_hold_inputs_arrivals_and_outputs_and_nothing_else() {
    let graph = graph();
    let mut bench = bench(&graph);
    let plan = staged(&bench, &graph);
    let staged_bytes = |pool: usize, staged: bool| -> usize {
        let chunks: Vec<&Chunk> =
            plan.memory.chunks.iter().filter(|c| c.pool == pool && c.staged == staged).collect();
        chunks.iter().map(|chunk| chunk.bytes).sum()
    };
    // On A two arrivals and the output w; its inner values take one place in turn.
    assert_eq!((staged_bytes(0, true), staged_bytes(0, false)), (3 * 128, 128));
    // On B the input, an arrival and the output z.
    assert_eq!((staged_bytes(1, true), staged_bytes(1, false)), (3 * 128, 128));
    bench.run(&plan, &[Input::f32("x", &[3.0; 32])]).unwrap();
    assert_eq!(bench.output(&plan, "z"), [7.0; 32]);
    assert_eq!(bench.output(&plan, "w"), [3.0; 32]);
    // Nothing is staged unless it is asked for.
    let plain = bench.plan(&graph);
    assert!(plain.memory.chunks.iter().all(|chunk| !chunk.staged));
}

#[test]
fn results_in_place_do_not_cross_into_staged_memory() {
    let graph = build("staged", |g| {
        let x = g.input("x", DType::F32, [4, 8]);
        x.scale(2.0, 0.0).scale(1.0, 1.0).output("y");
    });
    let bench = Bench::new(&graph, vec![full("A")]);
    let y = graph.output("y").unwrap();
    assert!(matches!(bench.plan(&graph).memory.tensors[y], Slot::Reuses { .. }));
    assert!(matches!(staged(&bench, &graph).memory.tensors[y], Slot::Fresh(_)));
}

#[test]
fn the_verifier_finds_what_is_staged_wrongly() {
    let graph = graph();
    let bench = bench(&graph);
    let plan = staged(&bench, &graph);
    let wrong = |v: &Violation| matches!(v, Violation::WronglyStaged { .. });
    // An arrival where the output of the same device will lie.
    let mut damaged = plan.blueprint().clone();
    let z = plan.memory.locate(graph.output("z").unwrap()).unwrap();
    let at = plan.arrivals.iter().position(|arrival| arrival.device.0 == 1).unwrap();
    damaged.memory.arrivals[at] = z;
    assert!(verify(&damaged).unwrap_err().iter().any(wrong));
    // A chunk that is no longer marked.
    let mut damaged = plan.blueprint().clone();
    damaged.memory.chunks[z.chunk].staged = false;
    assert!(verify(&damaged).unwrap_err().iter().any(wrong));
}
