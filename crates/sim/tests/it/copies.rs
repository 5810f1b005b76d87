//! The ways that a tensor goes from one memory to another, each with what the executor counts
//! and what it costs in virtual time.

use std::sync::Arc;

use tensoryard_graph::{DType, Graph, GraphBuilder};
use tensoryard_runtime::plan::Pin;
use tensoryard_runtime::{
    BackendOptions, Buffer, Device, DeviceIndex, DeviceRates, Input, Location, PlanOptions, Region,
    Submission, Usage,
};
use tensoryard_sim::{Shares, SimDevice, SimOptions};

use crate::support::{Bench, buffer, cpu, driver, row, values};

/// 1 ns a byte out, 2 ns a byte in, 100 ns for each end.
fn rates() -> DeviceRates {
    DeviceRates {
        from_device_bytes_per_s: 1e9,
        to_device_bytes_per_s: 5e8,
        transfer_latency_ns: 100.0,
        ..DeviceRates::UNLIMITED
    }
}

fn options(name: &str) -> SimOptions {
    SimOptions { rates: rates(), ..SimOptions::named(name) }
}

/// `y = (x + x) * m`, where the sum is on one device and the rest on another.
fn two_halves() -> (Arc<Graph>, Vec<Pin>) {
    let builder = GraphBuilder::new("halves");
    let x = builder.input("x", DType::F32, [6]);
    let sum = x.add(x).named("sum");
    sum.scale(3.0, 0.0).named("y").output("y");
    let graph = Arc::new(builder.finish().unwrap());
    let find = |name: &str| graph.ids().find(|&id| graph.tensor(id).name == name).unwrap();
    let pin = |name, device| Pin { tensor: find(name), device: DeviceIndex(device) };
    let pins = vec![pin("sum", 0), pin("y", 1)];
    (graph, pins)
}

/// Runs the halves on two devices. Returns copies, slow copies and the makespan.
fn run_halves(devices: [Arc<dyn Device>; 2], clock: &SimDevice) -> (u64, u64, u64) {
    let (graph, pins) = two_halves();
    let mut bench = Bench::open(&graph, &devices, &Default::default(), 0, 0);
    let plan = bench.plan(&graph, &PlanOptions { pins, ..PlanOptions::default() });
    for round in 0..3 {
        clock.reset_clock();
        let x: Vec<f32> = (0..6u8).map(|i| f32::from(i + round)).collect();
        bench.run(&plan, &[Input::f32("x", &x)]).unwrap();
        let expected: Vec<f32> = x.iter().map(|x| 6.0 * x).collect();
        assert_eq!(bench.output(&plan, "y").unwrap(), expected);
    }
    let counters = bench.workspace.counters();
    assert_eq!(counters.copied_bytes, counters.copies * 24);
    (counters.copies / 3, counters.slow_copies / 3, clock.clock().makespan_ns())
}

#[test]
fn from_device_to_device_in_one_queue() {
    let driver = driver();
    let a = driver.device(options("A")).unwrap();
    let b = driver.device(options("B")).unwrap();
    // x lies on B and is copied to A, the sum to B. Each: 100 + 24 out, 100 + 48 in.
    assert_eq!(run_halves([a.clone(), b], &a), (2, 0, 2 * (124 + 148)));
}

#[test]
fn from_and_to_host_memory_at_the_cost_of_one_end() {
    let driver = driver();
    let a = driver.device(options("A")).unwrap();
    let host = driver.device(SimOptions { shares: Shares::Host, ..options("host") }).unwrap();
    // x lies on the host: 100 + 48 into A, 100 + 24 out of it.
    assert_eq!(run_halves([a.clone(), host], &a), (2, 0, 148 + 124));
    // The same with a host that has no queue.
    let (copies, slow_copies, _) = run_halves([a.clone(), cpu()], &a);
    assert_eq!((copies, slow_copies), (2, 0));
}

#[test]
fn through_host_memory_where_devices_do_not_copy() {
    let driver = driver();
    let slow = |name| {
        let options = SimOptions { slow_copies: true, counts_writes: true, ..options(name) };
        driver.device(options).unwrap()
    };
    let (a, b) = (slow("A"), slow("B"));
    // As between devices, with x written to B before: 100 + 48.
    assert_eq!(run_halves([a.clone(), b.clone()], &a), (2, 2, 148 + 2 * (124 + 148)));
    // Copies with the host are no slow copies: one is written and one is read.
    let (copies, slow_copies, _) = run_halves([a.clone(), cpu()], &a);
    assert_eq!((copies, slow_copies), (2, 0));
    assert_eq!(b.busy().transfer_ns, 0);
}

#[test]
fn shared_memory_is_not_copied() {
    let driver = driver();
    let a = driver.device(options("A")).unwrap();
    let shares = Shares::Device("A".to_owned());
    let b = driver.device(SimOptions { shares, ..options("B") }).unwrap();
    assert_eq!(run_halves([a.clone(), b], &a), (0, 0, 0));
}

#[test]
fn pinned_memory_is_faster() {
    let device = driver().device(options("A")).unwrap();
    let mut backend = device.open(&BackendOptions::default()).unwrap();
    let mut inside = buffer(&*device, &[1.5; 25]);
    let kinds = device.buffer_types();
    let [own, pinned] = [0, 1].map(|at| Arc::clone(&kinds[at]));
    let location =
        |chunk| Location { region: Region::Chunk(chunk), offset_bytes: 0, layout: row(25) };
    let cpu = cpu();
    let mut times = Vec::new();
    for kind in [&cpu.buffer_types()[0], &pinned] {
        let mut outside = Buffer::allocate(kind, 100, Usage::Any).unwrap();
        for (from, to) in [(0, 1), (1, 0)] {
            device.reset_clock();
            let memory = Submission::of_chunks([&mut inside, &mut outside]);
            let transfers = backend.transfers().unwrap();
            assert!(transfers.copies(&*own, &**kind) && transfers.copies(&**kind, &*own));
            transfers.copy(memory, &location(from), &location(to)).unwrap();
            backend.synchronize().unwrap();
            times.push(device.clock_ns());
        }
        assert_eq!(values(&outside, 25), [1.5; 25]);
    }
    // 100 bytes at twice the rate, but for the latency.
    assert_eq!(times, [200, 300, 150, 200]);
    assert_eq!(device.counts().transfers, 4);
}
