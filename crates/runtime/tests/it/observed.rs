//! Splits end behind what is observed, and it is intact there.

use std::sync::Arc;

use tensoryard_conformance::graphs::build;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind, TensorId};
use tensoryard_runtime::plan::verify::{Violation, verify};
use tensoryard_runtime::{Plan, PlanOptions};

use crate::support::{Bench, full, only, without};

fn find(graph: &Graph, name: &str) -> TensorId {
    graph.ids().find(|&id| graph.tensor(id).name == name).unwrap()
}

fn plan(graph: &Arc<Graph>, names: &[&str]) -> Plan {
    let observed = names.iter().map(|name| find(graph, name)).collect();
    let options = PlanOptions { observed, ..PlanOptions::default() };
    Bench::new(graph, vec![full("A")]).plan_with(graph, &options).unwrap()
}

/// For each split the number of its steps and the names of what is observed.
fn shape(plan: &Plan) -> Vec<(usize, Vec<String>)> {
    let name = |id: &TensorId| plan.graph.tensor(*id).name.clone();
    let splits = plan.splits.iter();
    splits.map(|s| (s.steps.len(), s.observed.iter().map(name).collect())).collect()
}

fn behind(steps: usize, names: &[&str]) -> (usize, Vec<String>) {
    (steps, names.iter().map(|name| (*name).to_owned()).collect())
}

/// A product whose bias is part of its step, and what is made of it.
fn linear() -> Arc<Graph> {
    build("observed", |g| {
        let x = g.input("x", DType::F32, [4, 4]);
        let w = g.input("w", DType::F32, [4, 4]);
        let bias = g.input("b", DType::F32, [4]);
        let product = w.mul_mat(x).named("product");
        let biased = product.add(bias).named("biased");
        let turned = biased.transpose().named("turned");
        let activated = biased.gelu_erf().named("activated");
        x.add(activated).named("sum").mul(turned.cont()).output("y");
    })
}

#[test]
fn a_split_ends_behind_an_observed_node_and_so_does_fusion() {
    let graph = linear();
    assert_eq!(shape(&plan(&graph, &[])), [behind(5, &[])]);
    // The product with its bias is one step, unless the product is observed.
    assert_eq!(shape(&plan(&graph, &["product"])), [behind(1, &["product"]), behind(5, &[])]);
    assert_eq!(
        shape(&plan(&graph, &["sum", "biased", "biased"])),
        [behind(1, &["biased"]), behind(2, &["sum"]), behind(2, &[])]
    );
}

#[test]
fn a_view_is_observed_behind_the_last_node_before_it() {
    let graph = linear();
    assert_eq!(shape(&plan(&graph, &["turned"])), [behind(1, &["turned"]), behind(4, &[])]);
    assert_eq!(
        shape(&plan(&graph, &["turned", "biased"])),
        [behind(1, &["biased", "turned"]), behind(4, &[])]
    );
}

#[test]
fn views_before_any_node_are_observed_in_a_split_without_steps() {
    let graph = build("observed", |g| {
        let x = g.input("x", DType::F32, [4, 2]);
        x.transpose().named("view").cont().output("y");
    });
    assert_eq!(shape(&plan(&graph, &["view", "x"])), [behind(0, &["view"]), behind(1, &[])]);
    // Without nodes there is one split, observed or not.
    let graph = build("observed", |g| {
        g.input("x", DType::F32, [4, 2]).transpose().output("view");
    });
    assert_eq!(shape(&plan(&graph, &[])), [behind(0, &[])]);
    assert_eq!(shape(&plan(&graph, &["view"])), [behind(0, &["view"])]);
}

#[test]
fn what_nothing_reads_is_not_observed() {
    let graph = build("observed", |g| {
        let x = g.input("x", DType::F32, [4]);
        _ = x.unary(UnaryKind::Neg).named("dead");
        x.scale(1.0, 0.0).output("y");
    });
    assert_eq!(shape(&plan(&graph, &["dead", "y"])), [behind(1, &["y"])]);
}

#[test]
fn what_is_observed_is_not_overwritten_before_its_split_has_ended() {
    // The view is observed behind the node that would take its memory over.
    let graph = build("observed", |g| {
        let p = g.input("x", DType::F32, [4, 4]).unary(UnaryKind::Neg).named("p");
        let q = p.scale(2.0, 0.0).named("q");
        let view = p.transpose().named("view");
        q.add(view.cont()).output("y");
    });
    let plan = plan(&graph, &["view", "q"]);
    assert_eq!(shape(&plan)[0], behind(2, &["q", "view"]));
    let mut damaged = plan.blueprint().clone();
    let p = plan.memory.locate(find(&graph, "p")).unwrap();
    let q = plan
        .operations
        .entries
        .iter()
        .position(|entry| plan.operations.nodes[entry.nodes.clone()] == [find(&graph, "q")]);
    damaged.places.results[q.unwrap()].offset_bytes = p.offset_bytes;
    let found = verify(&damaged).unwrap_err();
    let view = find(&graph, "view");
    let lost = |v: &Violation| matches!(v, Violation::NotObservable { split: 0, tensor } if *tensor == view);
    assert!(found.iter().any(lost), "{found:?}");
    damaged = plan.blueprint().clone();
    damaged.splits[0].observed.reverse();
    assert!(verify(&damaged).is_err());
}

#[test]
fn observing_everything_on_two_devices_makes_a_split_of_each_node() {
    let graph = linear();
    let devices = vec![without("A", &[OpKind::Unary]), only("B", &[OpKind::Unary])];
    let observed: Vec<TensorId> = graph.ids().collect();
    let options = PlanOptions { observed, ..PlanOptions::default() };
    let plan = Bench::new(&graph, devices).plan_with(&graph, &options).unwrap();
    assert_eq!(plan.splits.len(), graph.nodes().len());
    let all: Vec<TensorId> = plan.splits.iter().flat_map(|s| s.observed.clone()).collect();
    let wanted: Vec<TensorId> = graph.ids().filter(|&id| graph.tensor(id).op().is_some()).collect();
    assert_eq!(all, wanted);
}
