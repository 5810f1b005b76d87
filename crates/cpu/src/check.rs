//! What a step must be for its kernels to be sound, checked before it is compiled.
//!
//! The planner makes steps that pass; nothing here trusts that. The destination
//! has the layout that the op's own shape rule gives, every mark of aliasing is
//! true, panels are read only by what reads panels, and every operand lies at a
//! multiple of its element size.

use tensoryard_graph::ops::Op;
use tensoryard_graph::{DType, Layout};
use tensoryard_runtime::{Aliasing, MatrixOp, Operand, Region, Step, StepOp};

use crate::packed::{PackedMatrix, is_packed};
use crate::steps::activation_of;
use crate::view::Stored;

/// Checks a step; the error says what is wrong with it.
pub(crate) fn check_step(step: &Step) -> Result<(), String> {
    let layouts: Vec<Option<Layout>> =
        step.sources.iter().map(|source| source.as_ref().map(|operand| operand.layout)).collect();
    check_shapes(&step.op, &layouts, &step.dst.layout)?;
    if matches!(step.dst.region, Region::Weight(_)) || is_packed(&*step.dst.buffer_type) {
        return Err("the destination is a weight".to_owned());
    }
    let writes = match &step.op {
        StepOp::Op(op) => op.writes(),
        StepOp::NormAffine { .. } | StepOp::Matrix { .. } => None,
    };
    if step.dst.layout.overlaps_itself() {
        return Err("elements of the destination overlap".to_owned());
    }
    for (index, operand) in step.sources.iter().enumerate() {
        let Some(operand) = operand else { continue };
        check_place(operand).map_err(|reason| format!("operand {index}: {reason}"))?;
        let may_be_dst = writes == Some(index) || step.op.may_reuse().contains(&index);
        let truth = aliasing(operand, &step.dst)?;
        if truth != operand.aliasing || (truth == Aliasing::SameAsDst && !may_be_dst) {
            return Err(format!("operand {index} overlaps the destination"));
        }
        let is_empty = step.dst.layout.shape().is_empty();
        if writes == Some(index) && truth != Aliasing::SameAsDst && !is_empty {
            return Err("the destination is not what the op writes into".to_owned());
        }
        if is_packed(&*operand.buffer_type) && !takes_panels(&step.op, index, &operand.layout) {
            return Err(format!("operand {index} is packed"));
        }
    }
    check_place(&step.dst).map_err(|reason| format!("destination: {reason}"))
}

/// Whether an op reads this operand from panels of that very matrix.
pub(crate) fn takes_panels(op: &StepOp, operand: usize, layout: &Layout) -> bool {
    let rank = layout.shape().rank();
    let fits = match op {
        StepOp::Op(Op::MulMat(_) | Op::GetRows(_))
        | StepOp::Matrix { base: MatrixOp::MulMat(_), .. } => rank <= 2,
        StepOp::Op(Op::Conv1d(_)) | StepOp::Matrix { base: MatrixOp::Conv1d(_), .. } => rank == 3,
        StepOp::NormAffine { .. } => false,
        StepOp::Op(
            Op::View
            | Op::Attention(_)
            | Op::Binary(_)
            | Op::Copy(_)
            | Op::CopyInto(_)
            | Op::LayerNorm(_)
            | Op::RmsNorm(_)
            | Op::Scale(_)
            | Op::SetRows(_)
            | Op::SoftMax(_)
            | Op::Unary(_),
        ) => false,
    };
    fits && operand == 0 && PackedMatrix::of(layout).is_some()
}

fn check_place(operand: &Operand) -> Result<(), String> {
    let layout = &operand.layout;
    if Stored::of(layout.dtype()).is_none() {
        return Err(format!("there are no kernels for {}", layout.dtype()));
    }
    let element = layout.dtype().block_bytes();
    let apart = layout.strides().into_iter().zip(layout.shape().dims());
    let even = apart.filter(|&(_, dim)| dim > 1).all(|(stride, _)| stride.is_multiple_of(element));
    if even && operand.offset_bytes.is_multiple_of(element) {
        return Ok(());
    }
    Err(format!("{layout} at byte {} is no whole number of elements apart", operand.offset_bytes))
}

/// How an operand really lies to the destination.
fn aliasing(source: &Operand, dst: &Operand) -> Result<Aliasing, String> {
    let end = |operand: &Operand| {
        let bytes = if is_packed(&*operand.buffer_type) {
            PackedMatrix::of(&operand.layout).and_then(|matrix| matrix.bytes())
        } else {
            Some(operand.layout.extent_bytes())
        };
        bytes
            .and_then(|bytes| operand.offset_bytes.checked_add(bytes))
            .ok_or_else(|| format!("{} lies beyond the address space", operand.layout))
    };
    let apart = source.region != dst.region
        || end(source)? <= dst.offset_bytes
        || end(dst)? <= source.offset_bytes;
    if apart {
        Ok(Aliasing::Disjoint)
    } else if source.offset_bytes == dst.offset_bytes && source.layout == dst.layout {
        Ok(Aliasing::SameAsDst)
    } else {
        Err("an operand overlaps the destination in part".to_owned())
    }
}

/// Whether the operands are what the op's shape rule takes, and the destination what it gives.
pub(crate) fn check_shapes(
    op: &StepOp,
    layouts: &[Option<Layout>],
    dst: &Layout,
) -> Result<(), String> {
    let infer = |op: Op, layouts: &[Option<Layout>]| op.infer(layouts).map_err(|e| e.to_string());
    let get = |index: usize| layouts.get(index).copied().flatten();
    let row = |index: usize, n: usize| match get(index) {
        Some(layout) => {
            let fits = layout.dtype() == DType::F32
                && layout.is_contiguous()
                && layout.shape().dims() == [n, 1, 1, 1];
            if fits { Ok(()) } else { Err(format!("operand {index} is {layout}, wanted a row")) }
        }
        None => Ok(()),
    };
    let inferred = match op {
        StepOp::Op(op) => infer(*op, layouts)?,
        StepOp::NormAffine { epsilon } => {
            let norm = tensoryard_graph::ops::LayerNorm { epsilon: *epsilon };
            let inferred = infer(Op::from(norm), layouts.get(..1).unwrap_or(&[]))?;
            for index in [1, 2] {
                row(index, inferred.shape()[0])?;
                get(index).ok_or_else(|| format!("operand {index} is absent"))?;
            }
            inferred
        }
        StepOp::Matrix { base, activation } => {
            if activation.is_some_and(|kind| activation_of(kind).is_none()) {
                return Err("an activation that the matrix kernels do not apply".to_owned());
            }
            let base = match base {
                MatrixOp::MulMat(op) => Op::from(*op),
                MatrixOp::Conv1d(op) => Op::from(*op),
            };
            let inferred = infer(base, layouts.get(..2).unwrap_or(&[]))?;
            row(2, inferred.shape()[0])?;
            if get(3).is_some_and(|residual| residual != inferred) {
                return Err("the residual has another layout than the result".to_owned());
            }
            inferred
        }
    };
    if inferred == *dst {
        return Ok(());
    }
    Err(format!("the destination is {dst}, the op gives {inferred}"))
}

#[cfg(test)]
mod tests;
