//! The sample device at work: its ops, its memory, graphs on it and the CPU, and how long its
//! library stays.

use std::sync::Arc;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::{SuiteOptions, run_suite};
use tensoryard_graph::ops::{BinaryKind, UnaryKind};
use tensoryard_graph::{DType, Graph, GraphBuilder, Layout, OpKind, Shape};
use tensoryard_runtime::{
    BackendOptions, Buffer, DeviceError, Input, MemoryError, RunError, Session, SessionOptions,
    Usage, Weights,
};

use crate::support::registry;

#[test]
fn every_op_that_the_device_claims_agrees_with_the_oracle() {
    let device = registry().select("sample").unwrap().device;
    let ops = vec![OpKind::Binary, OpKind::Scale, OpKind::MulMat, OpKind::View];
    let mut passed = 0;
    for (filter, one_in) in
        [("binary/add", 1), ("binary/mul", 1), ("scale/", 1), ("mul_mat/f32", 6)]
    {
        let filter = Some(filter.to_owned());
        let options = SuiteOptions { filter, one_in, ops: ops.clone(), ..SuiteOptions::default() };
        let report = run_suite(&device, &options);
        report.assert_ok();
        passed += report.passed;
    }
    assert!(passed > 200, "only {passed} cases ran");
}

/// `tanh(weight · x + bias) · 3 − 1`, of which the sample device computes all but tanh.
fn graph() -> Arc<Graph> {
    let g = GraphBuilder::new("mixed");
    let x = g.input("x", DType::F32, [3, 2]);
    let product = g.weight("weight", DType::F32, [3, 2]).mul_mat(x);
    let biased = product.add(g.weight("bias", DType::F32, [2]));
    biased.unary(UnaryKind::Tanh).scale(3.0, -1.0).output("y");
    Arc::new(g.finish().unwrap())
}

fn weights() -> MemoryWeights {
    let mut weights = MemoryWeights::default();
    let mut insert = |name, dims: &[usize], values: &[f32]| {
        let layout = Layout::contiguous(DType::F32, Shape::new(dims).unwrap()).unwrap();
        weights.insert(name, layout, encode(DType::F32, values));
    };
    insert("weight", &[3, 2], &[0.1, 0.2, 0.3, -0.4, 0.5, -0.6]);
    insert("bias", &[2], &[0.25, -0.5]);
    weights
}

fn open(devices: &str) -> Session {
    let selected = registry().select_list(devices).unwrap();
    let graph = graph();
    let weights = Weights::load_on(&weights(), &[&graph], &*selected[0].device, |_, _| true);
    let weights = Arc::new(weights.unwrap());
    Session::open(&selected, weights, &[&graph], SessionOptions::default()).unwrap()
}

/// By hand: the products of each row of weights with each column of x.
fn expected() -> Vec<f32> {
    let columns = [[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]];
    let rows = [([0.1, 0.2, 0.3], 0.25), ([-0.4, 0.5, -0.6], -0.5)];
    let value = |x: &[f64; 3], (w, bias): &([f64; 3], f64)| {
        let product: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
        ((product + bias).tanh() * 3.0 - 1.0) as f32
    };
    columns.iter().flat_map(|x| rows.iter().map(move |row| value(x, row))).collect()
}

fn assert_right(session: &mut Session) {
    let x = [1.0, 2.0, 3.0, -1.0, 0.5, 0.0];
    let graph = graph();
    let outputs = session.run(&graph, &[Input::f32("x", &x)]).unwrap();
    let found = outputs.f32("y").unwrap();
    for (found, expected) in found.iter().zip(expected()) {
        assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
    }
    assert_eq!(found.len(), 4);
}

#[test]
fn a_graph_over_the_cpu_and_the_loaded_device_gives_the_right_result() {
    let mut session = open("sample,cpu");
    let plan = session.plan(&graph()).unwrap();
    let devices: Vec<usize> = plan.splits.iter().map(|split| split.device.0).collect();
    assert_eq!(devices, [0, 1, 0], "tanh is not for the sample device\n{}", plan.dump());
    assert_right(&mut session);
    assert_right(&mut session);
}

#[test]
fn the_library_stays_while_something_of_it_lives() {
    // No driver and no registry outlives `open`.
    let mut session = open("sample,cpu");
    assert_right(&mut session);
    let device = registry().select("sample").unwrap().device;
    let kind = Arc::clone(&device.buffer_types()[0]);
    drop(device);
    let mut buffer = Buffer::allocate(&kind, 16, Usage::Any).unwrap();
    drop(kind);
    buffer.memory_mut().write_bytes(4, &[1, 2, 3, 4]).unwrap();
    let mut bytes = [0; 4];
    buffer.memory().read_bytes(4, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4]);
    let device = registry().select("sample").unwrap().device;
    let backend = device.open(&BackendOptions::default()).unwrap();
    drop(device);
    let program = backend.compile(&[]).unwrap();
    drop(backend);
    assert!(format!("{program:?}").contains("DynamicProgram"));
    drop(program);
}

#[test]
fn memory_of_the_library_is_read_and_written_by_ranges_and_strides() {
    let registry = registry();
    let index = registry.named_devices().position(|(name, _)| name == "sample:0").unwrap();
    let mut buffer = registry.allocate(index, 64).unwrap();
    assert!(buffer.memory().host().is_none());
    buffer.clear(7).unwrap();
    let plain = Layout::contiguous(DType::F16, Shape::new(&[2, 3]).unwrap()).unwrap();
    buffer.memory_mut().write_tensor(8, &plain, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
    let mut bytes = [0; 12];
    let turned = plain.permute([1, 0, 2, 3]).unwrap();
    buffer.memory().read_tensor(8, &turned, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12]);
    buffer.memory_mut().write_tensor(8, &turned, &[0; 12]).unwrap();
    buffer.memory_mut().fill(20, 2, 9).unwrap();
    let mut all = [0; 64];
    buffer.memory().read_bytes(0, &mut all).unwrap();
    assert_eq!(
        (&all[6..10], &all[18..24]),
        ([7, 7, 0, 0].as_slice(), [0, 0, 9, 9, 7, 7].as_slice())
    );
    let out = |result: Result<(), MemoryError>| match result.unwrap_err() {
        MemoryError::OutOfRange { offset, bytes, size } => (offset, bytes, size),
        other => panic!("{other}"),
    };
    assert_eq!(out(buffer.memory_mut().write_bytes(60, &[0; 8])), (60, 8, 64));
    assert_eq!(out(buffer.memory().read_bytes(usize::MAX, &mut [0; 2])), (usize::MAX, 2, 64));
    assert_eq!(out(buffer.memory_mut().fill(65, 0, 0)), (65, 0, 64));
    let empty = registry.allocate(index, 0).unwrap();
    assert_eq!(empty.size(), 0);
    let error = registry.allocate(index, 65 << 20).unwrap_err().to_string();
    assert!(error.contains("68157440 bytes exceed the largest buffer of sample/memory"), "{error}");
}

#[test]
fn what_the_device_lacks_is_told_in_its_own_words() {
    let selected = registry().select_list("sample").unwrap();
    let g = GraphBuilder::new("division");
    let x = g.input("x", DType::F32, [3]);
    x.binary(BinaryKind::Div, x).output("y");
    let graph = Arc::new(g.finish().unwrap());
    let options = SessionOptions::default();
    let opened = Session::open(&selected, Arc::new(Weights::default()), &[&graph], options);
    let error = opened.err().unwrap().to_string();
    assert!(error.contains("Sample: no kernel for binary div"), "{error}");
    let error = selected[0].device.open(&BackendOptions { threads: 2 }).err().unwrap().to_string();
    assert_eq!(error, "Sample: threads is 2, wanted none: threads are for CPUs");
}

#[test]
fn the_abort_signal_reaches_a_kernel_of_the_library() {
    let selected = registry().select_list("sample").unwrap();
    let g = GraphBuilder::new("long");
    let x = g.input("x", DType::F32, [2048, 2048]);
    x.mul_mat(x).output("y");
    let graph = Arc::new(g.finish().unwrap());
    let options = SessionOptions::default();
    let mut session =
        Session::open(&selected, Arc::new(Weights::default()), &[&graph], options).unwrap();
    let signal = session.abort_signal();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        signal.abort();
    });
    // Minutes of work, if nobody looked at the flag.
    let error = session.run(&graph, &[Input::f32("x", &vec![0.0; 2048 * 2048])]).err().unwrap();
    assert!(matches!(error, RunError::Device(DeviceError::Cancelled)), "{error}");
    stopper.join().unwrap();
    let mut session = open("sample,cpu");
    assert_right(&mut session);
}
