//! Where the graph is cut, and what is copied.

use tensoryard_conformance::graphs::build;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind, Tensor};
use tensoryard_runtime::{Input, Plan};

use crate::support::{Bench, only, without};

/// Runs only on B.
fn b(x: Tensor<'_>) -> Tensor<'_> {
    x.unary(UnaryKind::Neg)
}

/// Runs only on A.
fn a(x: Tensor<'_>) -> Tensor<'_> {
    x.scale(1.0, 1.0)
}

/// A runs everything but functions, B only functions.
fn two(graph: &Graph) -> Bench {
    Bench::new(graph, vec![without("A", &[OpKind::Unary]), only("B", &[OpKind::Unary])])
}

fn devices(plan: &Plan) -> Vec<usize> {
    plan.splits.iter().map(|split| split.device.0).collect()
}

/// Names of the tensors copied before each split.
fn copied(plan: &Plan) -> Vec<Vec<String>> {
    let name = |index: usize| plan.graph.tensor(plan.arrivals[index].tensor).name.clone();
    plan.splits.iter().map(|s| s.arrivals.iter().map(|index| name(index.0)).collect()).collect()
}

#[test]
fn the_graph_is_cut_where_the_device_changes() {
    let graph = build("split", |g| {
        let x = g.input("x", DType::F32, [4]);
        let y = a(a(x)).named("y");
        let z = b(b(y)).named("z");
        a(z).output("out");
    });
    let mut bench = two(&graph);
    let plan = bench.plan(&graph);
    assert_eq!(devices(&plan), [0, 1, 0]);
    assert_eq!(copied(&plan), [vec!["x"], vec!["y"], vec!["z"]]);
    bench.run(&plan, &[Input::f32("x", &[1.0, 2.0, 3.0, 4.0])]).unwrap();
    assert_eq!(bench.output(&plan, "out"), [4.0, 5.0, 6.0, 7.0]);
}

#[test]
fn one_copy_serves_all_splits_of_a_device() {
    let graph = build("split", |g| {
        let x = a(g.input("x", DType::F32, [4])).named("shared");
        let first = b(x);
        let second = a(first);
        b(second).output("p");
        // Read again on B, in a later split.
        b(x).output("q");
        x.output("r");
    });
    let mut bench = two(&graph);
    let plan = bench.plan(&graph);
    let all = copied(&plan).concat();
    assert_eq!(all.iter().filter(|name| *name == "r").count(), 1, "{}", plan.dump());
    bench.run(&plan, &[Input::f32("x", &[1.0, 2.0, 3.0, 4.0])]).unwrap();
    assert_eq!(bench.output(&plan, "p"), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(bench.output(&plan, "q"), [-2.0, -3.0, -4.0, -5.0]);
}

#[test]
fn what_is_written_between_is_copied_again() {
    let graph = build("split", |g| {
        let state = g.state("s", DType::F32, [4]);
        let before = b(state).named("before").output("before");
        let after = a(before).copy_into(state).named("s1");
        b(after).output("after");
    });
    let mut bench = two(&graph);
    let plan = bench.plan(&graph);
    assert_eq!(copied(&plan).concat(), ["s", "before", "s1"]);
    bench.state.write("s", bytemuck_free(&[1.0, 2.0, 3.0, 4.0]).as_slice()).unwrap();
    bench.run(&plan, &[]).unwrap();
    assert_eq!(bench.output(&plan, "before"), [-1.0, -2.0, -3.0, -4.0]);
    assert_eq!(bench.output(&plan, "after"), [-0.0, 1.0, 2.0, 3.0]);
}

fn bytemuck_free(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn sixty_four_leaves_arrive_in_one_split() {
    let graph = build("split", |g| {
        let mut sum = b(g.state("s0", DType::F32, [4]));
        for n in 1..64 {
            sum = sum.add(g.state(format!("s{n}"), DType::F32, [4]));
        }
        sum.output("sum");
    });
    let devices = vec![only("A", &[OpKind::Scale]), only("B", &[OpKind::Unary, OpKind::Binary])];
    let mut bench = Bench::new(&graph, devices);
    let plan = bench.plan(&graph);
    assert_eq!(plan.splits.len(), 1);
    assert_eq!(plan.splits[0].arrivals.len(), 64);
    for n in 0..64 {
        bench.state.write(&format!("s{n}"), &bytemuck_free(&[n as f32; 4])).unwrap();
    }
    bench.run(&plan, &[]).unwrap();
    assert_eq!(bench.output(&plan, "sum"), [2016.0; 4]);
}

#[test]
fn views_neither_start_nor_break_a_split() {
    let graph = build("split", |g| {
        let x = a(g.input("x", DType::F32, [4, 2]));
        let y = a(x.transpose().cont());
        a(y.reshape([8])).output("y");
    });
    let plan = two(&graph).plan(&graph);
    assert_eq!(devices(&plan), [0]);
    assert_eq!(plan.splits[0].steps.len(), 4);
}

#[test]
fn the_second_run_sees_the_second_inputs() {
    let graph = build("split", |g| {
        a(b(g.input("x", DType::F32, [2]))).output("y");
    });
    let mut bench = two(&graph);
    let plan = bench.plan(&graph);
    for value in [1.0, 5.0] {
        bench.run(&plan, &[Input::f32("x", &[value, 2.0 * value])]).unwrap();
        assert_eq!(bench.output(&plan, "y"), [1.0 - value, 1.0 - 2.0 * value]);
    }
}

#[test]
fn devices_of_one_memory_copy_nothing_and_share_it() {
    let graph = build("split", |g| {
        a(b(a(g.input("x", DType::F32, [4])))).output("y");
    });
    let shared = |mut options: tensoryard_conformance::reference::ReferenceOptions| {
        options.memory = "shared".to_owned();
        options
    };
    let devices = vec![shared(without("A", &[OpKind::Unary])), shared(only("B", &[OpKind::Unary]))];
    let mut bench = Bench::new(&graph, devices);
    let plan = bench.plan(&graph);
    assert!(plan.arrivals.is_empty());
    assert_eq!(plan.memory.pools.len(), 1);
    // The input and one value that is rewritten in place, across devices.
    assert_eq!(plan.compute_bytes(), [("shared".to_owned(), 64)]);
    bench.run(&plan, &[Input::f32("x", &[0.0, 1.0, 2.0, 3.0])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [0.0, -1.0, -2.0, -3.0]);
}
