//! What a step must be wherever it is computed, checked before it is compiled.
//!
//! The planner makes steps that pass; a backend does not have to trust that. The destination has
//! the layout that the op's own shape rule gives and is no weight, every mark of aliasing is true,
//! and every operand lies at a multiple of its element size. What else its kernels need, each
//! device checks itself.

use tensoryard_graph::ops::{LayerNorm, Op};
use tensoryard_graph::{DType, Layout};

use crate::{Aliasing, MatrixOp, Operand, Region, Step, StepOp};

/// What is wrong with a step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StepError(String);

impl Step {
    /// Checks what every device may take for granted of the steps that it is given.
    ///
    /// # Errors
    /// What is wrong with the step.
    pub fn check(&self) -> Result<(), StepError> {
        check_step(self).map_err(StepError)
    }
}

impl StepOp {
    /// Checks that the sources are what the shape rule takes, and the destination what it gives.
    ///
    /// # Errors
    /// The layout that does not fit.
    pub fn check_shapes(&self, sources: &[Option<Layout>], dst: &Layout) -> Result<(), StepError> {
        check_shapes(self, sources, dst).map_err(StepError)
    }
}

fn check_step(step: &Step) -> Result<(), String> {
    let layouts: Vec<Option<Layout>> =
        step.sources.iter().map(|source| source.as_ref().map(|operand| operand.layout)).collect();
    check_shapes(&step.op, &layouts, &step.dst.layout)?;
    match step.dst.region {
        Region::Weight(_) => return Err("the destination is a weight".to_owned()),
        Region::State(_) | Region::Chunk(_) => {}
    }
    if step.dst.layout.overlaps_itself() {
        return Err("elements of the destination overlap".to_owned());
    }
    for (index, operand) in step.sources.iter().enumerate() {
        let Some(operand) = operand else { continue };
        check_place(operand).map_err(|reason| format!("operand {index}: {reason}"))?;
        check_aliasing(step, index, operand)?;
    }
    check_place(&step.dst).map_err(|reason| format!("destination: {reason}"))
}

fn check_aliasing(step: &Step, index: usize, operand: &Operand) -> Result<(), String> {
    let writes = match &step.op {
        StepOp::Op(op) => op.writes(),
        StepOp::NormAffine { .. } | StepOp::Matrix { .. } => None,
    };
    let may_be_dst = writes == Some(index) || step.op.may_reuse().contains(&index);
    let truth = aliasing(operand, &step.dst)?;
    if truth != operand.aliasing || (truth == Aliasing::SameAsDst && !may_be_dst) {
        return Err(format!("operand {index} overlaps the destination"));
    }
    let is_empty = step.dst.layout.shape().is_empty();
    if writes == Some(index) && truth != Aliasing::SameAsDst && !is_empty {
        return Err("the destination is not what the op writes into".to_owned());
    }
    Ok(())
}

fn check_place(operand: &Operand) -> Result<(), String> {
    let layout = &operand.layout;
    let element = layout.dtype().block_bytes();
    let apart = layout.strides().into_iter().zip(layout.shape().dims());
    let even = apart.filter(|&(_, dim)| dim > 1).all(|(stride, _)| stride.is_multiple_of(element));
    if !even || !operand.offset_bytes.is_multiple_of(element) {
        let at = operand.offset_bytes;
        return Err(format!("{layout} at byte {at} is no whole number of elements apart"));
    }
    end(operand).map(drop)
}

/// Where an operand ends in its region.
fn end(operand: &Operand) -> Result<usize, String> {
    let end = operand.offset_bytes.checked_add(operand.layout.extent_bytes());
    end.ok_or_else(|| format!("{} lies beyond the address space", operand.layout))
}

/// How an operand really lies to the destination.
fn aliasing(source: &Operand, dst: &Operand) -> Result<Aliasing, String> {
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
fn check_shapes(op: &StepOp, layouts: &[Option<Layout>], dst: &Layout) -> Result<(), String> {
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
            let norm = LayerNorm { epsilon: *epsilon };
            let inferred = infer(Op::from(norm), layouts.get(..1).unwrap_or(&[]))?;
            for index in [1, 2] {
                row(index, inferred.shape()[0])?;
                get(index).ok_or_else(|| format!("operand {index} is absent"))?;
            }
            inferred
        }
        StepOp::Matrix { base, activation: _ } => {
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
mod tests {
    use std::sync::Arc;

    use tensoryard_graph::Shape;
    use tensoryard_graph::ops::{CopyInto, MulMat, Scale, UnaryKind};

    use super::*;
    use crate::host_buffer_type;

    const CHUNK: Region = Region::Chunk(0);

    fn layout(dims: &[usize]) -> Layout {
        Layout::contiguous(DType::F32, Shape::new(dims).unwrap()).unwrap()
    }

    fn operand(region: Region, offset_bytes: usize, layout: Layout) -> Operand {
        let buffer_type = Arc::clone(host_buffer_type());
        Operand { region, offset_bytes, layout, buffer_type, aliasing: Aliasing::Disjoint }
    }

    fn step(op: StepOp, sources: Vec<Operand>, dst: Operand) -> Step {
        let sources = sources.into_iter().map(Some).collect();
        Step { name: "step".to_owned(), op, dst, sources }
    }

    fn scale(source: Operand, dst: Operand) -> Step {
        step(StepOp::Op(Op::from(Scale { factor: 2.0, offset: 0.0 })), vec![source], dst)
    }

    fn refusal(step: &Step) -> String {
        step.check().unwrap_err().to_string()
    }

    #[test]
    fn a_true_step_passes() {
        let row = layout(&[8]);
        assert_eq!(scale(operand(CHUNK, 0, row), operand(CHUNK, 64, row)).check(), Ok(()));
        let mut in_place = scale(operand(CHUNK, 0, row), operand(CHUNK, 0, row));
        in_place.sources[0].as_mut().unwrap().aliasing = Aliasing::SameAsDst;
        assert_eq!(in_place.check(), Ok(()));
    }

    #[test]
    fn false_marks_of_aliasing_are_refused() {
        let row = layout(&[8]);
        let claimed = scale(operand(CHUNK, 0, row), operand(CHUNK, 0, row));
        assert_eq!(refusal(&claimed), "operand 0 overlaps the destination");
        let partly = scale(operand(CHUNK, 0, row), operand(CHUNK, 16, row));
        assert_eq!(refusal(&partly), "an operand overlaps the destination in part");
        let mut apart = scale(operand(CHUNK, 0, row), operand(CHUNK, 64, row));
        apart.sources[0].as_mut().unwrap().aliasing = Aliasing::SameAsDst;
        assert_eq!(refusal(&apart), "operand 0 overlaps the destination");
        // An op that may not take the operand over.
        let square = layout(&[4, 4]);
        let mut factor = operand(CHUNK, 0, square);
        factor.aliasing = Aliasing::SameAsDst;
        let sources = vec![factor, operand(CHUNK, 64, square)];
        let product = step(StepOp::Op(Op::from(MulMat)), sources, operand(CHUNK, 0, square));
        assert_eq!(refusal(&product), "operand 0 overlaps the destination");
    }

    #[test]
    fn destinations_are_what_the_op_gives() {
        let rows = layout(&[8, 2]);
        let flat = Layout::strided(DType::F32, rows.shape(), [4, 0, 0, 0]).unwrap();
        let overlapping = scale(operand(CHUNK, 0, rows), operand(CHUNK, 64, flat));
        assert!(refusal(&overlapping).contains("the op gives"));
        let into_weight = scale(operand(CHUNK, 0, rows), operand(Region::Weight(0), 0, rows));
        assert_eq!(refusal(&into_weight), "the destination is a weight");
        // What is written is the base, not something else of its layout.
        let sources = vec![operand(CHUNK, 0, rows), operand(CHUNK, 64, rows)];
        let copy = step(StepOp::Op(Op::from(CopyInto)), sources, operand(CHUNK, 256, rows));
        assert_eq!(refusal(&copy), "the destination is not what the op writes into");
    }

    #[test]
    fn operands_lie_at_whole_elements_in_the_address_space() {
        let row = layout(&[8]);
        let odd = scale(operand(CHUNK, 2, row), operand(CHUNK, 64, row));
        assert!(refusal(&odd).starts_with("operand 0: ") && refusal(&odd).contains("byte 2"));
        let odd = scale(operand(CHUNK, 0, row), operand(CHUNK, 66, row));
        assert!(refusal(&odd).starts_with("destination: "));
        let far = scale(operand(CHUNK, 0, row), operand(Region::State(0), usize::MAX - 3, row));
        assert!(refusal(&far).contains("beyond the address space"), "{}", refusal(&far));
    }

    #[test]
    fn fused_steps_have_the_operands_that_they_are_made_of() {
        let square = layout(&[4, 4]);
        let base = MatrixOp::MulMat(MulMat);
        let matrix = |bias: Layout, residual: Layout| {
            let op = StepOp::Matrix { base, activation: Some(UnaryKind::Relu) };
            let sources = vec![
                operand(Region::Weight(0), 0, square),
                operand(CHUNK, 0, square),
                operand(Region::Weight(1), 0, bias),
                operand(CHUNK, 64, residual),
            ];
            step(op, sources, operand(CHUNK, 128, square))
        };
        assert_eq!(matrix(layout(&[4]), square).check(), Ok(()));
        assert!(refusal(&matrix(layout(&[3]), square)).contains("wanted a row"));
        let other = matrix(layout(&[4]), layout(&[4]));
        assert_eq!(refusal(&other), "the residual has another layout than the result");
        let sources = vec![operand(CHUNK, 0, square), operand(Region::Weight(0), 0, layout(&[4]))];
        let norm = StepOp::NormAffine { epsilon: 1e-5 };
        let mut norm = step(norm, sources, operand(CHUNK, 128, square));
        assert_eq!(refusal(&norm), "operand 2 is absent");
        norm.sources.push(Some(operand(Region::Weight(1), 0, layout(&[4]))));
        assert_eq!(norm.check(), Ok(()));
    }
}
