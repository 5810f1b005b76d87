//! Costs of steps and transfers, and the predicted course of a run, against hand calculation.

use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph};
use tensoryard_runtime::plan::{DeviceTime, Pin};
use tensoryard_runtime::rates::{Work, WorkClass, step_ns, transfer_ns};
use tensoryard_runtime::{Blueprint, DeviceRates, PlanOptions};

use crate::policy::{A, B, build, devices, draft_on, find, options, predicted};
use crate::support::full;

fn work_of(graph: &Graph, blueprint: &Blueprint, name: &str) -> Work {
    let name = &graph.tensor(graph.output(name).unwrap()).name;
    let mut steps = (0..blueprint.operations.len()).map(|number| blueprint.step(number).unwrap());
    Work::of_step(&steps.find(|step| step.name == *name).unwrap())
}

#[test]
fn work_is_counted_in_the_class_of_the_weight() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [8, 3]);
        g.weight("w32", DType::F32, [8, 4]).mul_mat(x).output("f32");
        g.weight("w16", DType::F16, [8, 4]).mul_mat(x).output("f16");
        x.unary(UnaryKind::Relu).output("relu");
    });
    let devices = devices(vec![full("A")]);
    let blueprint = draft_on(&graph, &devices, 0, &options(|_| ())).unwrap();
    // 2 · 8 · 4 · 3 operations; weight, x and result.
    let expected = Work { class: WorkClass::MatrixF32, flops: 192.0, bytes: 128.0 + 96.0 + 48.0 };
    assert_eq!(work_of(&graph, &blueprint, "f32"), expected);
    let expected = Work { class: WorkClass::MatrixF16, flops: 192.0, bytes: 64.0 + 96.0 + 48.0 };
    assert_eq!(work_of(&graph, &blueprint, "f16"), expected);
    let expected = Work { class: WorkClass::Other, flops: 24.0, bytes: 192.0 };
    assert_eq!(work_of(&graph, &blueprint, "relu"), expected);
}

#[test]
fn only_rows_that_are_looked_up_or_written_move() {
    let graph = build(|g| {
        let ids = g.input("ids", DType::I32, [3]);
        g.weight("table", DType::F32, [4, 1000]).get_rows(ids).output("rows");
        let rows = g.input("new", DType::F32, [4, 3]);
        g.state("cache", DType::F32, [4, 100]).set_rows(rows, ids).output("written");
    });
    let devices = devices(vec![full("A")]);
    let blueprint = draft_on(&graph, &devices, 0, &options(|_| ())).unwrap();
    // Three rows of 16 bytes read and written, three ids of 4 bytes.
    assert_eq!(work_of(&graph, &blueprint, "rows").bytes, 48.0 + 12.0 + 48.0);
    assert_eq!(work_of(&graph, &blueprint, "written").bytes, 48.0 + 12.0 + 48.0);
}

#[test]
fn a_fused_step_counts_all_its_parts() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [8, 3]);
        let product = g.weight("w", DType::F32, [8, 4]).mul_mat(x);
        let biased = product.add(g.weight("b", DType::F32, [4]));
        biased.unary(UnaryKind::Relu).add(g.input("r", DType::F32, [4, 3])).output("y");
    });
    let devices = devices(vec![full("A")]);
    let blueprint = draft_on(&graph, &devices, 0, &PlanOptions::default()).unwrap();
    let steps = blueprint.steps(0).unwrap();
    assert_eq!(steps.len(), 1);
    // The product, and one operation each for bias, relu and residual on 12 elements.
    let bytes = 128.0 + 96.0 + 16.0 + 48.0 + 48.0;
    let expected = Work { class: WorkClass::MatrixF32, flops: 192.0 + 36.0, bytes };
    assert_eq!(Work::of_step(&steps[0]), expected);
}

#[test]
fn a_step_takes_its_overhead_and_the_longer_of_computing_and_moving() {
    let rates = DeviceRates {
        matrix_f16_flops_per_s: 1e9,
        memory_bytes_per_s: 2e9,
        op_overhead_ns: 5.0,
        ..DeviceRates::UNLIMITED
    };
    let work = |class, flops, bytes| Work { class, flops, bytes };
    assert_eq!(step_ns(&work(WorkClass::MatrixF16, 192.0, 208.0), &rates), 5 + 192);
    assert_eq!(step_ns(&work(WorkClass::MatrixF16, 10.0, 208.0), &rates), 5 + 104);
    // Parts of a nanosecond are rounded up, once.
    assert_eq!(step_ns(&work(WorkClass::MatrixF16, 0.2, 0.0), &rates), 6);
    assert_eq!(step_ns(&work(WorkClass::Other, 1e30, 0.0), &rates), 5);
    let dead = DeviceRates { other_flops_per_s: 0.0, ..DeviceRates::UNLIMITED };
    assert_eq!(step_ns(&work(WorkClass::Other, 1.0, 0.0), &dead), u64::MAX);
    assert_eq!(step_ns(&work(WorkClass::Other, 0.0, 0.0), &dead), 0);
}

#[test]
fn a_transfer_takes_both_ends_and_none_in_host_memory() {
    let rates = DeviceRates {
        to_device_bytes_per_s: 2e9,
        from_device_bytes_per_s: 4e9,
        transfer_latency_ns: 100.0,
        ..DeviceRates::UNLIMITED
    };
    assert_eq!(transfer_ns(1000, None, Some(&rates)), 600);
    assert_eq!(transfer_ns(1000, Some(&rates), None), 350);
    assert_eq!(transfer_ns(1000, Some(&rates), Some(&rates)), 950);
    assert_eq!(transfer_ns(1000, None, None), 0);
    assert_eq!(transfer_ns(0, Some(&rates), None), 100);
}

#[test]
fn figures_come_back_as_they_went() {
    let mut figures = [0.0; 10];
    for (index, figure) in figures.iter_mut().enumerate() {
        *figure = index as f64 + 0.5;
    }
    assert_eq!(DeviceRates::from_figures(figures).figures(), figures);
}

#[test]
fn splits_wait_for_their_queue_and_their_arrivals() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [4, 2]);
        let first = x.unary(UnaryKind::Relu).named("first");
        let second = x.scale(2.0, 0.0).named("second");
        first.add(second).named("third").output("y");
    });
    let mut given = [full("A"), full("B")];
    given[0].rates = Some(DeviceRates {
        op_overhead_ns: 10.0,
        split_overhead_ns: 100.0,
        to_device_bytes_per_s: 1e9,
        from_device_bytes_per_s: 1e9,
        transfer_latency_ns: 50.0,
        ..DeviceRates::UNLIMITED
    });
    given[1].rates = Some(DeviceRates {
        op_overhead_ns: 20.0,
        split_overhead_ns: 200.0,
        to_device_bytes_per_s: 0.5e9,
        from_device_bytes_per_s: 0.5e9,
        transfer_latency_ns: 70.0,
        ..DeviceRates::UNLIMITED
    });
    let devices = devices(given.to_vec());
    let pins = [("first", A), ("second", B), ("y", A)];
    let pins = pins.map(|(name, device)| Pin { tensor: find(&graph, name), device }).to_vec();
    let blueprint = draft_on(&graph, &devices, 0, &options(|o| o.pins = pins)).unwrap();
    let prediction = predicted(&blueprint);
    let splits = &prediction.splits;
    assert_eq!(splits.iter().map(|split| split.device).collect::<Vec<_>>(), [A, B, A]);
    // x lies on B: out of it 70 + 64, into A 50 + 32.
    let copy = splits[0].copies[0];
    assert_eq!((copy.queue, copy.bytes, copy.start_ns, copy.end_ns), (B, 32, 0, 216));
    assert_eq!((splits[0].start_ns, splits[0].compute_ns, splits[0].end_ns), (216, 110, 326));
    // The queue of B was busy with the copy.
    assert_eq!((splits[1].start_ns, splits[1].end_ns), (216, 436));
    let copy = splits[2].copies[0];
    assert_eq!((copy.queue, copy.start_ns, copy.end_ns), (B, 436, 652));
    assert_eq!((splits[2].start_ns, splits[2].end_ns, splits[2].copy_ns()), (652, 762, 216));
    assert_eq!(prediction.makespan_ns, 762);
    let busy =
        [DeviceTime { compute_ns: 220, copy_ns: 0 }, DeviceTime { compute_ns: 220, copy_ns: 432 }];
    assert_eq!(prediction.devices, busy);
    assert_eq!(prediction.devices[1].busy_ns(), 652);
}

#[test]
fn shared_memory_needs_no_copy_but_waits_for_the_writer() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [4, 2]);
        x.unary(UnaryKind::Relu).named("first").scale(2.0, 0.0).named("second").output("y");
    });
    let rate = |op_overhead_ns| {
        Some(DeviceRates { op_overhead_ns, transfer_latency_ns: 1e6, ..DeviceRates::UNLIMITED })
    };
    let mut given = [full("A"), full("B")];
    given[1].memory = given[0].memory.clone();
    (given[0].rates, given[1].rates) = (rate(30.0), rate(7.0));
    let devices = devices(given.to_vec());
    let pins = [("first", A), ("y", B)];
    let pins = pins.map(|(name, device)| Pin { tensor: find(&graph, name), device }).to_vec();
    let blueprint = draft_on(&graph, &devices, 0, &options(|o| o.pins = pins)).unwrap();
    let prediction = predicted(&blueprint);
    assert_eq!((prediction.splits[1].start_ns, prediction.splits[1].end_ns), (30, 37));
    assert_eq!(prediction.makespan_ns, 37);
}
