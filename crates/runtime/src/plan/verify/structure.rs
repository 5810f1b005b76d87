//! Whether an operation is what the nodes that it stands for declare.

use tensoryard_graph::ops::{Binary, BinaryKind, Unary, UnaryKind};
use tensoryard_graph::{DType, Graph, Op, TensorId};

use crate::plan::{Operation, Value};
use crate::{MatrixOp, StepOp};

/// The tensor whose values an operand has.
pub(super) fn tensor_of(value: Value, temporaries: &[Option<TensorId>]) -> Option<TensorId> {
    match value {
        Value::Tensor(id) | Value::Copy(_, id) => Some(id),
        Value::Temporary(number) => temporaries.get(number).copied().flatten(),
    }
}

/// Checks an operation with its sources as tensors of the graph.
///
/// # Errors
/// The first thing that differs, in words.
pub(super) fn check(
    graph: &Graph,
    operation: &Operation<'_>,
    sources: &[Option<TensorId>],
) -> Result<(), &'static str> {
    let Some((&last, inner)) = operation.nodes.split_last() else {
        return check_temporary(graph, operation, sources);
    };
    if operation.dst != Value::Tensor(last) {
        return Err("the result is not its last node");
    }
    for &node in inner {
        check_inner(graph, node)?;
    }
    let ops: Vec<(TensorId, &Op, &[Option<TensorId>])> = operation
        .nodes
        .iter()
        .filter_map(|&node| {
            let desc = graph.tensor(node);
            desc.op().map(|op| (node, op, desc.sources.as_slice()))
        })
        .collect();
    if ops.len() != operation.nodes.len() {
        return Err("a leaf is no operation");
    }
    match operation.op {
        StepOp::Op(op) => match ops.as_slice() {
            [(_, declared, operands)] if **declared == op && *operands == sources => Ok(()),
            [_] => Err("another op, or other operands"),
            _ => Err("one op for several nodes"),
        },
        StepOp::NormAffine { epsilon } => check_norm(graph, &ops, sources, epsilon),
        StepOp::Matrix { base, activation } => check_matrix(graph, &ops, sources, base, activation),
    }
}

/// A norm with its weight and bias.
fn check_norm(
    graph: &Graph,
    ops: &[Node<'_>],
    sources: &[Option<TensorId>],
    epsilon: f32,
) -> Result<(), &'static str> {
    let [x, weight, bias] = sources else { return Err("not three operands") };
    let [(norm, Op::LayerNorm(op), norm_sources), rest @ ..] = ops else {
        return Err("no norm at first");
    };
    if op.epsilon.to_bits() != epsilon.to_bits() || *norm_sources != [*x] {
        return Err("another norm");
    }
    let mut chain = Chain { graph, value: *norm, rest };
    chain.arithmetic(BinaryKind::Mul, *weight, Other::Row)?;
    chain.arithmetic(BinaryKind::Add, *bias, Other::Row)?;
    chain.end()
}

/// A product with what is applied to it.
fn check_matrix(
    graph: &Graph,
    ops: &[Node<'_>],
    sources: &[Option<TensorId>],
    base: MatrixOp,
    activation: Option<UnaryKind>,
) -> Result<(), &'static str> {
    let [weight, x, bias, residual] = sources else { return Err("not four operands") };
    let Some(((node, op, operands), rest)) = ops.split_first() else {
        return Err("no product");
    };
    let base = match base {
        MatrixOp::MulMat(base) => Op::from(base),
        MatrixOp::Conv1d(base) => Op::from(base),
    };
    if base != **op || **operands != [*weight, *x] {
        return Err("another product, or other operands");
    }
    let mut chain = Chain { graph, value: *node, rest };
    if bias.is_some() {
        chain.arithmetic(BinaryKind::Add, *bias, Other::Row)?;
    }
    if let Some(kind) = activation {
        chain.function(Unary { kind })?;
    }
    if residual.is_some() {
        chain.arithmetic(BinaryKind::Add, *residual, Other::Alike)?;
    }
    chain.end()
}

/// A node that exists only inside a fused operation: no output, read once, no memory of others.
fn check_inner(graph: &Graph, node: TensorId) -> Result<(), &'static str> {
    let readers: usize = graph
        .ids()
        .filter(|&id| graph.is_live(id))
        .map(|id| graph.tensor(id).present_sources().filter(|&source| source == node).count())
        .sum();
    let views = graph.ids().any(|id| id != node && graph.is_live(id) && graph.root(id) == node);
    if graph.tensor(node).output {
        Err("an output exists only inside it")
    } else if readers != 1 || views || graph.root(node) != node {
        Err("an inner value is used elsewhere")
    } else {
        Ok(())
    }
}

fn check_temporary(
    graph: &Graph,
    operation: &Operation<'_>,
    sources: &[Option<TensorId>],
) -> Result<(), &'static str> {
    match (operation.op, operation.dst, sources) {
        (StepOp::Op(Op::Copy(copy)), Value::Temporary(_), [Some(source)])
            if copy.dtype == graph.layout(*source).dtype() =>
        {
            Ok(())
        }
        _ => Err("a step without nodes that is no plain copy into a temporary"),
    }
}

/// What the other operand of fused arithmetic may be.
#[derive(Clone, Copy)]
enum Other {
    /// One row of as many f32 values, without gaps.
    Row,
    /// As many values in every dimension.
    Alike,
}

type Node<'a> = (TensorId, &'a Op, &'a [Option<TensorId>]);

/// The nodes of a fused operation behind its first, in order.
struct Chain<'a> {
    graph: &'a Graph,
    value: TensorId,
    rest: &'a [Node<'a>],
}

impl Chain<'_> {
    fn arithmetic(
        &mut self,
        kind: BinaryKind,
        other: Option<TensorId>,
        what: Other,
    ) -> Result<(), &'static str> {
        let [(node, Op::Binary(op), [Some(a), Some(b)]), rest @ ..] = self.rest else {
            return Err("no arithmetic where it should be");
        };
        if *op != (Binary { kind }) {
            return Err("other arithmetic");
        }
        let other = other.ok_or("an operand is absent")?;
        let layout = self.graph.layout(self.value);
        let fits = match what {
            Other::Row => {
                let row = self.graph.layout(other);
                row.dtype() == DType::F32
                    && row.is_contiguous()
                    && row.shape().dims() == [layout.shape()[0], 1, 1, 1]
                    && (*a, *b) == (self.value, other)
            }
            Other::Alike => {
                let alike = self.graph.layout(other).shape() == layout.shape();
                alike && ((*a, *b) == (self.value, other) || (*b, *a) == (self.value, other))
            }
        };
        (self.value, self.rest) = (*node, rest);
        if fits { Ok(()) } else { Err("arithmetic with another operand") }
    }

    fn function(&mut self, function: Unary) -> Result<(), &'static str> {
        let [(node, Op::Unary(op), [Some(x)]), rest @ ..] = self.rest else {
            return Err("no function where it should be");
        };
        if *op != function || *x != self.value {
            return Err("another function");
        }
        (self.value, self.rest) = (*node, rest);
        Ok(())
    }

    fn end(&self) -> Result<(), &'static str> {
        if self.rest.is_empty() { Ok(()) } else { Err("a node is not computed by it") }
    }
}
