//! Oracle of steps: single ops, and fused ones as the chain of their ops.
//!
//! Between the ops of a chain the values are rounded to `f32`, the type that
//! the tensors between them would have had.

use tensoryard_graph::ops::{Binary, BinaryKind, LayerNorm, Unary};
use tensoryard_graph::{DType, Layout, Op, Shape};
use tensoryard_runtime::{MatrixOp, StepOp};

use super::{Dense, OracleError, compute};

/// The elements of the result of a step, in order, before they are stored as `dst`.
///
/// # Errors
/// An id outside its table; operands that the step was never declared for.
pub fn compute_step(
    op: &StepOp,
    sources: &[Option<Dense>],
    dst: &Layout,
) -> Result<Vec<f64>, OracleError> {
    let mut chain = Chain { dst: dst.shape(), value: None };
    match op {
        StepOp::Op(op) => return compute(op, sources, dst),
        StepOp::NormAffine { epsilon } => {
            chain.apply(&Op::from(LayerNorm { epsilon: *epsilon }), vec![source(sources, 0)])?;
            chain.then(BinaryKind::Mul, source(sources, 1))?;
            chain.then(BinaryKind::Add, source(sources, 2))?;
        }
        StepOp::Matrix { base, activation } => {
            let base = match base {
                MatrixOp::MulMat(op) => Op::from(*op),
                MatrixOp::Conv1d(op) => Op::from(*op),
            };
            chain.apply(&base, vec![source(sources, 0), source(sources, 1)])?;
            if let Some(bias) = source(sources, 2) {
                chain.then(BinaryKind::Add, Some(bias))?;
            }
            if let Some(kind) = *activation {
                let value = chain.value.take();
                chain.apply(&Op::from(Unary { kind }), vec![value])?;
            }
            if let Some(residual) = source(sources, 3) {
                chain.then(BinaryKind::Add, Some(residual))?;
            }
        }
    }
    chain.value.map(|value| value.data).ok_or(OracleError::Operands("an empty chain"))
}

fn source(sources: &[Option<Dense>], index: usize) -> Option<Dense> {
    sources.get(index).cloned().flatten()
}

struct Chain {
    dst: Shape,
    value: Option<Dense>,
}

impl Chain {
    fn apply(&mut self, op: &Op, sources: Vec<Option<Dense>>) -> Result<(), OracleError> {
        let layout = Layout::contiguous(DType::F32, self.dst)
            .map_err(|_| OracleError::Operands("an impossible shape"))?;
        let values = compute(op, &sources, &layout)?;
        let rounded = values.into_iter().map(|value| f64::from(value as f32)).collect();
        self.value = Some(Dense::new(self.dst, rounded));
        Ok(())
    }

    fn then(&mut self, kind: BinaryKind, other: Option<Dense>) -> Result<(), OracleError> {
        let value = self.value.take();
        self.apply(&Op::from(Binary { kind }), vec![value, other])
    }
}
