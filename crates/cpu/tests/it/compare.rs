//! The CPU beside itself and beside the oracle, node by node.

use std::ops::ControlFlow;
use std::sync::Arc;

use tensoryard_conformance::compare::tolerance;
use tensoryard_conformance::random_graph::random_graph;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_graph::{DType, GraphBuilder};
use tensoryard_runtime::exec::{CompareOptions, Feed, GraphData, compare};
use tensoryard_runtime::{BackendOptions, Device, Input, State, Weights, host_buffer_type};

#[test]
fn instruction_sets_agree_at_every_node() {
    let g = GraphBuilder::new("levels");
    let x = g.input("x", DType::F32, [48, 7]);
    let table = g.input("table", DType::F16, [48, 33]);
    let product = table.mul_mat(x.norm(1e-5)).named("product");
    product.gelu_erf().soft_max(0.5, None).output("p");
    let graph = Arc::new(g.finish().unwrap());
    let x: Vec<f32> = (0..48 * 7).map(|v| (v * 37 % 101) as f32 / 50.0 - 1.0).collect();
    // 1.0, 1.0009765625 and so on in f16.
    let table: Vec<u16> = (0..48 * 33).map(|v| 0x3c00 + (v * 13 % 512) as u16).collect();
    let inputs = [Input::f32("x", &x), Input::new("table", &table)];
    let (weights, state) = (Weights::default(), State::default());
    let open = |isa: Isa| CpuDevice::new(isa).open(&BackendOptions { threads: 1 }).unwrap();
    let mut scalar = open(Isa::scalar());
    for isa in Isa::available() {
        let mut backend = open(isa);
        let kind = host_buffer_type();
        let mut data = GraphData::load(&graph, kind, &weights, &state, &inputs).unwrap();
        let how = CompareOptions::default();
        let report = compare(&mut data, &mut *scalar, &mut *backend, kind, &how, |_| {
            ControlFlow::Continue(())
        });
        let report = report.unwrap();
        assert_eq!(report.nodes.len(), 4);
        let worst = report.first_beyond(tolerance(DType::F32).nmse);
        assert!(worst.is_none(), "{isa}: {worst:?}");
        if isa == Isa::scalar() {
            assert!(report.nodes.iter().all(|node| node.distance.max_abs == 0.0));
        }
    }
}

#[test]
fn every_node_of_random_graphs_is_as_the_oracle_has_it() {
    let device: Arc<dyn Device> = ReferenceOptions::new("oracle").build();
    let kind = Arc::clone(&device.buffer_types()[0]);
    let mut oracle = device.open(&BackendOptions::default()).unwrap();
    let cpu = CpuDevice::new(Isa::detect());
    let mut backend = cpu.open(&BackendOptions { threads: 1 }).unwrap();
    let mut nodes = 0;
    for seed in 0..150 {
        let random = random_graph(seed, 4 + seed as usize % 20);
        let graph = Arc::new(random.graph);
        let mut data = GraphData::new(&graph).unwrap();
        data.allocate(&kind).unwrap();
        for &leaf in graph.leaves() {
            let name = &graph.tensor(leaf).name;
            let given = random.inputs.iter().chain(&random.states).find(|(known, _)| known == name);
            let bytes = match given {
                Some((_, bytes)) => bytes,
                None => random.weights.bytes(name).unwrap(),
            };
            data.write(leaf, bytes).unwrap();
        }
        let how = CompareOptions { feed: Feed::ReferenceInputs, nodes: None };
        let report =
            compare(&mut data, &mut *oracle, &mut *backend, host_buffer_type(), &how, |pair| {
                let same_nan = |(a, b): (&f64, &f64)| a.is_nan() == b.is_nan();
                assert!(pair.reference.iter().zip(pair.other).all(same_nan), "{}", pair.name);
                let limit = 100.0 * tolerance(pair.layout.dtype()).nmse;
                assert!(
                    pair.distance.nmse <= limit,
                    "seed {seed}: {} {}: {:?}\n{}",
                    pair.op,
                    pair.name,
                    pair.distance,
                    graph.dump()
                );
                ControlFlow::Continue(())
            });
        nodes += report.unwrap_or_else(|error| panic!("seed {seed}: {error}")).nodes.len();
    }
    assert!(nodes > 500, "{nodes}");
}
