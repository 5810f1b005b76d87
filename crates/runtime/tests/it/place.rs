//! Every rule of placement, with its reason.

use std::sync::Arc;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::graphs::build;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind, Tensor};
use tensoryard_runtime::plan::{Pin, Reason, Residence, Stage, placement_stages};
use tensoryard_runtime::{DeviceIndex, Plan, PlanError, PlanOptions};

use crate::policy::find;
use crate::support::{Bench, full, only, without};

const A: Option<DeviceIndex> = Some(DeviceIndex(0));
const B: Option<DeviceIndex> = Some(DeviceIndex(1));

fn weights_of(graph: &Graph) -> MemoryWeights {
    let mut weights = MemoryWeights::default();
    for id in graph.live_leaves(tensoryard_graph::Origin::Weight) {
        let desc = graph.tensor(id);
        let values = vec![0.5; desc.layout.shape().elements()];
        weights.insert(desc.name.clone(), desc.layout, encode(desc.layout.dtype(), &values));
    }
    weights
}

/// Devices with all weights and all state on one of them each.
fn bench(graph: &Graph, devices: Vec<ReferenceOptions>, weights: usize, state: usize) -> Bench {
    let devices: Vec<_> = devices.into_iter().map(ReferenceOptions::build).collect();
    Bench::open(&[graph], &devices, &weights_of(graph), weights, state).unwrap()
}

fn relu(x: Tensor<'_>) -> Tensor<'_> {
    x.unary(UnaryKind::Relu)
}

/// Device and reason of the tensor of a name.
fn placed(plan: &Plan, name: &str) -> (Option<DeviceIndex>, Reason) {
    let graph = &plan.graph;
    let id = graph.ids().find(|&id| graph.tensor(id).name == name).unwrap();
    (plan.placement.device(id), plan.placement.reason(id))
}

fn error(bench: &Bench, graph: &Arc<Graph>, pins: Vec<Pin>) -> String {
    let options = PlanOptions { pins, ..PlanOptions::default() };
    bench.plan_with(graph, &options).unwrap_err().to_string()
}

/// relu, product with a weight, relu: the middle one is drawn by its weight.
fn sandwich() -> Arc<Graph> {
    build("placed", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let before = relu(x).named("before");
        let product = g.weight("w", DType::F32, [4, 4]).mul_mat(before).named("product");
        relu(product).named("after").output("after");
    })
}

#[test]
fn a_weight_draws_its_op_and_neighbours_follow() {
    let graph = sandwich();
    let plan = bench(&graph, vec![full("A"), full("B")], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "x"), (B, Reason::Input));
    assert_eq!(placed(&plan, "w"), (A, Reason::InMemory));
    assert_eq!(placed(&plan, "product"), (A, Reason::Weight(0)));
    assert_eq!(placed(&plan, "after"), (A, Reason::GrownDown));
    assert_eq!(placed(&plan, "before"), (A, Reason::GrownUp));
    assert!(plan.dump().contains("because weight 0"), "{}", plan.dump());
}

#[test]
fn placement_is_shown_after_each_stage() {
    let graph = sandwich();
    let bench = bench(&graph, vec![full("A"), full("B")], 0, 0);
    let residence = Residence::new(&graph, &bench.weights, &bench.state).unwrap();
    let after = find(&graph, "after");
    let pins = vec![Pin { tensor: after, device: DeviceIndex(1) }];
    let options = PlanOptions { pins, ..PlanOptions::default() };
    let stages = placement_stages(&graph, &bench.devices, &residence, &options).unwrap();
    let names = ["after", "x", "w", "product", "before"];
    let placed: Vec<(Stage, Vec<&str>)> = stages
        .iter()
        .map(|(stage, placement)| {
            let is_placed = |name: &&str| placement.device(find(&graph, name)).is_some();
            (*stage, names.into_iter().filter(is_placed).collect())
        })
        .collect();
    let expected = [
        (Stage::Pins, &names[..1]),
        (Stage::Memory, &names[..3]),
        (Stage::Weights, &names[..4]),
        (Stage::Growth, &names[..]),
        (Stage::Upgrades, &names[..]),
        (Stage::Followers, &names[..]),
    ];
    assert_eq!(placed, expected.map(|(stage, names)| (stage, names.to_vec())));
    let last = &stages.last().unwrap().1;
    assert_eq!(*last, bench.plan_with(&graph, &options).unwrap().placement);
    // Up to the stage that fails: nobody runs the relu that is left open.
    let lacking = vec![without("A", &[OpKind::Unary]), without("B", &[OpKind::Unary])];
    let bench = super::place::bench(&graph, lacking, 0, 0);
    let residence = Residence::new(&graph, &bench.weights, &bench.state).unwrap();
    let options = PlanOptions::default();
    let stages = placement_stages(&graph, &bench.devices, &residence, &options).unwrap();
    assert_eq!(stages.last().map(|(stage, _)| *stage), Some(Stage::Growth));
    assert!(bench.plan_unverified(&graph, &options).is_err());
}

#[test]
fn the_last_device_grows_only_into_what_is_left() {
    let graph = sandwich();
    let plan = bench(&graph, vec![full("A"), full("B")], 1, 0).plan(&graph);
    assert_eq!(placed(&plan, "product"), (B, Reason::Weight(0)));
    assert_eq!(placed(&plan, "after"), (B, Reason::GrownDown));
    assert_eq!(placed(&plan, "before"), (B, Reason::GrownUp));
    // Growth of device A is stopped by a node on the last device.
    let graph = build("placed", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let on_a = g.weight("wa", DType::F32, [4, 4]).mul_mat(x).named("on_a");
        let pinned = relu(on_a).named("pinned");
        relu(pinned).named("after").output("after");
    });
    let bench = bench(&graph, vec![full("A"), full("B")], 0, 0);
    let pinned = graph.ids().find(|&id| graph.tensor(id).name == "pinned").unwrap();
    let pins = vec![Pin { tensor: pinned, device: DeviceIndex(1) }];
    let options = PlanOptions { pins, fusion: false, ..PlanOptions::default() };
    let plan = bench.plan_with(&graph, &options).unwrap();
    assert_eq!(placed(&plan, "pinned"), (B, Reason::Pinned));
    assert_eq!(placed(&plan, "after"), (B, Reason::GrownDown));
}

#[test]
fn growth_passes_over_what_the_device_lacks() {
    let graph = build("placed", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let product = g.weight("w", DType::F32, [4, 4]).mul_mat(x).named("product");
        relu(product).named("lacking").scale(2.0, 0.0).named("behind").output("behind");
    });
    let devices = vec![without("A", &[OpKind::Unary]), full("B")];
    let plan = bench(&graph, devices, 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "behind"), (A, Reason::GrownDown));
    // B can read nothing of it: A's memory holds the product.
    assert_eq!(placed(&plan, "lacking"), (B, Reason::FirstAble));
}

#[test]
fn an_open_op_goes_where_most_sources_can_be_read() {
    let graph = build("placed", |g| {
        relu(g.input("x", DType::F32, [4, 3])).named("y").output("y");
    });
    let plan = bench(&graph, vec![full("A"), full("B")], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "y"), (B, Reason::MostReadableSources));
    // Both can read it: the first has priority.
    let reader = ReferenceOptions { reads: vec!["B memory".to_owned()], ..full("A") };
    let plan = bench(&graph, vec![reader, full("B")], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "y"), (A, Reason::MostReadableSources));
    let plan = bench(&graph, vec![full("A"), without("B", &[OpKind::Unary])], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "y"), (A, Reason::FirstAble));
}

#[test]
fn an_op_is_raised_to_a_device_that_shares_the_memory() {
    let graph = sandwich();
    let shared =
        |options: ReferenceOptions| ReferenceOptions { memory: "shared".to_owned(), ..options };
    let devices = vec![shared(without("A", &[OpKind::MulMat])), shared(full("B"))];
    let plan = bench(&graph, devices, 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "product"), (B, Reason::Weight(0)));
    assert_eq!(placed(&plan, "after"), (A, Reason::Upgraded));
    assert!(plan.arrivals.is_empty());
}

#[test]
fn an_optional_operand_does_not_draw() {
    let graph = build("placed", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let mask = g.weight("mask", DType::F32, [4, 3]);
        x.soft_max(1.0, Some(mask)).named("y").output("y");
    });
    let plan = bench(&graph, vec![full("A"), full("B")], 0, 0).plan(&graph);
    // Each device can read one source; were the mask to draw, the reason would be its weight.
    assert_eq!(placed(&plan, "y"), (A, Reason::MostReadableSources));
}

#[test]
fn state_is_written_where_it_lies() {
    let graph = build("placed", |g| {
        let x = g.input("x", DType::F32, [4, 2]);
        let ids = g.input("ids", DType::I32, [2]);
        let written = g.state("cache", DType::F32, [4, 8]).set_rows(x, ids).named("written");
        written.slice(1, 0, 2).named("seen").output("seen");
    });
    let plan = bench(&graph, vec![full("A"), full("B")], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "written"), (A, Reason::InMemory));
    assert_eq!(placed(&plan, "seen"), (A, Reason::BaseOfView));
    // The cache is on A, which lacks the op: an error that names tensor, op and memory.
    let lacking = vec![without("A", &[OpKind::SetRows]), full("B")];
    let text = error(&bench(&graph, lacking, 0, 0), &graph, vec![]);
    for part in
        ["set_rows", "\"written\"", "A memory", "A: lacks set_rows", "B: cannot use A memory"]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    // B can use A's memory and has the op.
    let reader = ReferenceOptions { reads: vec!["A memory".to_owned()], ..full("B") };
    let plan = bench(&graph, vec![without("A", &[OpKind::SetRows]), reader], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "written"), (B, Reason::InMemory));
}

#[test]
fn an_op_that_nobody_runs_is_refused_with_all_answers() {
    let graph = sandwich();
    let devices = vec![only("A", &[OpKind::MulMat]), only("B", &[OpKind::MulMat, OpKind::Scale])];
    let text = error(&bench(&graph, devices, 0, 0), &graph, vec![]);
    assert_eq!(text, r#"no device runs unary "before": A: lacks unary; B: lacks unary"#);
}

#[test]
fn a_size_that_a_kernel_lacks_runs_elsewhere() {
    for (columns, device) in [(1024, A), (1025, B), (8448, B)] {
        let graph = build("placed", |g| {
            let x = g.input("x", DType::F32, [columns, 1]);
            x.soft_max(1.0, None).named("y").output("y");
        });
        let short =
            ReferenceOptions { max_row: 1024, reads: vec!["B memory".to_owned()], ..full("A") };
        let plan = bench(&graph, vec![short, full("B")], 0, 0).plan(&graph);
        assert_eq!(placed(&plan, "y").0, device, "{columns}");
        let name = if device == A { "split 0 on A" } else { "split 0 on B" };
        assert!(plan.dump().contains(name), "{}", plan.dump());
    }
}

#[test]
fn pins_hold_or_are_refused() {
    let graph = sandwich();
    let by_name = |name: &str| graph.ids().find(|&id| graph.tensor(id).name == name).unwrap();
    let devices = || vec![full("A"), without("B", &[OpKind::MulMat])];
    let bench = bench(&graph, devices(), 0, 0);
    let pin =
        |name: &str, device: usize| Pin { tensor: by_name(name), device: DeviceIndex(device) };
    let options = PlanOptions { pins: vec![pin("after", 1)], ..PlanOptions::default() };
    let plan = bench.plan_with(&graph, &options).unwrap();
    assert_eq!(placed(&plan, "after"), (B, Reason::Pinned));
    let text = error(&bench, &graph, vec![pin("product", 1)]);
    assert_eq!(text, r#""product" cannot be pinned to B: lacks mul_mat"#);
    let text = error(&bench, &graph, vec![pin("after", 7)]);
    assert_eq!(text, r#""after" cannot be pinned to device 7: there is no such device"#);
    let text = error(&bench, &graph, vec![pin("w", 1)]);
    assert_eq!(text, r#""w" cannot be pinned to B: it lies in A memory"#);
    let viewed = build("placed", |g| {
        relu(g.input("x", DType::F32, [4, 3])).transpose().named("view").output("view");
    });
    let bench = Bench::new(&viewed, vec![full("A")]);
    let view = viewed.output("view").unwrap();
    let text = error(&bench, &viewed, vec![Pin { tensor: view, device: DeviceIndex(0) }]);
    assert_eq!(text, r#""view" cannot be pinned to A: a view is where its base is"#);
}

#[test]
fn devices_are_given_and_given_once() {
    let graph = sandwich();
    let mut bench = bench(&graph, vec![full("A")], 0, 0);
    let again = bench.devices[0].clone();
    bench.devices.push(again);
    let options = PlanOptions::default();
    let error = bench.plan_unverified(&graph, &options).unwrap_err();
    assert!(matches!(error, PlanError::DuplicateDevice(name) if name == "A"));
    bench.devices.clear();
    let error = bench.plan_unverified(&graph, &options).unwrap_err();
    assert!(matches!(error, PlanError::NoDevice));
}

#[test]
fn dead_tensors_are_placed_nowhere() {
    let graph = build("placed", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        _ = relu(x).named("dead");
        _ = g.input("unread", DType::F32, [4]);
        x.scale(1.0, 0.0).output("y");
    });
    let plan = bench(&graph, vec![full("A")], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "dead"), (None, Reason::Unused));
    assert_eq!(placed(&plan, "unread"), (None, Reason::Unused));
}

/// `x → result`, a write into the result, then a read of it.
fn written_result() -> Arc<Graph> {
    build("placed", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let result = relu(x).named("result");
        let written = g.input("z", DType::F32, [4, 3]).copy_into(result).named("written");
        written.scale(2.0, 0.0).output("y");
    })
}

#[test]
fn a_result_lies_where_later_ops_can_write_it() {
    // A runs everything but the write. Were the result on A, nobody could write it.
    let graph = written_result();
    let lacking = without("A", &[OpKind::CopyInto]);
    let reads = ReferenceOptions { reads: vec!["B memory".to_owned()], ..lacking };
    let plan = bench(&graph, vec![reads, full("B")], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "result").0, B);
    assert_eq!(placed(&plan, "written").0, B);
    let devices = vec![without("A", &[OpKind::CopyInto]), without("B", &[OpKind::Unary])];
    let text = error(&bench(&graph, devices, 0, 0), &graph, vec![]);
    assert!(text.contains(r#"A: no device writes "written" into A memory"#), "{text}");
}

#[test]
fn a_write_is_placed_after_what_it_writes_into() {
    // Growing upwards from the product meets the write before the result.
    let graph = build("placed", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let result = relu(x).named("result");
        let written = g.input("z", DType::F32, [4, 3]).copy_into(result).named("written");
        g.weight("w", DType::F32, [4, 4]).mul_mat(written).named("product").output("product");
    });
    let plan = bench(&graph, vec![without("A", &[OpKind::Unary]), full("B")], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "product"), (A, Reason::Weight(0)));
    assert_eq!(placed(&plan, "result").0, B);
    assert_eq!(placed(&plan, "written").0, B);
}

#[test]
fn a_write_from_its_own_memory_needs_a_device_that_copies() {
    let graph = build("placed", |g| {
        let x = relu(g.input("x", DType::F32, [4, 4]));
        x.slice(1, 0, 2).copy_into(x.slice(1, 2, 2)).named("moved").output("moved");
    });
    let plan = bench(&graph, vec![without("A", &[OpKind::Copy]), full("B")], 0, 0).plan(&graph);
    assert_eq!(placed(&plan, "moved").0, B);
    assert_eq!(plan.temporaries.len(), 1);
}
