//! The finished graph as data: its text, its fingerprint, its equality.

use tensoryard_graph::ops::{self, Conv1d, MulMat, ParameterValue, Scale, Unary, UnaryKind};
use tensoryard_graph::{DType, Graph, GraphBuilder, Op, OpKind};

fn linear(name: &str, edit: impl FnOnce(&GraphBuilder)) -> Graph {
    let g = GraphBuilder::new(name);
    edit(&g);
    g.finish().unwrap()
}

#[test]
fn the_text_shows_every_tensor() {
    let graph = linear("block", |g| {
        let x = g.input("x", DType::F32, [4, 3]);
        let w = g.weight("w", DType::F16, [4, 2]);
        let cache = g.state("cache", DType::F16, [2, 8]);
        let ids = g.input("ids", DType::I32, [3]);
        let y = w.mul_mat(x).named("y");
        let written = cache.set_rows(y, ids);
        written.slice(1, 2, 4).transpose().cast(DType::F32).soft_max(0.5, None).output("p");
        _ = y.unary(UnaryKind::Silu);
    });
    assert_eq!(
        graph.dump(),
        r#"graph "block"
  %0 x: input f32 [4, 3]
  %1 w: weight f16 [4, 2]
  %2 cache: state f16 [2, 8]
  %3 ids: input i32 [3]
  %4 y: mul_mat(weight %1, x %0) f32 [2, 3]
  %5 set_rows.5: set_rows(base %2, x %4, ids %3) f16 [2, 8] in %2 at 0 v1
  %6 view.6: view(base %5) f16 [2, 4] in %2 at 8 v1
  %7 view.7: view(base %6) f16 [4, 2] strides [4, 2] in %2 at 8 v1
  %8 cont.8: cont(x %7) {f32} f32 [4, 2]
  %9 p: soft_max(x %8) {scale=0.5} f32 [4, 2] -> output
  %10 unary.10: unary(x %4) {silu} f32 [2, 3] (unused)
"#
    );
}

#[test]
fn an_empty_graph_has_a_text() {
    let graph = linear("nothing", |_| {});
    assert_eq!(graph.dump(), "graph \"nothing\"\n");
    assert!(graph.is_empty());
}

/// A graph that is varied in one place each.
#[derive(Clone)]
struct Recipe {
    graph: &'static str,
    leaf: &'static str,
    dtype: DType,
    rows: usize,
    factor: f32,
    offset: f32,
    swapped: bool,
    output: &'static str,
    hidden: bool,
}

const RECIPE: Recipe = Recipe {
    graph: "g",
    leaf: "x",
    dtype: DType::F32,
    rows: 3,
    factor: 2.0,
    offset: 0.0,
    swapped: false,
    output: "y",
    hidden: false,
};

impl Recipe {
    fn build(&self) -> Graph {
        linear(self.graph, |g| {
            let x = g.input(self.leaf, DType::F32, [4, self.rows]);
            let w = g.weight("w", self.dtype, [4, 4]);
            let p = w.mul_mat(x);
            let q = p.scale(self.factor, self.offset);
            let sum = if self.swapped { q.add(p) } else { p.add(q) };
            if !self.hidden {
                q.output("q");
            }
            sum.output(self.output);
        })
    }
}

#[test]
fn equal_graphs_have_equal_fingerprints_wherever_they_were_built() {
    let (a, b) = (RECIPE.build(), RECIPE.build());
    assert_eq!(a.fingerprint(), b.fingerprint());
    assert!(a.same_as(&b) && b.same_as(&a) && a.same_as(&a));
    let c = a.clone();
    assert!(a.same_as(&c));
}

#[test]
fn whatever_differs_shows_in_fingerprint_and_equality() {
    let base = RECIPE.build();
    let others = [
        Recipe { graph: "h", ..RECIPE },
        Recipe { leaf: "z", ..RECIPE },
        Recipe { dtype: DType::F16, ..RECIPE },
        Recipe { rows: 4, ..RECIPE },
        Recipe { factor: 2.000_000_2, ..RECIPE },
        Recipe { offset: -0.0, ..RECIPE },
        Recipe { offset: f32::MIN_POSITIVE, ..RECIPE },
        Recipe { swapped: true, ..RECIPE },
        Recipe { output: "z", ..RECIPE },
        Recipe { hidden: true, ..RECIPE },
    ];
    for (number, other) in others.iter().enumerate() {
        let other = other.build();
        assert_ne!(base.fingerprint(), other.fingerprint(), "{number}\n{}", other.dump());
        assert!(!base.same_as(&other), "{number}");
    }
}

#[test]
fn every_kind_of_op_has_a_distinct_name() {
    let mut names: Vec<&str> = OpKind::ALL.iter().map(|kind| kind.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), OpKind::ALL.len());
    for kind in OpKind::ALL {
        assert!(kind.may_reuse().iter().all(|&operand| operand < kind.operands().len()));
        assert!(kind.writes().is_none_or(|operand| operand < kind.operands().len()));
    }
}

#[test]
fn every_parameter_of_an_op_has_a_name() {
    let described = |op: &Op| {
        let mut list = Vec::new();
        op.describe(&mut |name, value| list.push((name, value)));
        list
    };
    let conv = Op::from(Conv1d { stride: 2, padding: 1 });
    let (two, one) = (ParameterValue::Integer(2), ParameterValue::Integer(1));
    assert_eq!(described(&conv), [("stride", two), ("padding", one)]);
    assert_eq!(conv.parameters(), "stride=2 padding=1");
    let unary = Op::from(Unary { kind: UnaryKind::GeluErf });
    assert_eq!(described(&unary), [("kind", ParameterValue::Word("gelu_erf"))]);
    assert_eq!(unary.parameters(), "gelu_erf");
    let copy = Op::from(ops::Copy { dtype: DType::F16 });
    assert_eq!(described(&copy), [("dtype", ParameterValue::Type(DType::F16))]);
    assert_eq!(copy.parameters(), "f16");
    let scale = Op::from(Scale { factor: 0.1, offset: -3.0 });
    assert_eq!(scale.parameters(), "factor=0.1 offset=-3");
    assert_eq!((Op::View.parameters(), Op::from(MulMat).parameters()), Default::default());
}
