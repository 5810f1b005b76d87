//! Ops that go to a faster device although their weights lie in host memory.

use std::sync::Arc;

use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::{DType, Graph, GraphBuilder, OpKind};
use tensoryard_runtime::plan::Reason;
use tensoryard_runtime::{DeviceIndex, Input, Plan, PlanOptions};

use crate::policy::{find, weights_of};
use crate::support::{Bench, full, without};

fn product(rows: usize) -> Arc<Graph> {
    let g = GraphBuilder::new("offload");
    let x = g.input("x", DType::F32, [4, rows]);
    g.weight("w", DType::F32, [4, 4]).mul_mat(x).named("product").output("y");
    Arc::new(g.finish().unwrap())
}

/// A wants ops from 32 rows on; the weights lie on the last device.
fn bench(graph: &Graph, fast: ReferenceOptions, host: bool) -> Bench {
    let fast = ReferenceOptions { offloads_from_rows: Some(32), ..fast };
    let slow = ReferenceOptions { host, ..full("B") };
    Bench::open(&[graph], &[fast.build(), slow.build()], &weights_of(graph), 1, 0).unwrap()
}

fn placed(bench: &Bench, graph: &Arc<Graph>, offload: bool) -> (Plan, usize, Reason) {
    let options = PlanOptions { offload, ..PlanOptions::default() };
    let plan = bench.plan_with(graph, &options).unwrap();
    let product = graph.output("y").unwrap();
    let device = plan.placement.device(product).unwrap().0;
    let reason = plan.placement.reason(product);
    (plan, device, reason)
}

#[test]
fn an_op_of_many_rows_goes_to_the_device_that_wants_it() {
    let graph = product(32);
    let mut bench = bench(&graph, full("A"), true);
    let (plan, device, reason) = placed(&bench, &graph, true);
    assert_eq!((device, reason), (0, Reason::Offloaded));
    assert!(plan.arrivals.iter().any(|arrival| arrival.tensor == find(&graph, "w")));
    assert!(plan.dump().contains("because offloaded"), "{}", plan.dump());
    bench.run(&plan, &[Input::f32("x", &[1.0; 128])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [2.0; 128]);
}

#[test]
fn everything_else_stays_where_the_weight_is() {
    let stays = |graph: &Arc<Graph>, bench: &Bench, offload: bool| {
        let (_, device, reason) = placed(bench, graph, offload);
        assert_eq!((device, reason), (1, Reason::Weight(0)));
    };
    let (many, few) = (product(32), product(31));
    stays(&many, &bench(&many, full("A"), true), false);
    stays(&few, &bench(&few, full("A"), true), true);
    // The faster device lacks the op, or the weight is not in host memory.
    stays(&many, &bench(&many, without("A", &[OpKind::MulMat]), true), true);
    stays(&many, &bench(&many, full("A"), false), true);
}

#[test]
fn a_leaf_in_memory_that_no_device_uses_follows_its_reader() {
    let graph = product(2);
    let devices = [full("A").build(), full("B").build(), full("C").build()];
    let mut bench = Bench::open(&[&graph], &devices, &weights_of(&graph), 2, 0).unwrap();
    bench.devices.pop();
    bench.backends.pop();
    let plan = bench.plan_with(&graph, &PlanOptions::default()).unwrap();
    let (w, y) = (find(&graph, "w"), graph.output("y").unwrap());
    assert_eq!(plan.placement.reason(w), Reason::Consumer);
    assert_eq!(plan.placement.device(w), plan.placement.device(y));
    assert_eq!(plan.placement.device(y), Some(DeviceIndex(1)));
    assert_eq!(plan.arrivals.len(), 1);
    bench.run(&plan, &[Input::f32("x", &[1.0; 8])]).unwrap();
    assert_eq!(bench.output(&plan, "y"), [2.0; 8]);
}
