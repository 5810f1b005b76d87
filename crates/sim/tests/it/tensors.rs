//! Tensors placed by hand in simulated memory, moved by queues that take their time, and a
//! simulated device compared with the one that computes for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tensoryard_graph::{DType, GraphBuilder, Layout, Shape};
use tensoryard_runtime::exec::{CompareOptions, Feed, GraphData, compare};
use tensoryard_runtime::tensors::{CopyPath, TensorKey, Tensors};
use tensoryard_runtime::{
    Backend, BackendOptions, BufferType, Device, Input, State, Usage, Weights, host_buffer_type,
};
use tensoryard_sim::SimOptions;

use crate::support::{cpu, driver, sim};

fn slow(name: &str) -> SimOptions {
    let (delay, jitter) = (Duration::from_micros(100), Duration::from_micros(200));
    SimOptions { delay, jitter, ..SimOptions::named(name) }
}

fn open(device: &Arc<impl Device + ?Sized>) -> Box<dyn Backend> {
    device.open(&BackendOptions::default()).unwrap()
}

fn tensor(kind: &Arc<dyn BufferType>) -> (Tensors, TensorKey) {
    let mut tensors = Tensors::new();
    let layout = Layout::contiguous(DType::F32, Shape::new(&[64]).unwrap()).unwrap();
    let t = tensors.add("t", layout);
    tensors.place_all(kind, Usage::Any).unwrap();
    (tensors, t)
}

#[test]
fn copies_between_slow_queues_are_never_torn() {
    for slow_copies in [false, true] {
        let driver = driver();
        let a = driver.device(SimOptions { slow_copies, ..slow("A") }).unwrap();
        let b = driver.device(SimOptions { slow_copies, ..slow("B") }).unwrap();
        let (mut first, mut second) = (open(&a), open(&b));
        let (mut source, src) = tensor(&a.buffer_types()[0]);
        let (mut target, dst) = tensor(&b.buffer_types()[0]);
        for round in 0..50 {
            source.set_async(&mut *first, src, 0, &[round; 256]).unwrap();
            let path = target
                .copy_from_async(&mut source, &mut *first, Some(&mut *second), src, dst)
                .unwrap();
            let wanted = if slow_copies { CopyPath::ThroughHost } else { CopyPath::OnDevice };
            assert_eq!(path, wanted);
            source.fill_async(&mut *first, src, 0, 256, 255).unwrap();
            let read = target.get_async(&mut *second, dst, 0, 256).unwrap();
            target.fill_async(&mut *second, dst, 0, 256, 254).unwrap();
            assert_eq!(read.wait().unwrap(), [round; 256]);
        }
        assert_eq!(target.counters().slow_copies, if slow_copies { 50 } else { 0 });
    }
}

#[test]
fn pinned_memory_is_host_memory_to_tensors() {
    let device = sim(slow("A"));
    let mut queue = open(&device);
    let pinned = device.buffer_types().iter().find(|kind| kind.is_host()).unwrap();
    let (mut near, src) = tensor(pinned);
    let (mut far, dst) = tensor(&device.buffer_types()[0]);
    assert!(near.buffers()[0].base().is_some());
    near.set(src, 0, &[7; 256]).unwrap();
    assert_eq!(far.copy_from(&near, src, dst).unwrap(), CopyPath::FromHost);
    far.fill_async(&mut *queue, dst, 4, 4, 1).unwrap();
    assert_eq!(near.copy_from(&far, dst, src).unwrap(), CopyPath::ToHost);
    assert_eq!(near.read(src).unwrap()[..12], [7, 7, 7, 7, 1, 1, 1, 1, 7, 7, 7, 7]);
    assert_eq!(far.counters().slow_copies + near.counters().slow_copies, 0);
}

#[test]
fn a_simulated_device_computes_what_its_host_does_at_every_node() {
    let g = GraphBuilder::new("nodes");
    let x = g.input("x", DType::F32, [32, 5]);
    let cache = g.state("cache", DType::F32, [32, 8]);
    let cache = cache.set_rows(x.norm(1e-5), g.input("ids", DType::I32, [5]));
    cache.slice(1, 2, 5).add(x).gelu_erf().soft_max(1.0, None).output("y");
    let graph = Arc::new(g.finish().unwrap());
    let host = cpu();
    let device = sim(slow("A"));
    let (mut reference, mut other) = (open(&host), open(&device));
    let x: Vec<f32> = (0..160u8).map(|v| f32::from(v % 23) - 11.0).collect();
    let inputs = [Input::f32("x", &x), Input::i32("ids", &[7, 3, 2, 5, 4])];
    let state = State::create_on(&[&graph], &*host).unwrap();
    for feed in [Feed::OwnResults, Feed::ReferenceInputs] {
        let weights = Weights::default();
        let mut data =
            GraphData::load(&graph, host_buffer_type(), &weights, &state, &inputs).unwrap();
        let how = CompareOptions { feed, nodes: None };
        let kind = &device.buffer_types()[0];
        let report = compare(&mut data, &mut *reference, &mut *other, kind, &how, |pair| {
            assert_eq!(pair.reference, pair.other, "{}", pair.name);
            ControlFlow::Continue(())
        });
        assert_eq!(report.unwrap().nodes.len(), 5);
    }
}
