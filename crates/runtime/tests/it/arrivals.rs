//! What is copied between memories: one version once, and only what is read.

use std::sync::Arc;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::graphs::build;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind, Tensor};
use tensoryard_runtime::{Input, Plan, PlanOptions};

use crate::support::{Bench, only, without};

/// Runs only on B.
fn b(x: Tensor<'_>) -> Tensor<'_> {
    x.unary(UnaryKind::Neg)
}

/// Runs only on A.
fn a(x: Tensor<'_>) -> Tensor<'_> {
    x.scale(1.0, 0.0)
}

fn two() -> Vec<ReferenceOptions> {
    vec![without("A", &[OpKind::Unary]), only("B", &[OpKind::Unary])]
}

/// Name, version and bytes of each arrival.
fn copies(plan: &Plan) -> Vec<(String, u32, usize)> {
    let describe = |arrival: &tensoryard_runtime::plan::Arrival| {
        let desc = plan.graph.tensor(arrival.tensor);
        (desc.name.clone(), arrival.version, desc.layout.data_bytes())
    };
    plan.arrivals.iter().map(describe).collect()
}

fn copy(name: &str, version: u32, bytes: usize) -> (String, u32, usize) {
    (name.to_owned(), version, bytes)
}

/// Eight rows of four values: row `r` holds `r`.
fn rows() -> Vec<f32> {
    (0..32).map(|n| (n / 4) as f32).collect()
}

fn negated_rows(range: std::ops::Range<usize>) -> Vec<f32> {
    rows()[range.start * 4..range.end * 4].iter().map(|v| -v).collect()
}

/// Plans and runs a graph with the input `x` of eight rows.
fn run(graph: &Arc<Graph>, devices: Vec<ReferenceOptions>) -> (Bench, Plan) {
    let mut bench = Bench::new(graph, devices);
    let plan = bench.plan(graph);
    bench.run(&plan, &[Input::f32("x", &rows())]).unwrap();
    (bench, plan)
}

#[test]
fn a_view_inside_another_is_no_second_copy() {
    let graph = build("arrivals", |g| {
        let x = a(g.input("x", DType::F32, [4, 8]));
        b(x.slice(1, 1, 2).named("inner")).output("p");
        b(x.slice(1, 0, 4).named("outer")).output("q");
        b(x.slice(1, 0, 4).named("again")).output("r");
    });
    let (bench, plan) = run(&graph, two());
    // The larger one is copied before the first split that reads any of it.
    let from_a: Vec<_> = copies(&plan).into_iter().filter(|(name, ..)| name != "x").collect();
    assert_eq!(from_a, [copy("outer", 0, 64)]);
    assert_eq!(bench.output(&plan, "p"), negated_rows(1..3));
    assert_eq!(bench.output(&plan, "q"), negated_rows(0..4));
    assert_eq!(bench.output(&plan, "r"), negated_rows(0..4));
}

#[test]
fn distant_views_are_copied_without_what_lies_between() {
    let graph = build("arrivals", |g| {
        let x = a(g.input("x", DType::F32, [4, 8]));
        b(x.slice(1, 0, 1).named("first")).output("p");
        b(x.slice(1, 7, 1).named("last")).output("q");
    });
    let (bench, plan) = run(&graph, two());
    let from_a: Vec<_> = copies(&plan).into_iter().filter(|(name, ..)| name != "x").collect();
    assert_eq!(from_a, [copy("first", 0, 16), copy("last", 0, 16)]);
    assert_eq!(bench.output(&plan, "p"), negated_rows(0..1));
    assert_eq!(bench.output(&plan, "q"), negated_rows(7..8));
}

#[test]
fn overlapping_views_are_one_copy_of_the_whole_where_that_is_less() {
    let make = |first: usize, second: usize| {
        build("arrivals", |g| {
            let x = a(g.input("x", DType::F32, [4, 8])).named("whole");
            b(x.slice(1, 0, first).named("head")).output("p");
            b(x.slice(1, 8 - second, second).named("tail")).output("q");
        })
    };
    // Six and six rows overlap: twelve are more than eight.
    let (bench, plan) = run(&make(6, 6), two());
    assert_eq!(copies(&plan)[1..], [copy("whole", 0, 128)]);
    assert_eq!(bench.output(&plan, "p"), negated_rows(0..6));
    assert_eq!(bench.output(&plan, "q"), negated_rows(2..8));
    // Three and four rows are fewer than eight.
    let (bench, plan) = run(&make(3, 4), two());
    assert_eq!(copies(&plan)[1..], [copy("head", 0, 48), copy("tail", 0, 64)]);
    assert_eq!(bench.output(&plan, "q"), negated_rows(4..8));
    // The whole does not fit into a buffer of B, so the parts are copied.
    let small = ReferenceOptions { max_size: 96, ..only("B", &[OpKind::Unary]) };
    let graph = build("arrivals", |g| {
        let s = g.state("s", DType::F32, [4, 8]);
        b(s.slice(1, 0, 6)).output("p");
        b(s.slice(1, 2, 6)).output("q");
    });
    let plan = Bench::new(&graph, vec![without("A", &[OpKind::Unary]), small]).plan(&graph);
    assert_eq!(plan.arrivals.len(), 2, "{}", plan.dump());
}

#[test]
fn a_turned_view_reads_the_copy_of_its_base() {
    let graph = build("arrivals", |g| {
        let x = a(g.input("x", DType::F32, [4, 8])).named("base");
        b(x).output("p");
        b(x.transpose()).output("q");
    });
    let (bench, plan) = run(&graph, two());
    assert_eq!(copies(&plan).len(), 2, "{}", plan.dump());
    let turned: Vec<f32> = (0..32).map(|n| -((n % 8) as f32)).collect();
    assert_eq!(bench.output(&plan, "q"), turned);
}

#[test]
fn of_an_input_only_the_rows_that_are_read_are_copied() {
    // The input is on B, the last device; A reads one row of it.
    let graph = build("arrivals", |g| {
        let x = g.input("x", DType::F32, [4, 8]);
        a(x.slice(1, 5, 1).named("row")).output("y");
        _ = g.input("unread", DType::F32, [4, 8]);
    });
    let mut bench = Bench::new(&graph, two());
    let plan = bench.plan(&graph);
    assert_eq!(copies(&plan), [copy("row", 0, 16)]);
    bench.run(&plan, &[Input::f32("x", &rows())]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [5.0; 4]);
}

#[test]
fn devices_that_share_memory_share_the_copy() {
    let graph = build("arrivals", |g| {
        let x = a(g.input("x", DType::F32, [4, 8])).named("made");
        b(x).output("p");
        x.soft_max(1.0, None).output("q");
    });
    let shared = |ops: &[OpKind], name: &str| {
        let mut options = only(name, ops);
        options.memory = "shared".to_owned();
        options
    };
    let devices = vec![
        without("A", &[OpKind::Unary, OpKind::SoftMax]),
        shared(&[OpKind::Unary], "B"),
        shared(&[OpKind::SoftMax], "C"),
    ];
    let (bench, plan) = run(&graph, devices);
    assert_eq!(copies(&plan), [copy("x", 0, 128), copy("made", 0, 128)]);
    assert_eq!(bench.output(&plan, "p"), negated_rows(0..8));
    assert_eq!(bench.output(&plan, "q"), [0.25; 32]);
}

#[test]
fn views_of_a_later_version_are_copied_as_it_is_then() {
    let graph = build("arrivals", |g| {
        let s = g.state("s", DType::F32, [4, 8]);
        b(s.slice(1, 0, 5)).output("before");
        let row = a(g.input("x", DType::F32, [4, 8])).slice(1, 7, 1);
        let s = row.copy_into(s.slice(1, 3, 1));
        let s = s.view([4, 5], [4, 16, 80, 80], 0);
        b(s.slice(1, 0, 2)).output("after");
    });
    // The result of the write is one row; a wider view of it is beyond it.
    let mut bench = Bench::new(&graph, two());
    let plan = bench.plan(&graph);
    let versions: Vec<u32> =
        plan.arrivals.iter().filter(|a| !a.kept).map(|arrival| arrival.version).collect();
    assert_eq!(versions, [0, 1], "{}", plan.dump());
    bench.state.write("s", &encode(DType::F32, &rows())).unwrap();
    bench.run(&plan, &[Input::f32("x", &rows())]).unwrap();
    assert_eq!(bench.output(&plan, "before"), negated_rows(0..5));
    assert_eq!(bench.output(&plan, "after"), [[-7.0; 4], [-4.0; 4]].concat());
}

#[test]
fn the_whole_of_a_later_version_is_one_copy_for_overlapping_views() {
    let graph = build("arrivals", |g| {
        let s = g.state("s", DType::F32, [4, 8]);
        let written = a(g.input("x", DType::F32, [4, 8])).copy_into(s);
        b(written.slice(1, 0, 6)).output("p");
        b(written.slice(1, 2, 6)).output("q");
    });
    let (bench, plan) = run(&graph, two());
    let later: Vec<_> = copies(&plan).into_iter().filter(|(_, version, _)| *version == 1).collect();
    assert_eq!(later, [copy("s", 1, 128)]);
    assert_eq!(bench.output(&plan, "p"), negated_rows(0..6));
    assert_eq!(bench.output(&plan, "q"), negated_rows(2..8));
}

#[test]
fn an_arrival_takes_memory_only_until_its_last_reader() {
    // B copies one result of A after another; each is read once.
    let graph = build("arrivals", |g| {
        let mut x = g.input("x", DType::F32, [4, 8]);
        for _ in 0..20 {
            x = b(a(x));
        }
        x.output("y");
    });
    let (bench, plan) = run(&graph, two());
    assert_eq!(plan.arrivals.len(), 40);
    // On A the kept copy of the input, a copy and its result; on B the input, and the same.
    let bytes: Vec<usize> = plan.compute_bytes().into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(bytes, [384, 384], "{}", plan.dump());
    assert_eq!(bench.output(&plan, "y"), rows());
}

#[test]
fn inputs_and_their_copies_keep_their_memory() {
    let graph = build("arrivals", |g| {
        let x = a(g.input("x", DType::F32, [4, 8]));
        let y = b(x);
        a(a(y)).output("y");
    });
    let plan = Bench::new(&graph, two()).plan(&graph);
    let kept: Vec<bool> = plan.arrivals.iter().map(|arrival| arrival.kept).collect();
    assert_eq!(kept, [true, false, false]);
    let place = plan.memory.arrivals[0];
    let input = plan.memory.locate(graph.leaf("x").unwrap()).unwrap();
    for kept in [place, input] {
        let others = graph.nodes().iter().filter_map(|node| plan.memory.locate(node.id));
        for other in others.chain(plan.memory.arrivals[1..].iter().copied()) {
            let apart = other.chunk != kept.chunk
                || other.offset_bytes + other.bytes <= kept.offset_bytes
                || kept.offset_bytes + kept.bytes <= other.offset_bytes;
            assert!(apart, "{}", plan.dump());
        }
    }
}

/// Forty weights on A for products that only B computes.
fn streamed() -> (Arc<Graph>, MemoryWeights) {
    let graph = build("arrivals", |g| {
        let mut x = g.input("x", DType::F32, [8, 1]);
        for n in 0..40 {
            x = g.weight(format!("w{n}"), DType::F32, [8, 8]).mul_mat(x).unary(UnaryKind::Tanh);
        }
        x.output("y");
    });
    let mut weights = MemoryWeights::default();
    for n in 0..40 {
        let layout = *graph.layout(graph.leaf(&format!("w{n}")).unwrap());
        weights.insert(format!("w{n}"), layout, encode(DType::F32, &[0.01 * n as f32; 64]));
    }
    (graph, weights)
}

#[test]
fn streamed_weights_share_memory() {
    let (graph, weights) = streamed();
    let small =
        ReferenceOptions { max_size: 3 * 256 + 64, ..only("B", &[OpKind::MulMat, OpKind::Unary]) };
    let devices = [only("A", &[OpKind::Scale]).build(), small.build()];
    for fusion in [false, true] {
        let bench = Bench::open(&[&graph], &devices, &weights, 0, 0).unwrap();
        let options = PlanOptions { fusion, ..PlanOptions::default() };
        let plan = bench.plan_with(&graph, &options).unwrap();
        assert_eq!(plan.splits.len(), 40);
        assert!(plan.splits.iter().all(|split| split.arrivals.len() == 1));
        // One buffer, although all weights together are 10 KiB.
        let sizes: Vec<usize> = plan.memory.chunks.iter().map(|chunk| chunk.bytes).collect();
        assert_eq!(sizes.len(), 1, "{}", plan.dump());
        assert!(sizes[0] <= 3 * 256 + 64, "{}", plan.dump());
    }
}

#[test]
fn a_weight_that_is_copied_already_does_not_cut() {
    let graph = build("arrivals", |g| {
        let x = g.input("x", DType::F32, [8, 1]);
        let (v, w) = (g.weight("v", DType::F32, [8, 8]), g.weight("w", DType::F32, [8, 8]));
        let y = w.mul_mat(v.mul_mat(x));
        w.mul_mat(v.mul_mat(y)).output("y");
    });
    let mut weights = MemoryWeights::default();
    for name in ["v", "w"] {
        let layout = *graph.layout(graph.leaf(name).unwrap());
        weights.insert(name, layout, encode(DType::F32, &[0.5; 64]));
    }
    let devices = [only("A", &[OpKind::Scale]).build(), only("B", &[OpKind::MulMat]).build()];
    let bench = Bench::open(&[&graph], &devices, &weights, 0, 0).unwrap();
    let plan = bench.plan(&graph);
    assert_eq!(plan.arrivals.len(), 2);
    let steps: Vec<usize> = plan.splits.iter().map(|split| split.steps.len()).collect();
    assert_eq!(steps, [1, 3]);
}
