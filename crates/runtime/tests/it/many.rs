//! No fixed limits: many devices, many splits, many arrivals in one split.

use tensoryard_conformance::graphs::build;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, OpKind};
use tensoryard_runtime::plan::Pin;
use tensoryard_runtime::{DeviceIndex, Input, PlanOptions};

use crate::support::{Bench, full, only, without};

#[test]
fn twenty_devices() {
    let graph = build("many", |g| {
        let mut x = g.input("x", DType::F32, [4]);
        for _ in 0..200 {
            x = x.scale(1.0, 1.0);
        }
        x.output("y");
    });
    let devices: Vec<ReferenceOptions> = (0..20).map(|n| full(&format!("D{n}"))).collect();
    let mut bench = Bench::new(&graph, devices);
    let nodes = graph.nodes().iter().enumerate();
    let pins = nodes.map(|(at, node)| Pin { tensor: node.id, device: DeviceIndex(at * 7 % 20) });
    let options = PlanOptions { pins: pins.collect(), ..PlanOptions::default() };
    let plan = bench.plan_with(&graph, &options).unwrap();
    assert_eq!(plan.splits.len(), 200);
    assert_eq!(plan.memory.pools.len(), 20);
    bench.run(&plan, &[Input::f32("x", &[0.5; 4])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [200.5; 4]);
}

#[test]
fn five_thousand_splits() {
    let graph = build("many", |g| {
        let mut x = g.input("x", DType::F32, [4]);
        for node in 0..5000 {
            x = if node % 2 == 0 { x.scale(1.0, 1.0) } else { x.unary(UnaryKind::Abs) };
        }
        x.output("y");
    });
    let devices = vec![without("A", &[OpKind::Unary]), only("B", &[OpKind::Unary])];
    let mut bench = Bench::new(&graph, devices);
    let plan = bench.plan(&graph);
    assert_eq!(plan.splits.len(), 5000);
    assert_eq!(plan.arrivals.len(), 5000);
    bench.run(&plan, &[Input::f32("x", &[0.0; 4])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [2500.0; 4]);
}

#[test]
fn five_hundred_arrivals_in_one_split() {
    let graph = build("many", |g| {
        let parts: Vec<_> =
            (0..500).map(|n| g.input(format!("x{n}"), DType::F32, [4]).scale(1.0, 1.0)).collect();
        let first = parts[0].unary(UnaryKind::Neg);
        parts[1..].iter().fold(first, |sum, &part| sum.add(part)).output("y");
    });
    let devices = vec![only("A", &[OpKind::Scale]), only("B", &[OpKind::Unary, OpKind::Binary])];
    let mut bench = Bench::new(&graph, devices);
    let plan = bench.plan(&graph);
    assert_eq!(plan.splits.last().unwrap().arrivals.len(), 500);
    let names: Vec<String> = (0..500).map(|n| format!("x{n}")).collect();
    let inputs: Vec<Input<'_>> = names.iter().map(|name| Input::f32(name, &[1.0; 4])).collect();
    bench.run(&plan, &inputs).unwrap();
    assert_eq!(bench.output(&plan, "y"), [996.0; 4]);
}
