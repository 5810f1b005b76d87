//! Steps that no planner makes are refused, each for its own reason.

use std::sync::Arc;

use tensoryard_graph::Shape;
use tensoryard_graph::ops::{Binary, BinaryKind, CopyInto, MulMat, Scale};
use tensoryard_runtime::host_buffer_type;

use super::*;
use crate::packed::packed_buffer_type;

fn layout(dims: &[usize]) -> Layout {
    Layout::contiguous(DType::F32, Shape::new(dims).unwrap()).unwrap()
}

fn operand(region: Region, offset_bytes: usize, layout: Layout) -> Operand {
    let buffer_type = Arc::clone(host_buffer_type());
    Operand { region, offset_bytes, layout, buffer_type, aliasing: Aliasing::Disjoint }
}

fn scale(source: Operand, dst: Operand) -> Step {
    let op = StepOp::Op(Op::from(Scale { factor: 2.0, offset: 0.0 }));
    Step { name: "step".to_owned(), op, dst, sources: vec![Some(source)] }
}

const CHUNK: Region = Region::Chunk(0);

fn refusal(step: &Step) -> String {
    check_step(step).unwrap_err()
}

#[test]
fn a_true_step_passes() {
    let row = layout(&[8]);
    assert_eq!(check_step(&scale(operand(CHUNK, 0, row), operand(CHUNK, 64, row))), Ok(()));
    let mut in_place = scale(operand(CHUNK, 0, row), operand(CHUNK, 0, row));
    in_place.sources[0].as_mut().unwrap().aliasing = Aliasing::SameAsDst;
    assert_eq!(check_step(&in_place), Ok(()));
}

#[test]
fn false_marks_of_aliasing_are_refused() {
    let row = layout(&[8]);
    let claimed = scale(operand(CHUNK, 0, row), operand(CHUNK, 0, row));
    assert!(refusal(&claimed).contains("overlaps"));
    assert!(refusal(&scale(operand(CHUNK, 0, row), operand(CHUNK, 16, row))).contains("in part"));
    let mut apart = scale(operand(CHUNK, 0, row), operand(CHUNK, 64, row));
    apart.sources[0].as_mut().unwrap().aliasing = Aliasing::SameAsDst;
    assert!(check_step(&apart).is_err());
    // An op that may not take the operand over.
    let (a, b) = (layout(&[4, 4]), layout(&[4, 4]));
    let mut product = Step {
        name: "product".to_owned(),
        op: StepOp::Op(Op::from(MulMat)),
        dst: operand(CHUNK, 0, layout(&[4, 4])),
        sources: vec![Some(operand(CHUNK, 0, a)), Some(operand(CHUNK, 64, b))],
    };
    product.sources[0].as_mut().unwrap().aliasing = Aliasing::SameAsDst;
    assert!(refusal(&product).contains("overlaps"));
}

#[test]
fn destinations_are_what_the_op_gives() {
    let rows = layout(&[8, 2]);
    let flat = Layout::strided(DType::F32, rows.shape(), [4, 0, 0, 0]).unwrap();
    assert!(refusal(&scale(operand(CHUNK, 0, rows), operand(CHUNK, 64, flat))).contains("gives"));
    let into_weight = scale(operand(CHUNK, 0, rows), operand(Region::Weight(0), 0, rows));
    assert!(refusal(&into_weight).contains("weight"));
    // What is written is the base, not something else of its layout.
    let copy = Step {
        name: "copy".to_owned(),
        op: StepOp::Op(Op::from(CopyInto)),
        dst: operand(CHUNK, 256, rows),
        sources: vec![Some(operand(CHUNK, 0, rows)), Some(operand(CHUNK, 64, rows))],
    };
    assert!(refusal(&copy).contains("writes into"));
}

#[test]
fn odd_addresses_and_panels_in_the_wrong_place_are_refused() {
    let row = layout(&[8]);
    assert!(refusal(&scale(operand(CHUNK, 2, row), operand(CHUNK, 64, row))).contains("byte 2"));
    let mut packed = operand(Region::Weight(0), 0, layout(&[8, 4]));
    packed.buffer_type = Arc::clone(packed_buffer_type());
    let sum = Step {
        name: "sum".to_owned(),
        op: StepOp::Op(Op::from(Binary { kind: BinaryKind::Add })),
        dst: operand(CHUNK, 0, layout(&[8, 4])),
        sources: vec![Some(operand(CHUNK, 128, layout(&[8, 4]))), Some(packed)],
    };
    assert!(refusal(&sum).contains("packed"));
}
