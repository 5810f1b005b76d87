//! Small graphs that broke other systems.

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::graphs::build;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, OpKind};
use tensoryard_runtime::{Input, PlanOptions, RunError};

use crate::support::{Bench, full, only, without};

#[test]
fn a_graph_of_zero_nodes() {
    let graph = build("case", |_| {});
    let mut bench = Bench::new(&graph, vec![full("A")]);
    let plan = bench.plan(&graph);
    assert!(plan.splits.is_empty());
    bench.run(&plan, &[]).unwrap();
}

#[test]
fn a_graph_of_views_only() {
    let graph = build("case", |g| {
        g.input("x", DType::F32, [2, 3]).transpose().output("y");
    });
    let mut bench = Bench::new(&graph, vec![full("A"), full("B")]);
    let plan = bench.plan(&graph);
    assert_eq!(plan.splits.len(), 1);
    assert!(plan.splits[0].steps.is_empty());
    bench.run(&plan, &[Input::f32("x", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
}

#[test]
fn leaves_of_every_kind_as_outputs() {
    let graph = build("case", |g| {
        g.input("x", DType::F32, [2]).output("a");
        g.weight("w", DType::F32, [2]).output("b");
        g.state("s", DType::F32, [2]).output("c");
    });
    let mut weights = MemoryWeights::default();
    let layout = *graph.layout(graph.leaf("w").unwrap());
    weights.insert("w", layout, encode(DType::F32, &[3.0, 4.0]));
    let devices = [full("A").build(), full("B").build()];
    let mut bench = Bench::open(&[&graph], &devices, &weights, 1, 0).unwrap();
    let plan = bench.plan(&graph);
    bench.run(&plan, &[Input::f32("x", &[1.0, 2.0])]).unwrap();
    assert_eq!(bench.output(&plan, "a"), [1.0, 2.0]);
    assert_eq!(bench.output(&plan, "b"), [3.0, 4.0]);
    assert_eq!(bench.output(&plan, "c"), [0.0, 0.0]);
}

#[test]
fn one_tensor_as_both_sources_on_another_device() {
    let graph = build("case", |g| {
        let x = g.input("x", DType::F32, [2]).scale(1.0, 0.0);
        x.mul(x).output("y");
    });
    let devices = vec![only("A", &[OpKind::Binary]), only("B", &[OpKind::Scale])];
    let mut bench = Bench::new(&graph, devices);
    let plan = bench.plan(&graph);
    assert_eq!(plan.arrivals.len(), 1);
    bench.run(&plan, &[Input::f32("x", &[3.0, -4.0])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [9.0, 16.0]);
}

#[test]
fn a_state_write_that_nothing_reads_happens() {
    let graph = build("case", |g| {
        let x = g.input("x", DType::F32, [2, 1]);
        _ = g.state("s", DType::F32, [2, 3]).set_rows(x, g.input("ids", DType::I32, [1]));
    });
    let mut bench = Bench::new(&graph, vec![full("A"), full("B")]);
    let plan = bench.plan(&graph);
    bench.run(&plan, &[Input::f32("x", &[7.0, 8.0]), Input::i32("ids", &[1])]).unwrap();
    assert_eq!(bench.state.read("s").unwrap(), encode(DType::F32, &[0.0, 0.0, 7.0, 8.0, 0.0, 0.0]));
}

#[test]
fn a_cache_that_is_permuted_in_place() {
    let graph = build("case", |g| {
        let cache = g.state("s", DType::F32, [2, 3]);
        _ = cache.get_rows(g.input("ids", DType::I32, [3])).copy_into(cache);
    });
    let mut bench = Bench::new(&graph, vec![full("A")]);
    let plan = bench.plan(&graph);
    bench.state.write("s", &encode(DType::F32, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])).unwrap();
    bench.run(&plan, &[Input::i32("ids", &[2, 0, 0])]).unwrap();
    let expected = encode(DType::F32, &[4.0, 5.0, 0.0, 1.0, 0.0, 1.0]);
    assert_eq!(bench.state.read("s").unwrap(), expected);
}

#[test]
fn rows_written_through_a_view_of_a_base_on_another_device() {
    // B lacks what makes the values; the base lies on B.
    let graph = build("case", |g| {
        let values = g.input("x", DType::F32, [2, 2]).scale(0.0, 9.0);
        let base = g.state("s", DType::F32, [2, 6]);
        _ = base.slice(1, 3, 3).set_rows(values, g.input("ids", DType::I32, [2]));
    });
    let devices = [full("A").build(), without("B", &[OpKind::Scale]).build()];
    let weights = MemoryWeights::default();
    let mut bench = Bench::open(&[&graph], &devices, &weights, 0, 1).unwrap();
    let plan = bench.plan(&graph);
    bench.run(&plan, &[Input::f32("x", &[1.0; 4]), Input::i32("ids", &[0, 2])]).unwrap();
    let mut expected = [0.0; 12];
    expected[6..8].fill(9.0);
    expected[10..12].fill(9.0);
    assert_eq!(bench.state.read("s").unwrap(), encode(DType::F32, &expected));
}

#[test]
fn a_cache_on_one_device_is_read_by_an_op_of_another() {
    let graph = build("case", |g| {
        g.state("s", DType::F32, [2]).unary(UnaryKind::Neg).output("y");
    });
    let devices = [without("A", &[OpKind::Unary]).build(), full("B").build()];
    let mut bench = Bench::open(&[&graph], &devices, &MemoryWeights::default(), 0, 0).unwrap();
    let plan = bench.plan(&graph);
    assert_eq!(plan.arrivals.len(), 1);
    bench.state.write("s", &encode(DType::F32, &[1.0, 2.0])).unwrap();
    bench.run(&plan, &[]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [-1.0, -2.0]);
}

#[test]
fn a_copy_into_a_row_is_seen_by_the_reader_of_the_new_version() {
    let graph = build("case", |g| {
        let base = g.input("x", DType::F32, [2, 2]).scale(1.0, 0.0);
        let row = g.input("row", DType::F32, [2]).copy_into(base.slice(1, 0, 1).reshape([2]));
        row.view([2, 2], [4, 8, 16, 16], 0).scale(1.0, 0.0).output("y");
    });
    let mut bench = Bench::new(&graph, vec![full("A")]);
    let plan = bench.plan(&graph);
    let inputs = [Input::f32("x", &[1.0, 2.0, 3.0, 4.0]), Input::f32("row", &[8.0, 9.0])];
    bench.run(&plan, &inputs).unwrap();
    assert_eq!(bench.output(&plan, "y"), [8.0, 9.0, 3.0, 4.0]);
}

#[test]
fn forty_weights_are_streamed_to_a_device_with_room_for_three() {
    let graph = build("case", |g| {
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
    let only_b = only("B", &[OpKind::MulMat, OpKind::Unary]);
    let small = ReferenceOptions { max_size: 3 * 256 + 64, ..only_b };
    let devices = [only("A", &[OpKind::Scale]).build(), small.build()];
    let mut bench = Bench::open(&[&graph], &devices, &weights, 0, 0).unwrap();
    let plan = bench.plan_with(&graph, &PlanOptions::default()).unwrap();
    bench.run(&plan, &[Input::f32("x", &[0.5; 8])]).unwrap();
    assert!(bench.output(&plan, "y").iter().all(|v| v.is_finite()));
}

#[test]
fn a_plan_does_not_run_with_memory_that_it_was_not_made_for() {
    let graph = build("case", |g| {
        g.state("s", DType::F32, [2]).unary(UnaryKind::Neg).output("y");
    });
    let devices = [full("A").build(), full("B").build()];
    let weights = MemoryWeights::default();
    let on_a = Bench::open(&[&graph], &devices, &weights, 0, 0).unwrap();
    let mut on_b = Bench::open(&[&graph], &devices, &weights, 0, 1).unwrap();
    let plan = on_a.plan(&graph);
    let error = on_b.run(&plan, &[]).unwrap_err();
    assert!(matches!(&error, RunError::PlanMismatch(_)), "{error}");
    on_b.backends.pop();
    assert!(matches!(on_b.run(&plan, &[]), Err(RunError::PlanMismatch(_))));
}

#[test]
fn one_plan_serves_two_states() {
    let graph = build("case", |g| {
        let s = g.state("s", DType::F32, [2]);
        _ = s.scale(1.0, 1.0).copy_into(s);
    });
    let devices = [full("A").build()];
    let weights = MemoryWeights::default();
    let mut first = Bench::open(&[&graph], &devices, &weights, 0, 0).unwrap();
    let mut second = Bench::open(&[&graph], &devices, &weights, 0, 0).unwrap();
    let plan = first.plan(&graph);
    first.run(&plan, &[]).unwrap();
    first.run(&plan, &[]).unwrap();
    second.run(&plan, &[]).unwrap();
    assert_eq!(first.state.read("s").unwrap(), encode(DType::F32, &[2.0, 2.0]));
    assert_eq!(second.state.read("s").unwrap(), encode(DType::F32, &[1.0, 1.0]));
}
