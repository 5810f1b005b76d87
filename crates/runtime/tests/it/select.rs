//! Which nodes become one step, and which must not.

use std::sync::Arc;

use tensoryard_conformance::graphs::build;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind};
use tensoryard_runtime::{Plan, PlanOptions};

use crate::support::{Bench, full, without};

fn fused(graph: &Arc<Graph>, options: ReferenceOptions) -> Plan {
    let bench = Bench::new(graph, vec![options]);
    bench.plan_with(graph, &PlanOptions::default()).unwrap()
}

/// The steps as `name of the op → name of the result`.
fn steps(plan: &Plan) -> Vec<String> {
    let steps = (0..plan.operations.len()).map(|number| plan.step(number).unwrap());
    steps.map(|step| format!("{} {}", step.op.name(), step.name)).collect()
}

/// Product, bias, function, residual.
fn linear() -> Arc<Graph> {
    build("select", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let w = g.input("w", DType::F32, [4, 4]);
        let bias = g.input("b", DType::F32, [4]);
        let product = w.mul_mat(x).named("product");
        let biased = product.add(bias).named("biased");
        let activated = biased.gelu_erf().named("activated");
        x.add(activated).output("y");
    })
}

#[test]
fn a_whole_epilogue_is_one_step() {
    let graph = linear();
    assert_eq!(steps(&fused(&graph, full("A"))), ["mul_mat+epilogue y"]);
    let bench = Bench::new(&graph, vec![full("A")]);
    assert_eq!(bench.plan(&graph).operations.len(), 4);
}

#[test]
fn a_device_may_fuse_less() {
    let graph = linear();
    let up_to = |epilogue| ReferenceOptions { epilogue, ..full("A") };
    assert_eq!(steps(&fused(&graph, up_to(2))), ["mul_mat+epilogue activated", "binary y"]);
    assert_eq!(
        steps(&fused(&graph, up_to(1))),
        ["mul_mat+epilogue biased", "unary activated", "binary y"]
    );
    assert_eq!(steps(&fused(&graph, up_to(0))).len(), 4);
}

#[test]
fn a_norm_with_gain_and_bias_is_one_step() {
    let graph = build("select", |g| {
        let row = |name: &str| g.input(name, DType::F32, [4]);
        let x = g.input("x", DType::F32, [4, 3]);
        x.norm(1e-5).mul(row("w")).add(row("b")).output("y");
    });
    assert_eq!(steps(&fused(&graph, full("A"))), ["norm+mul+add y"]);
    let plain = ReferenceOptions { fuses_norm: false, ..full("A") };
    assert_eq!(steps(&fused(&graph, plain)).len(), 3);
}

#[test]
fn a_value_that_is_needed_elsewhere_stays() {
    let graph = build("select", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let w = g.input("w", DType::F32, [4, 4]);
        w.mul_mat(x).output("product").unary(UnaryKind::Relu).output("y");
    });
    assert_eq!(steps(&fused(&graph, full("A"))), ["mul_mat product", "unary y"]);
    let graph = build("select", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let product = g.input("w", DType::F32, [4, 4]).mul_mat(x).named("product");
        product.unary(UnaryKind::Relu).mul(product).output("y");
    });
    assert!(steps(&fused(&graph, full("A"))).contains(&"mul_mat product".to_owned()));
}

#[test]
fn two_products_do_not_share_the_sum_of_both() {
    let graph = build("select", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let product = |name: &str| g.input(name, DType::F32, [4, 4]).mul_mat(x);
        let (p, q) = (product("v").named("p"), product("w").named("q"));
        p.add(q).output("y");
    });
    // One of the products takes the sum in; the other is a step before it.
    assert_eq!(steps(&fused(&graph, full("A"))), ["mul_mat q", "mul_mat+epilogue y"]);
    let graph = build("select", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let linear = |name: &str| {
            let bias = g.input(format!("{name}.b"), DType::F32, [4]);
            g.input(name, DType::F32, [4, 4]).mul_mat(x).add(bias)
        };
        let (p, q) = (linear("v").named("p"), linear("w").named("q"));
        p.add(q).output("y");
    });
    assert_eq!(steps(&fused(&graph, full("A"))), ["mul_mat+epilogue q", "mul_mat+epilogue y"]);
}

#[test]
fn a_write_between_keeps_an_operand_apart() {
    // The bias is a state that is rewritten between the product and what would be its end.
    let graph = build("select", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let bias = g.state("bias", DType::F32, [4]);
        let biased = g.input("w", DType::F32, [4, 4]).mul_mat(x).add(bias).named("biased");
        let new_bias = g.input("new", DType::F32, [4]).copy_into(bias);
        biased.add(new_bias).output("y");
        biased.scale(2.0, 0.0).output("z");
    });
    assert_eq!(
        steps(&fused(&graph, full("A")))[0],
        "mul_mat+epilogue biased",
        "a product may take the bias in before it is rewritten"
    );
    let graph = build("select", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let bias = g.state("bias", DType::F32, [4]);
        let biased = g.input("w", DType::F32, [4, 4]).mul_mat(x).add(bias);
        _ = g.input("new", DType::F32, [4]).copy_into(bias);
        biased.unary(UnaryKind::Relu).output("y");
    });
    // The function stands behind the write, so the chain ends before it.
    assert_eq!(steps(&fused(&graph, full("A")))[0], "mul_mat+epilogue binary.4");
}

#[test]
fn chains_end_where_the_device_changes() {
    let graph = linear();
    let devices = vec![without("A", &[OpKind::Unary]), full("B")];
    let bench = Bench::new(&graph, devices);
    let plan = bench.plan_with(&graph, &PlanOptions::default()).unwrap();
    for split in &plan.splits {
        assert!(!split.steps.is_empty());
    }
}
