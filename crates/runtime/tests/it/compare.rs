//! Copies of a graph's data, and devices compared node by node.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tensoryard_conformance::compare::{Accuracy, compare as judge};
use tensoryard_conformance::data::{MemoryWeights, encode, encode_ids};
use tensoryard_conformance::interpret;
use tensoryard_conformance::oracle::Dense;
use tensoryard_conformance::random_graph::random_graph;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::{DType, Graph, GraphBuilder, Layout, OpKind, Shape, TensorId};
use tensoryard_runtime::exec::{
    CompareError, CompareOptions, CompareReport, Feed, GraphData, NodePair, compare,
};
use tensoryard_runtime::{
    Backend, BackendOptions, BufferType, Device, Input, State, StepOp, Weights, host_buffer_type,
};

use crate::queue::DeviceKind;
use crate::support::{full, without};

const X: [f32; 8] = [1.0, -2.0, 0.5, 3.0, 0.25, 1.0, -1.0, 2.0];

fn finish(make: impl FnOnce(&GraphBuilder)) -> Arc<Graph> {
    let g = GraphBuilder::new("small");
    make(&g);
    Arc::new(g.finish().unwrap())
}

/// A product, an activation, a write into a cache, and what is read of it.
fn small() -> Arc<Graph> {
    finish(|g| {
        let x = g.input("x", DType::F32, [4, 2]);
        let product = g.weight("w", DType::F32, [4, 4]).mul_mat(x).named("product");
        let gelu = product.gelu_erf().named("gelu");
        let ids = g.input("ids", DType::I32, [2]);
        let cache = g.state("cache", DType::F32, [4, 3]);
        let written = cache.set_rows(gelu, ids).named("written");
        let view = written.slice(1, 1, 2).named("view");
        view.add(gelu).named("sum").soft_max(1.0, None).output("p");
    })
}

fn weights() -> MemoryWeights {
    let mut source = MemoryWeights::default();
    let values: Vec<f32> = (0..16).map(|v| (v % 5) as f32 * 0.25 - 0.5).collect();
    let layout = Layout::contiguous(DType::F32, Shape::new(&[4, 4]).unwrap()).unwrap();
    source.insert("w", layout, encode(DType::F32, &values));
    source
}

struct Side {
    device: Arc<dyn Device>,
    backend: Box<dyn Backend>,
    kind: Arc<dyn BufferType>,
}

fn side(options: ReferenceOptions) -> Side {
    let device = options.build();
    let backend = device.open(&BackendOptions::default()).unwrap();
    let kind = Arc::clone(&device.buffer_types()[0]);
    Side { device, backend, kind }
}

/// The small graph with its data on the side.
fn loaded(graph: &Arc<Graph>, side: &Side) -> GraphData {
    let device = &*side.device;
    let weights = Weights::load_on(&weights(), &[graph], device, |_, _| true).unwrap();
    let state = State::create_on(&[graph], device).unwrap();
    let inputs = [Input::f32("x", &X), Input::i32("ids", &[2, 0])];
    GraphData::load(graph, &side.kind, &weights, &state, &inputs).unwrap()
}

fn compare_with(
    options: ReferenceOptions,
    how: &CompareOptions<'_>,
    each: impl FnMut(&NodePair<'_>) -> ControlFlow<()>,
) -> Result<CompareReport, CompareError> {
    let (mut a, mut b) = (side(full("A")), side(options));
    let mut data = loaded(&small(), &a);
    compare(&mut data, &mut *a.backend, &mut *b.backend, &b.kind, how, each)
}

fn go_on(_: &NodePair<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn names(report: &CompareReport) -> Vec<&str> {
    report.nodes.iter().map(|node| node.name.as_str()).collect()
}

fn id(graph: &Graph, name: &str) -> TensorId {
    graph.ids().find(|&id| graph.tensor(id).name == name).unwrap()
}

#[test]
fn equal_devices_agree_at_every_node_and_views_are_not_reported() {
    for feed in [Feed::OwnResults, Feed::ReferenceInputs] {
        let how = CompareOptions { feed, nodes: None };
        let mut seen = Vec::new();
        let report = compare_with(full("B"), &how, |pair| {
            assert_eq!(pair.reference, pair.other);
            seen.push((pair.index, pair.op));
            ControlFlow::Continue(())
        });
        let report = report.unwrap();
        assert_eq!(names(&report), ["product", "gelu", "written", "sum", "p"]);
        assert_eq!(
            seen,
            [(0, "mul_mat"), (1, "unary"), (2, "set_rows"), (3, "binary"), (4, "soft_max")]
        );
        assert!(report.nodes.iter().all(|node| node.distance == Default::default()));
        assert!(report.first_beyond(0.0).is_none() && !report.stopped);
    }
}

#[test]
fn the_values_are_those_of_the_graph() {
    let mut a = side(full("A"));
    let graph = small();
    let mut data = loaded(&graph, &a);
    for node in graph.live_nodes() {
        data.compute(&mut *a.backend, node).unwrap();
    }
    let f32s = |name: &str| -> Vec<f32> {
        let bytes = data.read(id(&graph, name)).unwrap();
        bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    };
    // Row r of the weight by column c of the input.
    let w: Vec<f32> = (0..16).map(|v| (v % 5) as f32 * 0.25 - 0.5).collect();
    for (at, value) in f32s("product").into_iter().enumerate() {
        let (c, r) = (at / 4, at % 4);
        let wanted: f32 = (0..4).map(|k| w[r * 4 + k] * X[c * 4 + k]).sum();
        assert!((value - wanted).abs() < 1e-6, "{at}: {value} for {wanted}");
    }
    let (gelu, cache) = (f32s("gelu"), f32s("written"));
    assert_eq!(cache[8..12], gelu[..4]);
    assert_eq!(cache[..4], gelu[4..]);
    assert_eq!(cache[4..8], [0.0; 4]);
    assert_eq!(f32s("view"), cache[4..]);
    for (at, sum) in f32s("sum").into_iter().enumerate() {
        assert_eq!(sum, cache[4 + at] + gelu[at]);
    }
    let p = f32s("p");
    assert!((p[..4].iter().sum::<f32>() - 1.0).abs() < 1e-6);
}

/// Adds one to the first value of every activation.
fn wrong_activation(op: &StepOp, values: &mut [f64]) {
    if let StepOp::Op(op) = op
        && op.kind() == OpKind::Unary
    {
        values[0] += 1.0;
    }
}

fn nan_in_sum(op: &StepOp, values: &mut [f64]) {
    if let StepOp::Op(op) = op
        && op.kind() == OpKind::Binary
    {
        values[5] = f64::NAN;
    }
}

#[test]
fn a_fault_is_found_at_its_node() {
    let faulty = || ReferenceOptions { fault: Some(wrong_activation), ..full("B") };
    let own = compare_with(faulty(), &CompareOptions::default(), go_on).unwrap();
    let first = own.first_beyond(1e-12).unwrap();
    assert_eq!((first.index, first.name.as_str(), first.op), (1, "gelu", "unary"));
    assert!((first.distance.max_abs - 1.0).abs() < 1e-6);
    // What comes of it differs, too.
    assert!(own.nodes[1..].iter().all(|node| node.distance.nmse > 1e-6));
    assert_eq!(own.nodes[0].distance.nmse, 0.0);

    // Fed the reference's values, the others are innocent.
    let how = CompareOptions { feed: Feed::ReferenceInputs, nodes: None };
    let fed = compare_with(faulty(), &how, go_on).unwrap();
    for node in &fed.nodes {
        assert_eq!(node.distance.nmse > 0.0, node.name == "gelu", "{node:?}");
    }
}

#[test]
fn the_first_nan_is_told() {
    let faulty = ReferenceOptions { fault: Some(nan_in_sum), ..full("B") };
    let report = compare_with(faulty, &CompareOptions::default(), go_on).unwrap();
    let first = report.first_beyond(1.0).unwrap();
    assert_eq!((first.name.as_str(), first.distance.first_nan), ("sum", Some(5)));
    assert_eq!(first.distance.max_abs, 0.0);
}

#[test]
fn only_the_nodes_asked_for_are_reported_up_to_the_last() {
    let how = CompareOptions { nodes: Some(&["sum", "gelu"]), ..CompareOptions::default() };
    // What computes nothing after "sum" does not matter.
    let report = compare_with(without("B", &[OpKind::SoftMax]), &how, go_on).unwrap();
    assert_eq!(names(&report), ["gelu", "sum"]);
    assert_eq!(report.nodes[1].index, 3);
    let none = CompareOptions { nodes: Some(&[]), ..CompareOptions::default() };
    assert_eq!(compare_with(full("B"), &none, go_on).unwrap(), CompareReport::default());
    for unknown in ["view", "x", "w", "nothing"] {
        let nodes = ["gelu", unknown];
        let how = CompareOptions { nodes: Some(&nodes), ..CompareOptions::default() };
        let error = compare_with(full("B"), &how, go_on).unwrap_err();
        assert_eq!(error.to_string(), format!("graph \"small\" computes no {unknown:?}"));
    }
}

#[test]
fn the_callback_stops_the_comparison() {
    let mut calls = 0;
    let report = compare_with(full("B"), &CompareOptions::default(), |pair| {
        calls += 1;
        if pair.name == "gelu" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = report.unwrap();
    assert_eq!((calls, names(&report), report.stopped), (2, vec!["product", "gelu"], true));
}

#[test]
fn a_node_that_a_device_does_not_run_is_named() {
    let options = without("B", &[OpKind::SetRows]);
    let error = compare_with(options, &CompareOptions::default(), go_on).unwrap_err();
    assert!(error.to_string().starts_with("node \"written\": B: step \"written\""), "{error}");
}

#[test]
fn a_graph_without_data_is_an_error() {
    let graph = small();
    let mut a = side(full("A"));
    let mut empty = GraphData::new(&graph).unwrap();
    let wanted = "graph \"small\" has no data for \"x\"";
    assert_eq!(empty.copy_to(&a.kind).unwrap_err().to_string(), wanted);
    let error = empty.compute(&mut *a.backend, id(&graph, "product")).unwrap_err();
    assert!(matches!(error, CompareError::NoData { .. }), "{error}");
    let mut b = side(full("B"));
    let how = CompareOptions::default();
    let error = compare(&mut empty, &mut *a.backend, &mut *b.backend, &b.kind, &how, go_on);
    assert_eq!(error.unwrap_err().to_string(), wanted);

    // Leaves that are not given.
    let (none, state) = (Weights::default(), State::create_on(&[&graph], &*a.device).unwrap());
    let error = GraphData::load(&graph, &a.kind, &none, &state, &[]).unwrap_err();
    assert_eq!(error.to_string(), wanted);
    let inputs = [Input::f32("x", &X)];
    let error = GraphData::load(&graph, &a.kind, &none, &state, &inputs).unwrap_err();
    assert_eq!(error.to_string(), "graph \"small\" has no data for \"w\"");
    let short = [Input::f32("x", &X[1..])];
    let error = GraphData::load(&graph, &a.kind, &none, &state, &short).unwrap_err();
    assert_eq!(error.to_string(), "\"x\", offset 0: 28 bytes given, wanted 32");
}

#[test]
fn a_copy_has_memory_of_its_own_for_every_node() {
    let graph = finish(|g| {
        let x = g.input("x", DType::F32, [8]);
        // Read by several: copied once.
        let twice = x.scale(2.0, 0.0).named("twice");
        let sum = twice.add(twice).named("sum");
        sum.reshape([4, 2])
            .named("view")
            .slice(1, 1, 1)
            .named("inner")
            .add(twice.slice(0, 0, 4).named("part"))
            .output("y");
        _ = x.scale(3.0, 0.0).named("unread");
    });
    let mut a = side(full("A"));
    let (weights, state) = (Weights::default(), State::default());
    let inputs = [Input::f32("x", &X)];
    let mut data = GraphData::load(&graph, &a.kind, &weights, &state, &inputs).unwrap();
    for node in graph.live_nodes() {
        data.compute(&mut *a.backend, node).unwrap();
    }
    let copy = data.copy_to(host_buffer_type()).unwrap();
    assert!(Arc::ptr_eq(copy.graph(), &graph));
    assert_eq!(copy.tensors().counters().copies, 4);
    assert!(copy.key(id(&graph, "unread")).is_err());
    let mut ranges = Vec::new();
    for node in graph.ids().filter(|&id| graph.is_live(id)) {
        assert_eq!(copy.read(node).unwrap(), data.read(node).unwrap());
        let slot = copy.tensors().slot(copy.key(node).unwrap()).unwrap();
        assert_eq!((slot.name(), slot.layout()), (&*graph.tensor(node).name, graph.layout(node)));
        let place = slot.place().unwrap();
        if graph.root(node) == node {
            ranges.push((place.buffer, place.offset_bytes, slot.layout().extent_bytes()));
        } else {
            let root = copy.tensors().slot(copy.key(graph.root(node)).unwrap()).unwrap();
            let base = root.place().unwrap();
            assert_eq!(place.buffer, base.buffer);
            assert_eq!(place.offset_bytes, base.offset_bytes + graph.root_offset(node));
        }
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1);
    }
}

#[test]
fn a_copy_that_cannot_be_had_frees_everything() {
    let a = side(full("A"));
    let data = loaded(&small(), &a);
    for fail_at in 0..3 {
        // Two tensors a buffer at most.
        let kind = DeviceKind { fail_at, max_size: 64, ..DeviceKind::new("tight") };
        let alive = Arc::clone(&kind.alive);
        let error = data.copy_to(&(Arc::new(kind) as _)).unwrap_err();
        assert!(error.to_string().contains("could not be allocated"), "{error}");
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
    let kind: Arc<dyn BufferType> =
        Arc::new(DeviceKind { max_size: 32, ..DeviceKind::new("tiny") });
    let error = data.copy_to(&kind).unwrap_err();
    assert!(error.to_string().contains("the largest buffer of tiny, 32 bytes"), "{error}");
    let kind: Arc<dyn BufferType> =
        Arc::new(DeviceKind { max_size: 64, ..DeviceKind::new("enough") });
    let copy = data.copy_to(&kind).unwrap();
    assert!(copy.tensors().buffers().len() > 2);
}

#[test]
fn an_operand_that_lies_where_its_node_writes_is_read_first() {
    let graph = finish(|g| {
        let state = g.state("s", DType::F32, [6]);
        state.slice(0, 0, 4).copy_into(state.slice(0, 2, 4)).named("moved").output("y");
    });
    let mut a = side(full("A"));
    let state = State::create_on(&[&graph], &*a.device).unwrap();
    let mut data = GraphData::load(&graph, &a.kind, &Weights::default(), &state, &[]).unwrap();
    let s = id(&graph, "s");
    data.write(s, &encode(DType::F32, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])).unwrap();
    for node in graph.live_nodes() {
        data.compute(&mut *a.backend, node).unwrap();
    }
    assert_eq!(data.read(s).unwrap(), encode(DType::F32, &[0.0, 1.0, 0.0, 1.0, 2.0, 3.0]));
}

#[test]
fn random_graphs_node_by_node_give_the_bits_of_the_oracle() {
    let mut a = side(full("A"));
    for seed in 0..300 {
        let random = random_graph(seed, 3 + seed as usize % 25);
        let graph = Arc::new(random.graph);
        let leaf = |name: &str| {
            let given = random.inputs.iter().chain(&random.states).find(|(leaf, _)| leaf == name);
            given
                .map(|(_, bytes)| bytes.clone())
                .or_else(|| random.weights.bytes(name).map(<[u8]>::to_vec))
        };
        let expected = interpret(&graph, leaf).unwrap();
        let mut data = GraphData::new(&graph).unwrap();
        data.allocate(&a.kind).unwrap();
        for &id in graph.leaves() {
            data.write(id, &leaf(&graph.tensor(id).name).unwrap()).unwrap();
        }
        for node in graph.live_nodes() {
            data.compute(&mut *a.backend, node).unwrap();
        }
        for node in graph.ids().filter(|&id| graph.is_live(id)) {
            let layout = graph.layout(node);
            let dense = Layout::contiguous(layout.dtype(), layout.shape()).unwrap();
            let actual = Dense::gather(&dense, &data.read(node).unwrap());
            let expected = expected.tensor(&graph, node).unwrap();
            let complaint =
                judge(&expected.data, &actual.data).judge(Accuracy::Exact, layout.dtype());
            assert_eq!(complaint, None, "seed {seed}, {node}\n{}", graph.dump());
        }
    }
}

#[test]
fn integers_are_compared_exactly() {
    let graph = finish(|g| {
        let table = g.input("table", DType::I32, [1, 2]);
        table.cont().named("ids").output("y");
    });
    let (mut a, mut b) = (side(full("A")), side(full("B")));
    let big = [16_777_217, -16_777_217];
    let inputs = [Input { name: "table", bytes: &encode_ids(&big) }];
    let (weights, state) = (Weights::default(), State::default());
    let mut data = GraphData::load(&graph, &a.kind, &weights, &state, &inputs).unwrap();
    let how = CompareOptions::default();
    let report = compare(&mut data, &mut *a.backend, &mut *b.backend, &b.kind, &how, |pair| {
        assert_eq!(pair.other, [16_777_217.0, -16_777_217.0]);
        ControlFlow::Continue(())
    });
    assert_eq!(report.unwrap().nodes.len(), 1);
}
