//! What a step must be for its kernels to be sound, checked before it is compiled.
//!
//! The planner makes steps that pass; nothing here trusts that. What every device may take for
//! granted is checked by the runtime; the rest is that there are kernels for the types and
//! functions, and that panels are read only by what reads panels.

use tensoryard_graph::Layout;
use tensoryard_graph::ops::Op;
use tensoryard_runtime::{MatrixOp, Operand, Step, StepOp};

use crate::packed::{PackedMatrix, is_packed};
use crate::steps::activation_of;
use crate::view::Stored;

/// Checks a step; the error says what is wrong with it.
pub(crate) fn check_step(step: &Step) -> Result<(), String> {
    step.check().map_err(|error| error.to_string())?;
    match &step.op {
        StepOp::Matrix { activation: Some(kind), .. } if activation_of(*kind).is_none() => {
            return Err("an activation that the matrix kernels do not apply".to_owned());
        }
        StepOp::Op(_) | StepOp::NormAffine { .. } | StepOp::Matrix { .. } => {}
    }
    if is_packed(&*step.dst.buffer_type) {
        return Err("the destination is a weight".to_owned());
    }
    for (index, operand) in step.sources.iter().enumerate() {
        let Some(operand) = operand else { continue };
        check_type(operand).map_err(|reason| format!("operand {index}: {reason}"))?;
        if !is_packed(&*operand.buffer_type) {
            continue;
        }
        if !takes_panels(&step.op, index, &operand.layout) {
            return Err(format!("operand {index} is packed"));
        }
        // Panels end elsewhere than the layout says, so nothing is known of what they overlap.
        if operand.region == step.dst.region {
            return Err(format!("operand {index} is packed where the destination lies"));
        }
    }
    check_type(&step.dst).map_err(|reason| format!("destination: {reason}"))
}

fn check_type(operand: &Operand) -> Result<(), String> {
    let dtype = operand.layout.dtype();
    Stored::of(dtype).map(drop).ok_or_else(|| format!("there are no kernels for {dtype}"))
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

#[cfg(test)]
mod tests;
