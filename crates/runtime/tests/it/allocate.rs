//! Compute memory: peaks by hand calculation, reuse in place, chunks.

use std::sync::Arc;

use tensoryard_conformance::graphs::build;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, Tensor};
use tensoryard_runtime::plan::{Chunk, Slot};
use tensoryard_runtime::{Input, Plan, PlanError, PlanOptions};

use crate::support::{Bench, full};

fn neg(x: Tensor<'_>) -> Tensor<'_> {
    x.unary(UnaryKind::Neg)
}

fn plan_of(graph: &Arc<Graph>) -> Plan {
    Bench::new(graph, vec![full("A")]).plan(graph)
}

fn peak(plan: &Plan) -> usize {
    plan.memory.chunks.iter().map(|chunk| chunk.bytes).sum()
}

fn slot(plan: &Plan, name: &str) -> Slot {
    let graph = &plan.graph;
    plan.memory.tensors[graph.ids().find(|&id| graph.tensor(id).name == name).unwrap()]
}

/// One kilobyte.
const DIMS: [usize; 2] = [16, 16];

#[test]
fn a_chain_that_cannot_work_in_place_alternates() {
    // x, then y0 = x·x beside it; y1 takes x's place, y2 that of y0, and so on.
    let graph = build("memory", |g| {
        let mut y = g.input("x", DType::F32, DIMS);
        for _ in 0..5 {
            y = y.mul_mat(y);
        }
        y.output("y");
    });
    let plan = plan_of(&graph);
    assert_eq!(peak(&plan), 2048);
    assert_eq!(plan.reused_in_place(), 0);
}

#[test]
fn a_chain_that_can_work_in_place_does() {
    let graph = build("memory", |g| {
        let mut y = g.input("x", DType::F32, DIMS);
        for _ in 0..5 {
            y = neg(y);
        }
        y.output("y");
    });
    let plan = plan_of(&graph);
    // The input is never taken over; the other four results follow the first.
    assert_eq!(plan.reused_in_place(), 4);
    assert_eq!(peak(&plan), 2048);
}

#[test]
fn a_diamond_needs_three_places() {
    // x and both arms at once; the sum takes the first arm's place.
    let graph = build("memory", |g| {
        let x = g.input("x", DType::F32, DIMS);
        let (p, q) = (neg(x).named("p"), x.scale(2.0, 0.0).named("q"));
        p.add(q).named("sum").output("sum");
    });
    let plan = plan_of(&graph);
    assert_eq!(peak(&plan), 3072);
    let p = plan.graph.ids().find(|&id| plan.graph.tensor(id).name == "p").unwrap();
    assert!(matches!(slot(&plan, "sum"), Slot::Reuses { parent, .. } if parent == p));
}

#[test]
fn sizes_are_rounded_to_the_alignment() {
    let graph = build("memory", |g| neg(g.input("x", DType::F32, [1])).output("y").pipe());
    // 4 bytes each, at multiples of 32.
    assert_eq!(peak(&plan_of(&graph)), 64);
    let padded = ReferenceOptions { padding: 40, ..full("A") };
    assert_eq!(peak(&Bench::new(&graph, vec![padded]).plan(&graph)), 128);
}

trait Pipe {
    fn pipe(self);
}

impl Pipe for Tensor<'_> {
    fn pipe(self) {}
}

#[test]
fn outputs_and_inputs_keep_their_memory() {
    let graph = build("memory", |g| {
        let x = g.input("x", DType::F32, DIMS);
        let p = neg(x).output("p");
        let q = neg(p).output("q");
        neg(q).output("r");
        x.output("x");
    });
    let mut bench = Bench::new(&graph, vec![full("A")]);
    let plan = bench.plan(&graph);
    assert_eq!(peak(&plan), 4096);
    assert_eq!(plan.reused_in_place(), 0);
    let values: Vec<f32> = (0..256).map(|v| v as f32).collect();
    bench.run(&plan, &[Input::f32("x", &values)]).unwrap();
    assert_eq!(bench.output(&plan, "x"), values);
    assert_eq!(bench.output(&plan, "q"), values);
    assert_eq!(bench.output(&plan, "p"), bench.output(&plan, "r"));
}

#[test]
fn what_is_read_later_is_not_taken_over() {
    let graph = build("memory", |g| {
        let p = neg(g.input("x", DType::F32, DIMS)).named("p");
        let q = neg(p).named("q");
        q.mul_mat(p).output("y");
    });
    assert!(matches!(slot(&plan_of(&graph), "q"), Slot::Fresh(_)));
    // Read later through a view.
    let graph = build("memory", |g| {
        let p = neg(g.input("x", DType::F32, DIMS)).named("p");
        let q = neg(p).named("q");
        q.mul_mat(p.transpose().cont()).output("y");
    });
    assert!(matches!(slot(&plan_of(&graph), "q"), Slot::Fresh(_)));
}

#[test]
fn another_layout_is_not_taken_over() {
    let graph = build("memory", |g| {
        let p = neg(g.input("x", DType::F32, DIMS));
        neg(p.transpose()).named("q").output("q");
    });
    assert!(matches!(slot(&plan_of(&graph), "q"), Slot::Fresh(_)));
}

#[test]
fn a_broadcast_second_source_is_not_taken_over() {
    let graph = build("memory", |g| {
        let row = neg(g.input("row", DType::F32, [16])).named("row");
        let x = g.input("x", DType::F32, DIMS);
        x.add(row).named("sum").output("sum");
    });
    assert!(matches!(slot(&plan_of(&graph), "sum"), Slot::Fresh(_)));
}

#[test]
fn memory_that_another_operand_reads_is_not_taken_over() {
    // The mask is the very memory that the result would take over from x.
    let graph = build("memory", |g| {
        let x = neg(g.input("x", DType::F32, DIMS));
        x.soft_max(0.5, Some(x)).named("y").output("y");
    });
    assert!(matches!(slot(&plan_of(&graph), "y"), Slot::Fresh(_)));
    // A square product whose input is its residual, fused into one step.
    let graph = build("memory", |g| {
        let x = neg(g.input("x", DType::F32, DIMS));
        let w = g.input("w", DType::F32, DIMS);
        w.mul_mat(x).add(x).named("y").output("y");
    });
    let bench = Bench::new(&graph, vec![full("A")]);
    let plan = bench.plan_with(&graph, &PlanOptions::default()).unwrap();
    assert_eq!(plan.splits[0].steps.len(), 2);
    assert!(matches!(slot(&plan, "y"), Slot::Fresh(_)));
    // Both sources one tensor: either may be overwritten element by element.
    let graph = build("memory", |g| {
        let x = neg(g.input("x", DType::F32, DIMS));
        x.mul(x).named("y").output("y");
    });
    assert!(matches!(slot(&plan_of(&graph), "y"), Slot::Reuses { .. }));
}

#[test]
fn a_small_largest_buffer_makes_several_chunks() {
    let graph = build("memory", |g| {
        let x = g.input("x", DType::F32, DIMS);
        let parts: Vec<_> = (0..5).map(|n| x.scale(n as f32, 0.0)).collect();
        let sum = parts.iter().skip(1).fold(parts[0], |sum, &part| sum.add(part));
        sum.output("sum");
    });
    let small = ReferenceOptions { max_size: 2500, ..full("A") };
    let mut bench = Bench::new(&graph, vec![small]);
    let plan = bench.plan(&graph);
    let chunk = Chunk { pool: 0, bytes: 2048, staged: false };
    assert_eq!(plan.memory.chunks, [chunk; 3]);
    bench.run(&plan, &[Input::f32("x", &[1.0; 256])]).unwrap();
    assert_eq!(bench.output(&plan, "sum"), [10.0; 256]);
}

#[test]
fn a_tensor_beyond_the_largest_buffer_is_an_error_with_the_numbers() {
    let graph = build("memory", |g| {
        neg(g.input("x", DType::F32, DIMS)).output("y");
    });
    let small = ReferenceOptions { max_size: 1000, ..full("A") };
    let bench = Bench::new(&graph, vec![small]);
    let error = bench.plan_unverified(&graph, &PlanOptions::default()).unwrap_err();
    assert!(matches!(&error, PlanError::TooLarge { bytes: 1024, max: 992, .. }), "{error}");
    assert!(error.to_string().contains("\"x\" takes 1024 bytes"), "{error}");
}

#[test]
fn the_peak_is_stable_when_graphs_grow_and_shrink() {
    let graphs: Vec<_> = [16, 64, 4, 64, 16]
        .map(|rows| {
            build("memory", |g| {
                neg(g.input("x", DType::F32, [16, rows])).output("y");
            })
        })
        .into_iter()
        .collect();
    let mut bench = Bench::new(&graphs[0], vec![full("A")]);
    let mut sizes = Vec::new();
    for graph in &graphs {
        let plan = bench.plan(graph);
        bench.workspace.reserve(&plan).unwrap();
        sizes.push(bench.workspace.bytes());
    }
    assert_eq!(sizes, [2048, 8192, 8192, 8192, 8192]);
}

#[test]
fn tensors_without_elements_take_no_memory() {
    let graph = build("memory", |g| {
        let x = g.input("x", DType::F32, [4, 0]);
        neg(x).add(x).output("y");
    });
    let mut bench = Bench::new(&graph, vec![full("A")]);
    let plan = bench.plan(&graph);
    assert_eq!(peak(&plan), 0);
    bench.run(&plan, &[Input::f32("x", &[])]).unwrap();
    assert!(bench.output(&plan, "y").is_empty());
}
