//! Compute memory that grows: counted, with runs in flight, where there is little room.

use std::sync::Arc;
use std::time::Duration;

use tensoryard_graph::{DType, Graph, GraphBuilder};
use tensoryard_runtime::{
    AbortSignal, Buffer, Device, DeviceIndex, Input, MemoryInfo, Plan, PlanOptions, RunError,
    State, Usage, Workspace,
};
use tensoryard_sim::{SimDevice, SimOptions};

use crate::support::{Bench, driver};

/// y = -x + 1 over so many elements.
fn graph(elements: usize) -> Arc<Graph> {
    let g = GraphBuilder::new("growing");
    g.input("x", DType::F32, [elements]).scale(-1.0, 1.0).output("y");
    Arc::new(g.finish().unwrap())
}

const SMALL: usize = 256;
const LARGE: usize = 1024;

struct Machine {
    device: Arc<SimDevice>,
    bench: Bench,
    small: Plan,
    large: Plan,
}

/// A device with so much memory, a small plan and a large one.
fn machine(options: SimOptions) -> Machine {
    let device = driver().device(options).unwrap();
    let (small, large) = (graph(SMALL), graph(LARGE));
    let shared: Arc<dyn Device> = device.clone();
    let bench = Bench::open(&small, &[shared], &Default::default(), 0, 0);
    let options = PlanOptions::default();
    let (small, large) = (bench.plan(&small, &options), bench.plan(&large, &options));
    assert_eq!((bytes(&small), bytes(&large)), (2048, 8192));
    Machine { device, bench, small, large }
}

fn bytes(plan: &Plan) -> usize {
    plan.compute_bytes().iter().map(|(_, bytes)| bytes).sum()
}

fn check(bench: &mut Bench, plan: &Plan, x: f32) -> Result<(), RunError> {
    let elements = if bytes(plan) == 2048 { SMALL } else { LARGE };
    bench.run(plan, &[Input::f32("x", &vec![x; elements])])?;
    assert_eq!(bench.output(plan, "y")?, vec![1.0 - x; elements]);
    Ok(())
}

fn used(device: &SimDevice) -> usize {
    let MemoryInfo { free, total, .. } = device.memory();
    total - free
}

#[test]
fn what_is_reserved_for_the_largest_serves_all_others_and_is_counted() {
    let Machine { device, mut bench, small, large } = machine(SimOptions::named("A"));
    check(&mut bench, &small, 1.0).unwrap();
    assert_eq!(bench.workspace.counters().growths, 1);
    check(&mut bench, &large, 2.0).unwrap();
    assert_eq!(bench.workspace.counters().growths, 2);
    let allocations = device.counts().allocations;
    for round in 0..10u8 {
        check(&mut bench, &small, f32::from(round)).unwrap();
        check(&mut bench, &large, f32::from(round)).unwrap();
        assert_eq!((bench.workspace.bytes(), used(&device)), (8192, 8192));
    }
    assert_eq!(bench.workspace.counters().growths, 2);
    assert_eq!(device.counts().allocations, allocations);
    // Reserved for the largest first, nothing is allocated at all.
    bench.workspace = Workspace::new();
    bench.workspace.reserve(&large).unwrap();
    check(&mut bench, &small, 3.0).unwrap();
    assert_eq!(bench.workspace.counters().growths, 1);
}

#[test]
fn memory_grows_where_there_is_no_room_for_old_and_new() {
    let options = SimOptions { memory: 9000, ..SimOptions::named("A") };
    let Machine { device, mut bench, small, large } = machine(options);
    check(&mut bench, &small, 1.0).unwrap();
    check(&mut bench, &large, 2.0).unwrap();
    check(&mut bench, &small, 3.0).unwrap();
    assert_eq!(used(&device), 8192);
    assert_eq!(bench.workspace.counters().growths, 2);
    // With runs in flight, too, whose results are not read.
    let options = SimOptions { delay: Duration::from_millis(2), ..options_with(9000) };
    let Machine { device, mut bench, small, large } = machine(options);
    for round in 0..3u8 {
        let x = [f32::from(round); SMALL];
        let ticket = bench.submit(&small, &[Input::f32("x", &x)], &AbortSignal::new()).unwrap();
        std::mem::forget(ticket);
    }
    check(&mut bench, &large, 4.0).unwrap();
    assert_eq!(used(&device), 8192);
}

fn options_with(memory: usize) -> SimOptions {
    SimOptions { memory, ..SimOptions::named("A") }
}

#[test]
fn a_growth_that_fails_leaves_what_was_reserved() {
    let Machine { device, mut bench, small, large } = machine(options_with(10_000));
    check(&mut bench, &small, 1.0).unwrap();
    let taken = Buffer::allocate(&device.buffer_types()[0], 2000, Usage::Any).unwrap();
    for round in 0..3u8 {
        let error = check(&mut bench, &large, 2.0).unwrap_err();
        assert_eq!(error.failed_device(), Some("A"), "{error}");
        assert!(error.to_string().contains("8192"), "{error}");
        assert_eq!((bench.workspace.bytes(), used(&device)), (2048, 2048 + 2000));
        // What lay there is not taken for results, what is computed now is right.
        assert!(bench.output(&small, "y").is_err());
        check(&mut bench, &small, f32::from(round)).unwrap();
    }
    assert_eq!(bench.workspace.counters().growths, 1);
    drop(taken);
    check(&mut bench, &large, 2.0).unwrap();
}

#[test]
fn memory_grows_while_runs_are_in_flight() {
    let options =
        SimOptions { jitter: Duration::from_millis(2), fill: Some(0xff), ..SimOptions::named("A") };
    let g = GraphBuilder::new("late");
    let sum = g.state("sum", DType::F32, [SMALL]);
    _ = g.input("x", DType::F32, [SMALL]).scale(2.0, 0.0).add(sum).copy_into(sum);
    let adding = Arc::new(g.finish().unwrap());
    for _ in 0..5 {
        let Machine { mut bench, large, .. } = machine(options.clone());
        bench.state = State::create_on(&[&adding], &*bench.devices[0].device).unwrap();
        let plan = bench.plan(&adding, &PlanOptions::default());
        for round in 0..4u8 {
            let x = [f32::from(round); SMALL];
            let abort = AbortSignal::new();
            std::mem::forget(bench.submit(&plan, &[Input::f32("x", &x)], &abort).unwrap());
        }
        check(&mut bench, &large, 5.0).unwrap();
        let sum = crate::support::floats(&bench.state.read("sum").unwrap());
        assert_eq!(sum, [12.0; SMALL]);
    }
}

#[test]
fn a_workspace_does_not_keep_what_its_callers_dropped() {
    let g = GraphBuilder::new("keeping");
    let sum = g.state("sum", DType::F32, [LARGE]);
    _ = sum.scale(1.0, 1.0).copy_into(sum);
    let graph = Arc::new(g.finish().unwrap());
    let device = driver().device(SimOptions::named("A")).unwrap();
    let shared: Arc<dyn Device> = device.clone();
    let mut bench = Bench::open(&graph, &[shared], &Default::default(), 0, 0);
    let plan = bench.plan(&graph, &PlanOptions::default());
    bench.run(&plan, &[]).unwrap();
    bench.run(&plan, &[]).unwrap();
    let once = used(&device);
    for _ in 0..5 {
        bench.state = State::create_on(&[&graph], &*device).unwrap();
        bench.run(&plan, &[]).unwrap();
        assert_eq!(used(&device), once);
    }
}

#[test]
fn a_failure_that_nobody_asked_about_does_not_reach_later_runs() {
    let make = |name: &str| {
        let g = GraphBuilder::new(name);
        g.input("x", DType::F32, [8]).scale(3.0, 0.0).named("work").output("y");
        Arc::new(g.finish().unwrap())
    };
    let driver = driver();
    let slow = SimOptions { delay: Duration::from_millis(20), ..SimOptions::named("A") };
    let devices: Vec<Arc<dyn Device>> =
        vec![driver.device(slow).unwrap(), driver.device(SimOptions::named("B")).unwrap()];
    let (on_a, on_b) = (make("on A"), make("on B"));
    let mut bench = Bench::open(&on_a, &devices, &Default::default(), 0, 0);
    let pinned = |graph: &Graph, device: usize| {
        let ids = graph.ids().filter(|&id| ["x", "y"].contains(&&*graph.tensor(id).name));
        let pins =
            ids.map(|tensor| tensoryard_runtime::plan::Pin { tensor, device: DeviceIndex(device) });
        PlanOptions { pins: pins.collect(), ..PlanOptions::default() }
    };
    let on_a = bench.plan(&on_a, &pinned(&on_a, 0));
    let on_b = bench.plan(&on_b, &pinned(&on_b, 1));
    let inputs = [Input::f32("x", &[2.0; 8])];
    let stopped = AbortSignal::new();
    std::mem::forget(bench.submit(&on_a, &inputs, &stopped).unwrap());
    stopped.abort();
    bench.run(&on_b, &inputs).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    bench.run(&on_a, &inputs).unwrap();
    assert_eq!(bench.output(&on_a, "y").unwrap(), [6.0; 8]);
}
